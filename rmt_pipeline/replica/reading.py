"""The parts of a table as a reader gets them: of one moment, held, and whole.

A reader waits for a part that is broken or gone, which is fetched again. While ZooKeeper is away it
gets the parts that the table's server saw last.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from rmt_pipeline.protocol.errors import (
    Corruption,
    MissingPart,
    ReplicaDropped,
    ReplicaRetired,
    RmtError,
    Unavailable,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.readable import (
    ReadableParts,
    ReplicaIsNotInQuorum,
    absent_error,
    readable_parts,
    sequential_parts,
)
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.check import suspect
from rmt_pipeline.replica.upkeep.rewound import ZooKeeperIsOlder, require_promises
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.system import Clock

SNAPSHOT_ROUNDS_MAX = 20  # a part may be merged away and removed while it is being pinned
BROKEN_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class ActivePart:
    """An active part, and its manifest: rows, bytes, bounds of its keys."""

    name: PartName
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The active parts of one moment, whose files are kept while it is open. `files` are absolute
    paths.
    """

    parts: tuple[ActivePart, ...]
    files: tuple[str, ...]


class ReadWithoutZooKeeper(UserWarning):
    """ZooKeeper could not be reached, so the answer may lack what was inserted or
    changed lately.
    """


class TableReader:
    """Takes snapshots of one table. Thread-safe."""

    def __init__(
        self,
        store: PartStore,
        *,
        replica: Callable[[], Replica],
        definition: Callable[[], TableDefinition],
        clock: Clock,
    ) -> None:
        """`replica` returns a Replica with a live session, or raises Unavailable soon."""
        self._store = store
        self.replica = replica
        self._definition = definition
        self._clock = clock

    @contextmanager
    def snapshot(
        self, query: QuerySettings, partition: str | None = None
    ) -> Iterator[Snapshot]:
        """The active parts of the partition (None: of all), pinned: their files stay while this is
        open. Every file was compared with its hash since it was last written to.

        A part that is broken or missing is fetched again. This waits for it for at most
        `broken_parts_wait_ms`, and then raises Corruption or MissingPart, which name the part.
        """
        with ExitStack() as pinned:
            yield self._whole(pinned, query, partition)

    def _whole(
        self, pinned: ExitStack, query: QuerySettings, partition: str | None
    ) -> Snapshot:
        deadline_s = self._clock.monotonic_s() + query.broken_parts_wait_ms / 1000
        rounds_left = SNAPSHOT_ROUNDS_MAX
        told: Corruption | None = None
        read = sequential_parts if query.select_sequential_consistency else readable_parts
        while True:
            pinned.close()  # from the round before
            try:
                replica = self.replica()
                # Another process may have inserted through another server of the ensemble: make
                # sure that ours knows all that was acknowledged before this read began.
                replica.keeper.sync(replica.table.root)
                require_promises(replica)
                found = read(replica).of_partition(partition)
                require_promises(replica)
            except (ReplicaDropped, ReplicaIsNotInQuorum):
                raise
            except (Unavailable, ReplicaRetired, ZooKeeperIsOlder) as error:
                if isinstance(error, ReplicaRetired) and rounds_left:
                    rounds_left -= 1
                    continue  # with a new session, if one can be opened
                if query.select_sequential_consistency:
                    raise  # this reader wants no older state
                return self._seen_last(pinned, query, error, partition)
            try:
                pinned.enter_context(self._store.pin(found.active))
                snapshot = self._snapshot_of(found.active, query)
                if not found.absent or query.skip_broken_parts:
                    return snapshot
                told = told or absent_error(replica, found.absent)
            except Corruption as error:
                if isinstance(error, MissingPart) and rounds_left:
                    rounds_left -= 1
                    continue  # merged away and removed since it was listed: list again
                told = self._suspected(error)
            if self._clock.monotonic_s() >= deadline_s:
                raise told
            self._clock.sleep_s(BROKEN_POLL_S)

    def _seen_last(
        self,
        pinned: ExitStack,
        query: QuerySettings,
        error: RmtError,
        partition: str | None,
    ) -> Snapshot:
        """While ZooKeeper is away, or lost the table: the parts that were active when the server
        last looked, with a warning. Raises `error` if these are not noted on the disk; MissingPart,
        Corruption.

        The server may reach ZooKeeper when this process does not, and remove parts that it merged.
        It has noted what is active since; so a part that is gone or broken is looked for once more.
        """
        rounds_left = SNAPSHOT_ROUNDS_MAX
        while True:
            seen = self._store.marks.active_seen()
            if seen is None:
                raise error
            known = PartSet(seen.parts)
            given_up = self._store.marks.given_up()
            lacking = [part for part in given_up if not known.containing(part)]
            found = ReadableParts(seen.parts, tuple(lacking)).of_partition(partition)
            pinned.close()  # from the round before
            snapshot, broken = self._whole_of(pinned, found.active, query)
            if broken is None or not rounds_left or self._store.marks.active_seen() == seen:
                break
            rounds_left -= 1
        # Such a part is lost, or was dropped since: without ZooKeeper that is not known.
        if found.absent and not query.skip_broken_parts:
            raise absent_error(self._name(), found.absent) from error
        age_s = max(0.0, self._clock.now_s() - seen.seen_s)
        warnings.warn(
            f"{self._name()} is read without ZooKeeper ({error}): these are the parts "
            f"that its server saw last, and noted when they last changed, {age_s:.0f} s ago; what "
            "was inserted or dropped elsewhere since it saw them, or here while it was away, does "
            "not show",
            ReadWithoutZooKeeper,
            stacklevel=2,
        )
        if broken is not None and not query.skip_broken_parts:
            raise type(broken)(
                f"{self._name()}: part {broken.part}, which its server saw last, "
                f"can't be read ({broken}). Another replica's copy can be fetched again when "
                f"ZooKeeper answers ({error}). Until then read on another server, or without its "
                "rows: SETTINGS skip_broken_parts = 1",
                part=broken.part,
            ) from broken
        return snapshot

    def _whole_of(
        self, pinned: ExitStack, names: Sequence[PartName], query: QuerySettings
    ) -> tuple[Snapshot, Corruption | None]:
        """Pin those of these parts that are here and whole. Return them, and what is wrong with the
        first of the others.
        """
        parts: list[ActivePart] = []
        files: list[str] = []
        broken: Corruption | None = None
        for name in names:
            try:
                pinned.enter_context(self._store.pin([name]))
                one = self._snapshot_of([name], query)
            except Corruption as error:
                broken = broken or error
                continue
            parts += one.parts
            files += one.files
        return Snapshot(tuple(parts), tuple(files)), broken

    def _snapshot_of(self, names: Sequence[PartName], query: QuerySettings) -> Snapshot:
        look = (
            self._store.verify_changed
            if query.check_parts_before_reading
            else self._store.manifest
        )
        parts = tuple(ActivePart(name, look(name)) for name in names)
        files = tuple(path for name in names for path in self._store.files(name))
        return Snapshot(parts, files)

    def require_whole(self, snapshot: Snapshot, failure: str = "") -> None:
        """Check the files once more after they were read. Raises Corruption if one was written to
        meanwhile and is broken: then what was read of it may be wrong.

        `failure` is the error of a reader that could not read a file. The part that it names is
        read completely, or each part if it names no file: what a disk loses by itself changes no
        time of change.
        """
        store = self._store
        names_none = bool(failure) and ".parquet" not in failure
        for part in snapshot.parts:
            is_suspected = names_none or f"/{part.name}/" in failure
            try:
                (store.verify_again if is_suspected else store.verify_changed)(part.name)
            except Corruption as error:
                raise self._suspected(error) from error

    def _name(self) -> str:
        return self._definition().full_name

    def _suspected(self, error: Corruption) -> Corruption:
        """Have a part that can't be read checked; the error for the reader."""
        try:
            problem = suspect(self.replica(), error)
        except (RmtError, OSError) as failure:
            told = f"{error}; it could not be given up to be fetched again: {failure}"
            return type(error)(told, part=error.part)
        if problem is None:
            return error
        told = f"{error}; it is fetched again from another replica: try again when it is here"
        return type(error)(told, part=error.part)
