"""Fetches parts from peers (spec §12). The format is in `wire`.

Nothing that a peer sends is trusted: names, sizes, hashes and the manifest are checked while the
bytes are written to a staging directory, which is removed if anything is wrong. A large answer that
breaks off is resumed from the same peer, a few times. There is no other retry here: the queue tries
the entry again, perhaps with another replica.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from typing import Protocol

from urllib3 import BaseHTTPResponse
from urllib3.exceptions import HTTPError, ProtocolError

from rmt_pipeline.exchange import wire
from rmt_pipeline.exchange.bandwidth import Bandwidth
from rmt_pipeline.exchange.connections import Connections, Peer, Timeouts
from rmt_pipeline.exchange.control import refusal
from rmt_pipeline.exchange.peers import Fetched, FetchRequest
from rmt_pipeline.exchange.slots import FetchSlots
from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import (
    Conflict,
    Corruption,
    DiskFull,
    NoReplicaHasPart,
    RmtError,
    Unavailable,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.store.manifest import PartFile
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.store.staging import FetchNote, StagedPart, Staging
from rmt_pipeline.system import Clock, SystemClock
from rmt_pipeline.threads import done_here, handed_over

RESUMED_LATER = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
REFUSAL_BYTES_MAX = 4096  # of a peer's error message
RESUME_BYTES = 8 << 20  # with fewer received, a fetch begins again, perhaps elsewhere
RESUMES_MAX = 5  # of one fetch
RESUME_WAIT_S = 0.25  # then twice as long each time: a server's start takes some seconds
CANCEL_LOOK_S = 0.25  # between looks whether the fetch was cancelled
NOTED_BYTES_MIN = 64 << 10  # of a part, whose note is a file to write, lock and remove
AHEAD_BYTES = 16 << 10  # read at once, since sizes, names and hashes are a few bytes each


class ReplicaHost(Protocol):
    """The address of a replica's server (spec §0.4.8), such as `formats.ReplicaAddress`."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def scheme(self) -> str: ...


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class PartClient:
    """Fetches parts over HTTP. Thread-safe; one for each process is enough.

    Requests carry the current exchange secret. `bandwidth` limits all fetches together (None: no
    limit). `is_cancelled` is asked when an answer begins, before each whole chunk, and otherwise a
    few times a second.
    """

    secret: str | Callable[[], str] = field(repr=False)
    timeouts: Timeouts = field(default_factory=Timeouts)
    bandwidth: Bandwidth | None = None
    is_cancelled: Callable[[], bool] = _never
    clock: Clock = field(default_factory=SystemClock)
    connections: Connections = field(default_factory=Connections)

    def fetch(
        self, address: ReplicaHost, endpoint: str, part: PartName, store: PartStore
    ) -> StagedPart:
        """Stage `part` of the replica whose ZooKeeper path is `endpoint`, from `address`.

        Raises NoReplicaHasPart (that peer does not have it), Unavailable (the peer cannot be
        reached, is busy or broke off), Corruption (what it sent is not a part), DiskFull, and
        Conflict when it was cancelled. Then nothing is left behind.
        """
        peer = self._peer(address)
        answer = _Answer(self, peer, wire.request_target(endpoint, part))
        try:
            answer.begin()
        except HTTPError as error:
            raise Unavailable(f"{peer} cannot be asked for {part}: {error!r}") from error
        try:
            return _receive(_Reader(self, answer), answer.note(endpoint), part, store)
        except BaseException as error:
            answer.close()  # with its connection, on which unread bytes may wait
            if isinstance(error, RmtError):
                error.args = (f"{part} from {peer}: {error}",)
            raise

    def _peer(self, address: ReplicaHost) -> Peer:
        if address.scheme != self.connections.scheme:  # the secret never goes unencrypted
            raise Unavailable(
                f"{address.host}:{address.port} speaks {address.scheme}, and we "
                f"{self.connections.scheme}: all servers of a cluster have [tls], or none"
            )
        return Peer(address.scheme, address.host, address.port)

    def fetch_small(
        self,
        address: ReplicaHost,
        endpoint: str,
        parts: Sequence[PartName],
        store: PartStore,
    ) -> dict[PartName, StagedPart]:
        """Stage those of `parts` that the peer sends in one answer, up to the first problem. The
        caller fetches the others one by one, and learns then what is wrong with them.
        """
        staged: dict[PartName, StagedPart] = {}
        speaks_otherwise = address.scheme != self.connections.scheme
        if speaks_otherwise or store.disk.free_bytes() < wire.TOGETHER_BYTES_MAX:
            return staged
        answer = _Answer(self, self._peer(address), wire.request_target(endpoint, *parts))
        try:
            answer.begin()
            _receive_small(_Reader(self, answer), parts, store, staged)
        except (RmtError, HTTPError, OSError):
            answer.close()
        except BaseException:
            answer.close()
            raise
        return staged


_FetchedOfGroup = tuple[list[Fetched], list[FetchRequest]]


class HttpPeers:
    """`Peers` over HTTP: several fetches at once, each with bounded memory (spec §12).

    Its threads end with the fetch that they are for: a process with many tables would have
    thousands that do nothing. `slots` and the client's connections are shared by all tables of the
    process.
    """

    def __init__(
        self,
        client: PartClient,
        *,
        at_once_max: int = limits.FETCHES_MAX,
        slots: FetchSlots | None = None,
    ) -> None:
        self._client = client
        self._slots = slots or FetchSlots(at_once_max)
        self._at_once_max = at_once_max
        self._given_up: set[Future[_FetchedOfGroup]] = set()

    def fetch(
        self, requests: Sequence[FetchRequest], store: PartStore
    ) -> Iterator[Sequence[Fetched]]:
        if len(requests) == 1:  # usual on a quiet table: fetch in this thread
            yield [(requests[0], self._fetch(requests[0], store))]
            return
        recoveries_max = limits.leaving_some(self._at_once_max)
        plain = ThreadPoolExecutor(self._at_once_max, thread_name_prefix="fetch")
        recoveries = ThreadPoolExecutor(recoveries_max, thread_name_prefix="fetch")

        def begun(some: Sequence[FetchRequest]) -> Future[_FetchedOfGroup]:
            work = partial(self._fetch_all, some, store)
            try:
                return handed_over(recoveries if some[0].recovers else plain, work)
            except RuntimeError:  # no thread can be started
                return done_here(work)

        left = set[Future[_FetchedOfGroup]]()
        try:
            for group in _groups(requests):
                left.add(begun(group))
            while left:
                done, left = wait(left, return_when=FIRST_COMPLETED)
                found: list[Fetched] = []
                for future in done:
                    fetched, alone = future.result()
                    found += fetched
                    left |= {begun([one]) for one in alone}
                if found:
                    yield found
        finally:  # the caller no longer waits for the others
            left = {one for one in left if not one.cancel()}
            for pool in (plain, recoveries):
                pool.shutdown(wait=not left)
            # in place: another thread may give up at the same time
            self._given_up.update(one for one in left if not one.done())
            for future in left:
                future.add_done_callback(self._given_up.discard)

    def close(self) -> None:
        """Wait until nothing is fetched any more, not even for a caller that has given up."""
        wait(self._given_up)

    def _fetch_all(self, requests: Sequence[FetchRequest], store: PartStore) -> _FetchedOfGroup:
        """Fetch these parts from one peer: the results, and the requests that must be made one by
        one.
        """
        if len(requests) == 1:
            return [(requests[0], self._fetch(requests[0], store))], []
        first, parts = requests[0], [one.part for one in requests]
        try:
            with self._slot(first):
                staged = self._client.fetch_small(first.address, first.endpoint, parts, store)
        except Conflict as error:
            return [(one, error) for one in requests], []
        fetched: list[Fetched] = [
            (one, staged[one.part]) for one in requests if one.part in staged
        ]
        return fetched, [one for one in requests if one.part not in staged]

    def _fetch(self, request: FetchRequest, store: PartStore) -> StagedPart | RmtError:
        try:
            with self._slot(request):
                return self._client.fetch(
                    request.address, request.endpoint, request.part, store
                )
        except RmtError as error:
            return error
        except OSError as error:  # of this part alone: the disk refuses its files
            return Unavailable(f"{request.part} could not be kept here: {error!r}")

    def _slot(self, request: FetchRequest) -> AbstractContextManager[None]:
        return self._slots.taken(self._client.is_cancelled, recovers=request.recovers)


def _groups(requests: Sequence[FetchRequest]) -> Iterator[list[FetchRequest]]:
    """Group requests that go into one exchange: those to one replica, each part once."""
    of_replica: dict[tuple[ReplicaHost, str, bool], list[FetchRequest]] = {}
    for request in requests:
        of_replica.setdefault((request.address, request.endpoint, request.recovers), []).append(
            request
        )
    for asked in of_replica.values():
        for start in range(0, len(asked), wire.PARTS_TOGETHER_MAX):
            yield asked[start : start + wire.PARTS_TOGETHER_MAX]


def _receive_small(
    reader: "_Reader",
    parts: Sequence[PartName],
    store: PartStore,
    staged: dict[PartName, StagedPart],
) -> None:
    """Receive the parts one after the other into `staged`."""
    reader.require_success()
    count = reader.together
    if count is None:  # an older server, which sends the first part only
        staged[parts[0]] = _receive_part(reader, parts[0], store)
        reader.end()
        return
    if count != len(parts):
        raise Corruption(f"the peer answers for {count} parts; asked for were {len(parts)}")
    for part in parts:
        size, began = wire.read_size(reader.read), reader.received
        if size:
            staged[part] = _receive_part(reader, part, store)
            if reader.received - began != size:
                raise Corruption(f"{part} has not the {size} bytes that the peer announces")
    reader.end()


def _receive(
    reader: "_Reader", note: FetchNote, part: PartName, store: PartStore
) -> StagedPart:
    reader.require_success()
    staged = _receive_part(reader, part, store, note)
    try:
        reader.end()
    except BaseException:
        store.discard(staged)
        raise
    return staged


def _receive_part(
    reader: "_Reader", part: PartName, store: PartStore, note: FetchNote | None = None
) -> StagedPart:
    """Receive one part. With a `note` its progress is shown in `system.replicated_fetches`, where
    it can be stopped, unless the part is so small that it arrives at once. Parts that come together
    have none for the same reason, and the free disk was checked before.
    """
    manifest, text = wire.read_head(reader.read)
    if manifest.partition_id != part.partition:
        raise Corruption(f"its manifest is of partition {manifest.partition_id}")
    if note is not None and manifest.bytes_on_disk > (free_bytes := store.disk.free_bytes()):
        raise DiskFull(
            f"{manifest.bytes_on_disk} bytes are to be written and {free_bytes} are free: "
            "free some space; nothing was written"
        )
    staging = store.begin("fetch", str(part))
    try:
        with ExitStack() as noted:
            if note is not None and manifest.bytes_on_disk >= NOTED_BYTES_MIN:
                reader.stop_reason = staging.asked_to_stop
                noted.enter_context(
                    staging.noted(replace(note, total_bytes=manifest.bytes_on_disk))
                )
            for file in manifest.files:
                wire.read_file_head(reader.read, file)
                _receive_file(reader, staging, file)
        return staging.seal(manifest, text)
    except BaseException:
        staging.abandon()
        raise


def _receive_file(reader: "_Reader", staging: Staging, file: PartFile) -> None:
    written = staging.write(file.name, reader.chunks(file.size))
    sent_hash = reader.read(wire.HASH_BYTES).hex()
    if written.hash != file.hash or not written.hash.startswith(sent_hash):
        raise Corruption(
            f"{file.name} arrived with hash {written.hash}; its manifest says {file.hash}, "
            f"the peer computed {sent_hash}…"
        )


class _Answer:
    """The bytes of a peer's answer as they arrive, over several connections if one breaks.

    1. The connection ends before the answer does. What has arrived is hashed and on the disk.
    2. We ask the peer for the rest of that answer, named by its ETag. If the peer has another part
       of this name by now (it fetched it again, say), it sends that part whole. That is no rest,
       and the fetch fails as one that broke off.
    3. The rest is checked like all other bytes: the hash of a file covers all of its bytes,
       whichever connection they came by.

    We do not ask again after a rest that ended without a byte, because a peer that finds its own
    part broken ends so; nor after a timeout, so that one slow peer is waited for only once.
    """

    def __init__(self, client: PartClient, peer: Peer, target: str) -> None:
        self._client = client
        self._peer = peer
        self._target = target
        self._response: BaseHTTPResponse | None = None
        self._etag = ""
        self._received = 0
        self._resumes = 0
        self._begun_at = 0
        """How many bytes had been received when the current connection began."""

    @property
    def status(self) -> int:
        assert self._response is not None, "it was not begun"
        return self._response.status

    @property
    def together(self) -> int | None:
        """How many parts the answer has; None if it is the answer for a single part."""
        assert self._response is not None, "it was not begun"
        text = self._response.headers.get(wire.TOGETHER_HEADER, "")
        return int(text[:9]) if text.isascii() and text.isdigit() else None

    def begin(self) -> None:
        """Send the request. Raises HTTPError when there is no answer."""
        self._response = self._ask({})
        self._etag = self._response.headers.get("etag", "")

    def read1(self, size: int) -> bytes:
        """The bytes that have arrived, at most `size`; waits for the first; empty at the end.

        Raises HTTPError when the answer breaks off and can't be resumed.
        """
        while True:
            assert self._response is not None, "it was not begun"
            try:
                found = self._response.read1(size)
            except ProtocolError as error:
                self._go_on(error)
            else:
                self._received += len(found)
                return found

    def note(self, endpoint: str) -> FetchNote:
        """The note of this fetch for `system.replicated_fetches`; the part's size is
        not known yet.
        """
        peer = self._peer
        return FetchNote(
            started_s=self._client.clock.now_s(),
            total_bytes=0,
            source_path=endpoint,
            scheme=peer.scheme,
            host=peer.host,
            port=peer.port,
            uri=f"{peer}{self._target}",
        )

    def close(self) -> None:
        if self._response is not None:
            self._response.close()

    def _go_on(self, broke: ProtocolError) -> None:
        """Ask for the rest. Raises `broke` when the peer does not send one."""
        is_worth_it = bool(self._etag) and self._received >= RESUME_BYTES
        if not is_worth_it or self._received == self._begun_at:
            raise broke
        self.close()
        while self._resumes < RESUMES_MAX:
            self._wait(RESUME_WAIT_S * 2**self._resumes)
            self._resumes += 1
            try:
                response = self._ask(wire.range_headers(self._received, self._etag))
            except HTTPError:
                continue  # the peer is restarting
            first = wire.first_byte_sent(response.headers.get("content-range", ""))
            if response.status == HTTPStatus.PARTIAL_CONTENT and first == self._received:
                self._response, self._begun_at = response, self._received
                return
            response.close()
            if response.status not in RESUMED_LATER:
                break
        raise broke

    def _wait(self, seconds: float) -> None:
        clock = self._client.clock
        until_s = clock.monotonic_s() + seconds
        while not self._client.is_cancelled():
            left_s = until_s - clock.monotonic_s()
            if left_s <= 0:
                return
            clock.sleep_s(min(left_s, CANCEL_LOOK_S))
        raise Conflict("the fetch was cancelled")

    def _ask(self, headers: Mapping[str, str]) -> BaseHTTPResponse:
        client = self._client
        return client.connections.ask(
            "POST",
            self._peer,
            self._target,
            client.secret if isinstance(client.secret, str) else client.secret(),
            timeouts=client.timeouts,
            headers=headers,
        )


class _Reader:
    """Reads exactly as many bytes as asked for, within the bandwidth limits."""

    def __init__(self, client: PartClient, answer: _Answer) -> None:
        self._client = client
        self._answer = answer
        self.received = 0
        self.stop_reason: Callable[[], str] = str
        """Why the part is no longer wanted; "" while it is."""
        self._cancel_next_s = -math.inf
        self._ahead = b""  # received, not yet asked for

    @property
    def together(self) -> int | None:
        return self._answer.together

    def require_success(self) -> None:
        """Raises NoReplicaHasPart or Unavailable with the peer's own words."""
        status = self._answer.status
        if status != HTTPStatus.OK:
            words = refusal(status, self._arrived(REFUSAL_BYTES_MAX))
            message = f"refused with status {words}"
            raise (
                NoReplicaHasPart(message)
                if status == HTTPStatus.NOT_FOUND
                else Unavailable(message)
            )

    def read(self, size: int) -> bytes:
        """Raises Unavailable when the answer ends before, or is slower than the timeout."""
        return b"".join(self.chunks(size)) if size > wire.CHUNK_BYTES else self._chunk(size)

    def chunks(self, size: int) -> Iterator[bytes]:
        while size:
            chunk = self._chunk(min(size, wire.CHUNK_BYTES))
            size -= len(chunk)
            yield chunk

    def end(self) -> None:
        """Raises Corruption unless the answer ends here."""
        if self._arrived(1):
            raise Corruption("the peer sends more than its manifest has")

    def _chunk(self, size: int) -> bytes:
        """Exactly `size` bytes, at most one chunk."""
        ahead = len(self._ahead)
        if size <= ahead:  # as most are of small parts, so nothing is waited for
            self.received += size
            return self._arrived(size)
        client, pieces, left = self._client, [], size
        now_s = client.clock.monotonic_s()
        if size == wire.CHUNK_BYTES or now_s >= self._cancel_next_s:
            self._cancel_next_s = now_s + CANCEL_LOOK_S
            self._raise_if_cancelled()
        deadline_s = now_s + client.timeouts.receive_s
        while left:
            piece = self._arrived(left)
            if not piece:
                raise Unavailable(f"the answer broke off near byte {self.received + size}")
            pieces.append(piece)
            left -= len(piece)
            if left and client.clock.monotonic_s() > deadline_s:
                raise Unavailable(
                    f"{size} bytes took longer than {client.timeouts.receive_s:g} s to arrive"
                )
        self.received += size
        self._slow_down(size - ahead + len(self._ahead))
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _arrived(self, size: int) -> bytes:
        """The next bytes that have arrived, at most `size`; waits for the first; empty
        at the end.
        """
        if not self._ahead and size >= AHEAD_BYTES:
            return self._next(size)
        self._ahead = self._ahead or self._next(AHEAD_BYTES)
        piece, self._ahead = self._ahead[:size], self._ahead[size:]
        return piece

    def _next(self, size: int) -> bytes:
        try:
            return self._answer.read1(size)
        except HTTPError as error:
            raise Unavailable(f"broke off near byte {self.received}: {error!r}") from error

    def _slow_down(self, size: int) -> None:
        """Wait as the limits ask for, after so many bytes have arrived."""
        bandwidth = self._client.bandwidth
        wait_s = bandwidth.wait_s(size) if bandwidth is not None else 0.0
        while wait_s > 0:
            self._client.clock.sleep_s(min(wait_s, CANCEL_LOOK_S))
            wait_s -= CANCEL_LOOK_S
            self._raise_if_cancelled()

    def _raise_if_cancelled(self) -> None:
        if self._client.is_cancelled():
            raise Conflict("the fetch was cancelled")
        if reason := self.stop_reason():
            raise Conflict(reason)
