"""Fetching parts from simulated hosts: answered while the peer's server lives, or broken off."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from rmt_pipeline.exchange.peers import Fetched, FetchRequest
from rmt_pipeline.protocol.errors import (
    Corruption,
    MissingPart,
    NoReplicaHasPart,
    RmtError,
    Unavailable,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.store.hashes.checksums import hash_hex
from rmt_pipeline.store.manifest import PartFile
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.store.staging import StagedPart
from tests.support.schedule import Kind
from tests.support.world import Process

T = TypeVar("T")

ALONE = 0.5  # of the parts that arrive nothing more has arrived a moment later

Report = Callable[[str, PartName], None]
Serving = Callable[[str], PartStore | None]
"""The parts of the replica with this ZooKeeper path, if its server can be reached now. Reading
them is no effect of anybody's."""


def _require_hash(file: PartFile, data: bytes) -> None:
    if hash_hex(data) != file.hash:
        raise Corruption(f"{file.name} arrived with another hash than its manifest says")


class FakePeers:
    """The `Peers` protocol, doing what the exchange's server and client do, without a wire."""

    def __init__(self, process: Process, serving: Serving, report: Report) -> None:
        """`report` is what a server does that notices, while it sends, that a part is broken."""
        self._process = process
        self._serving = serving
        self._report = report

    def fetch(
        self, requests: Sequence[FetchRequest], store: PartStore
    ) -> Iterator[Sequence[Fetched]]:
        together: list[Fetched] = []
        for request in requests:
            try:
                together.append((request, self._fetch(request, store)))
            except RmtError as error:
                together.append((request, error))
            if request is requests[-1] or self._process.world.rng.random() < ALONE:
                yield together
                together = []

    def _fetch(self, request: FetchRequest, store: PartStore) -> StagedPart:
        world, part = self._process.world, request.part
        theirs = world.effect(
            self._process,
            Kind.PEER,
            "ask for",
            f"{request.endpoint}/{part}",
            lambda: self._connect(request),
        )
        try:
            with theirs.pin([part]):
                world.take_time(self._process)
                return self._copy(request, theirs, store)
        except MissingPart as error:  # removed a moment ago; or promised, and gone
            self._report(request.endpoint, part)
            raise NoReplicaHasPart(f"{part}: {error}") from error

    def _copy(self, request: FetchRequest, theirs: PartStore, store: PartStore) -> StagedPart:
        part = request.part
        manifest = self._read(request, lambda: theirs.manifest(part))
        staging = store.begin("fetch", str(part))
        try:
            for file in manifest.files:
                read = partial(theirs.file_chunks, part, file.name)
                data = self._read(request, lambda read=read: b"".join(read()))
                self._receive(request)
                staging.write(file.name, data)
                _require_hash(file, data)
            return staging.seal(manifest)
        except Corruption:
            self._report(request.endpoint, part)
            staging.abandon()
            raise
        except BaseException:
            staging.abandon()
            raise

    def _read(self, request: FetchRequest, read: Callable[[], T]) -> T:
        """What the peer's disk can't read is the peer's trouble: it has the part checked, refuses
        this request, and answers the next one.
        """
        try:
            return read()
        except OSError as error:
            self._report(request.endpoint, request.part)
            raise Unavailable(
                f"{request.address.host} can't read {request.part}: {error}"
            ) from error

    def _receive(self, request: FetchRequest) -> None:
        """The bytes have arrived, if the peer still lives."""
        self._process.world.effect(
            self._process,
            Kind.PEER,
            "receive",
            str(request.part),
            lambda: self._connect(request),
        )

    def _connect(self, request: FetchRequest) -> PartStore:
        store = self._serving(request.endpoint)
        if store is None:
            raise Unavailable(f"{request.address.host} does not answer")
        return store
