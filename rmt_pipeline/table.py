"""The Python face of one table on one server: insert, read, optimize, follow.

with ServerContext.open("rmt.toml", "r1") as server:
    flights = server.table("flights")
    flights.insert(arrow_table, token="flights/2013-01-01")
    flights.dataset().to_table()

What a call needs beyond this is imported when it is made, for start-up time.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from rmt_pipeline.exchange.peers import Peers
from rmt_pipeline.partitions import Partitions
from rmt_pipeline.protocol.errors import (
    Corruption,
    MissingPart,
    OutcomeUnknown,
    ReplicaDropped,
    ReplicaRetired,
    RmtError,
    Unavailable,
    UserError,
    ZooKeeperUnreachable,
)
from rmt_pipeline.protocol.inserts import ids as block_ids
from rmt_pipeline.protocol.inserts.quorum import Quorum
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.refusal import ReadOnlyReason
from rmt_pipeline.protocol.settings.query import QuerySettings, query_settings
from rmt_pipeline.protocol.settings.table import TableSettings
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.assign.optimize import OptimizeRequest, optimize
from rmt_pipeline.replica.insert.blocks import blocks_together
from rmt_pipeline.replica.insert.insert import Insertion
from rmt_pipeline.replica.insert.pipeline import InsertPipeline
from rmt_pipeline.replica.insert.quorum import QuorumWait
from rmt_pipeline.replica.insert.report import InsertReport, insert_reports
from rmt_pipeline.replica.insert.result import (
    InsertIdentity,
    InsertInPart,
    InsertResult,
    OtherRows,
    QuorumNotReached,
    Slowed,
    identity_of,
    retryable,
)
from rmt_pipeline.replica.insert.throttle import throttle_insert
from rmt_pipeline.replica.mutations.killed import KillReport, wait_for_kill
from rmt_pipeline.replica.mutations.mutations import kill_mutation
from rmt_pipeline.replica.readable import (
    ReadableParts,
    ReplicaIsNotInQuorum,
    absent_error,
    readable_parts,
    sequential_parts,
)
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.tries import StillTrying, Tries, nobody_knows
from rmt_pipeline.replica.upkeep.check import suspect
from rmt_pipeline.replica.upkeep.outdated_ids import forget_outdated_ids
from rmt_pipeline.replica.upkeep.rewound import ZooKeeperIsOlder, require_promises
from rmt_pipeline.replica.upkeep.scrub import CheckedPart, checked_parts
from rmt_pipeline.replica.wait import SyncMode, sync_replica
from rmt_pipeline.replica.work.carry import Tools
from rmt_pipeline.replica.work.pools import Pool
from rmt_pipeline.replica.work.worker import Flush, WorkSummary, work
from rmt_pipeline.store.frozen import FrozenParts
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.system import Clock, EventWaker, Waker
from rmt_pipeline.zookeeper.snapshot import parts_now

if TYPE_CHECKING:
    import pyarrow.dataset

    from rmt_pipeline.compute.insert.stage import StagePlan
    from rmt_pipeline.replica.mutations.request import MutationReport
    from rmt_pipeline.syntax.mutation import Command

BLOCKS_ALWAYS_TOGETHER = (
    100  # of one partition: they fit into a commit, however long their names
)
SNAPSHOT_ROUNDS_MAX = 20  # a part may be merged away and removed while it is being pinned
BROKEN_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class ActivePart:
    """A part of the table as it is now, and its manifest: rows, bytes, bounds of its keys."""

    name: PartName
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A consistent set of parts; nobody removes their files while it is open."""

    parts: tuple[ActivePart, ...]
    files: tuple[str, ...]


class ReadWithoutZooKeeper(UserWarning):
    """What was read may be a little old."""


class Table(Partitions):
    """One table of one server: a replica. Thread-safe; made by `ServerContext.table`."""

    def __init__(
        self,
        definition: TableDefinition,
        store: PartStore,
        *,
        replica: Callable[[], Replica],
        reader: Callable[[], Replica] | None = None,
        current: Callable[[], TableDefinition] | None = None,
        why_read_only: Callable[[], ReadOnlyReason | None] = nobody_knows,
        frozen: FrozenParts,
        peers: Callable[[], AbstractContextManager[Peers]],
        clock: Clock,
        new_waker: Callable[[], Waker] = EventWaker,
    ) -> None:
        """`replica` gives a Replica with a living session, `reader` one for who would rather read
        what was known last than wait long for it, `current` the definition as ALTERs have
        left it by now (None: nobody alters it), `why_read_only` asks the server of this replica.
        """
        self._definition = definition
        self._current = current
        self.store = store
        self.frozen_parts = frozen
        self._peers = peers
        self._replica = replica
        self._reader = reader or replica
        self._why_read_only = why_read_only
        self._clock = clock
        self._new_waker = new_waker

    @property
    def definition(self) -> TableDefinition:
        """What the table is now. Take it once for what has to fit together."""
        return self._definition if self._current is None else self._current()

    @property
    def replica(self) -> Replica:
        """With a living session. Raises ZooKeeperUnreachable."""
        return self._replica()

    # --- writing ---

    def insert(
        self,
        data: Any,
        *,
        columns: Sequence[str] | None = None,
        token: str = "",
        quorum: int | Literal["auto"] | None = None,
        settings: Mapping[str, Any] | QuerySettings | None = None,
        run_id: str = "",
        on_rows: Callable[[int, int], None] | None = None,
        now_s: float | None = None,
    ) -> InsertResult:
        """Insert rows exactly once: into all their partitions or none; of so many partitions that
        they are committed some at a time (hundreds), into all of them in the end.

        `data`: pyarrow Table, RecordBatch(Reader) or Dataset, pandas DataFrame, list of dicts, or a
        `compute.inputs` file. `token` names the insert; without one, the same rows are the same
        insert. `quorum`: so many replicas have the rows when it is answered, or the majority
        (instead of the setting `insert_quorum`).

        Raises BadValue and other UserErrors (nothing was inserted), TooFewLiveReplicas and
        UnsatisfiedQuorum among them; OutcomeUnknown when ZooKeeper was away for all retries, or
        the quorum was not reached in time (retry with the same data or token: it is safe);
        QuorumFailed when the rows were there and are no more; ReplicaDropped, and TableIsReadOnly
        when its server says that somebody has to do something about it, at once. Else a read-only
        table is tried again (`insert_keeper_max_retries`), with a warning, StillTrying.

        `on_rows` is told the rows and bytes that have come in, as they do. `now_s` is what `now()`
        is in defaults, when that is not this moment.
        """
        from rmt_pipeline.compute.inputs.conform import conform  # noqa: PLC0415
        from rmt_pipeline.compute.insert import blocks  # noqa: PLC0415  pyarrow

        query = query_settings(settings)
        if quorum is not None:
            query = replace(query, insert_quorum=str(quorum))
        Quorum.of(query)  # nonsense is an error before anything is staged
        token = token or query.insert_deduplication_token
        definition, created_s = self.definition, self._clock.now_s()
        tables = conform(
            data,
            definition.columns,
            settings=query,
            columns_given=columns,
            key_columns=blocks.key_columns_of(definition),
            now_s=created_s if now_s is None else now_s,
        )
        if on_rows is not None:
            tables = _told(tables, on_rows)
        staged: list[StagedPart] = []
        try:
            replica = self._replica_to_write()
            slowed = throttle_insert(replica, query)
            insert_id = self._insert_id(token, query, replica.settings)
            staged.extend(
                blocks.stage(
                    block,
                    self.store,
                    insert_id=insert_id,
                    run_id=run_id,
                    created_s=int(created_s),
                )
                for block in blocks.blocks_of(tables, definition, query)
            )
        except BaseException:
            for part in staged:
                self.store.discard(part)
            raise
        result = self.commit(staged, token=token, settings=query, run_id=run_id)
        return replace(result, slowed=slowed)

    def insert_spark(
        self,
        frame: Any,
        *,
        token: str = "",
        quorum: int | Literal["auto"] | None = None,
        settings: Mapping[str, Any] | QuerySettings | None = None,
        run_id: str = "",
    ) -> InsertResult:
        """Insert the rows of a Spark DataFrame, as one insert: each task writes its parts on this
        host, and this process commits them. As `insert` otherwise.
        """
        from rmt_pipeline.compute.insert.spark import stage_dataframe  # noqa: PLC0415  start-up

        return self._insert_tasks(
            partial(stage_dataframe, frame), token, quorum, settings, run_id
        )

    def insert_parquet(
        self,
        session: Any,
        files: Sequence[str],
        *,
        token: str = "",
        quorum: int | Literal["auto"] | None = None,
        settings: Mapping[str, Any] | QuerySettings | None = None,
        run_id: str = "",
    ) -> InsertResult:
        """Insert the rows of Parquet files as one insert. The tasks of this Spark session, which
        must be able to open them, read them themselves: three times as fast as `insert_spark` of
        a DataFrame of the same files. Raises IncorrectData for a file that is not Parquet.
        """
        from rmt_pipeline.compute.insert.spark import stage_parquet  # noqa: PLC0415  start-up

        return self._insert_tasks(
            partial(stage_parquet, session, files), token, quorum, settings, run_id
        )

    def _insert_tasks(
        self,
        stage: Callable[["StagePlan"], list[StagedPart]],
        token: str,
        quorum: int | Literal["auto"] | None,
        settings: Mapping[str, Any] | QuerySettings | None,
        run_id: str,
    ) -> InsertResult:
        query = query_settings(settings)
        if quorum is not None:
            query = replace(query, insert_quorum=str(quorum))
        token = token or query.insert_deduplication_token
        plan, slowed = self.stage_plan(token, query, run_id)
        result = self.commit(stage(plan), token=token, settings=query, run_id=run_id)
        return replace(result, slowed=slowed)

    def stage_plan(
        self, token: str, query: QuerySettings, run_id: str = ""
    ) -> tuple["StagePlan", Slowed]:
        """What tasks of somebody else's scheduler need to stage rows of one insert, which `commit`
        is for then, and how it was slowed down. Raises what is to be known before: nonsense in
        settings, too many parts.
        """
        from rmt_pipeline.compute.insert.stage import StagePlan  # noqa: PLC0415  start-up

        Quorum.of(query)
        replica = self._replica_to_write()
        slowed = throttle_insert(replica, query)
        plan = StagePlan(
            definition=self.definition,
            directory=self.store.disk.local_path(""),
            settings=query,
            columns_given=None,
            insert_id=self._insert_id(token, query, replica.settings),
            run_id=run_id,
            now_s=self._clock.now_s(),
            durable=True,
        )
        return plan, slowed

    def _replica_to_write(self) -> Replica:
        """With a living session. Whoever waits for ZooKeeper is told soon, by a warning. Raises
        ZooKeeperUnreachable.
        """
        try:
            return self._reader()
        except ZooKeeperUnreachable as error:
            words = f"INSERT into {self.definition.full_name} waits for ZooKeeper: {error}"
            warnings.warn(words, StillTrying, stacklevel=3)
            return self._replica()

    def _insert_id(self, token: str, query: QuerySettings, settings: TableSettings) -> str:
        deduplicate = query.insert_deduplicate and self._window(settings, token) > 0
        return block_ids.insert_id_of_parts(token, deduplicate=deduplicate)

    def _window(self, settings: TableSettings, token: str) -> int:
        """How many ids such an insert is looked for among; 0: it is always a new one. A table of
        one copy knows inserts by their rows when that is asked for, as the original's do; by a
        token always: who names an insert means it.
        """
        if self._definition.engine.is_private and not token:
            return settings.non_replicated_deduplication_window
        return settings.replicated_deduplication_window

    def pipeline(self, in_flight: int = 4) -> InsertPipeline:
        """Inserts that overlap: `with table.pipeline() as inserts: inserts.insert(rows)`."""
        return InsertPipeline(self.insert, in_flight)

    def commit(
        self,
        staged: Sequence[StagedPart],
        *,
        token: str = "",
        settings: QuerySettings | None = None,
        run_id: str = "",
    ) -> InsertResult:
        """Commit parts that are staged in this table's store as one insert (design §5)."""
        query = settings or QuerySettings()
        try:
            replica = self._replica_to_write()
            window = self._window(replica.settings, token)
            identity = identity_of(staged, token, query, window)
            if identity.insert_id and replica.has_own_window:
                forget_outdated_ids(replica)
            waker = self._new_waker()
            waits = QuorumWait(Quorum.of(query), waker)
            staged = self._joined(staged, identity, query, replica, waits)
            insertion = Insertion.of(
                staged, identity, replica=replica, run_id=run_id, waits=waits, waker=waker
            )
        except BaseException:
            for part in staged:
                self.store.discard(part)
            raise
        try:
            return self._run(insertion, query)
        except RmtError as error:
            insertion.let_go(self.store)
            if not insertion.in_part or isinstance(error, OtherRows):
                raise
            raise InsertInPart(
                f"insert {identity.insert_id or 'without an identity'} into "
                f"{self.definition.full_name}: {insertion.in_part}. It ended because: {error}"
            ) from error
        except BaseException:
            insertion.let_go(self.store)
            raise

    def _joined(
        self,
        staged: Sequence[StagedPart],
        identity: InsertIdentity,
        query: QuerySettings,
        replica: Replica,
        waits: QuorumWait,
    ) -> Sequence[StagedPart]:
        """A partition in more blocks than one commit takes is made of fewer, larger ones: so many
        tasks of Spark had rows of it, or so small were the blocks that were asked for.
        """
        counts = Counter(part.manifest.partition_id for part in staged)
        if max(counts.values(), default=0) <= BLOCKS_ALWAYS_TOGETHER:
            return staged
        from rmt_pipeline.compute.insert import blocks  # noqa: PLC0415  pyarrow

        together = blocks_together(replica, staged[0], identity, waits)
        return blocks.joined(staged, together, self.store, self.definition, query)

    def _run(self, insertion: Insertion, query: QuerySettings) -> InsertResult:
        """Until it is done, or was tried often enough. One session serves all tables of this
        process: it is not ended for an answer that did not come.
        """
        what = f"INSERT into {self.definition.full_name}"
        tries = Tries(what, query, self._clock, self._why_read_only)
        while True:
            try:
                return insertion.run(self._replica())
            except RmtError as error:
                if isinstance(error, UserError) or not retryable(error):
                    raise
                ended = tries.pause(error, is_pending=insertion.is_pending)
                if ended is not None:
                    raise self._give_up(insertion, ended) from error

    def _give_up(self, insertion: Insertion, error: RmtError) -> RmtError:
        if insertion.is_waiting and not insertion.is_pending:
            return QuorumNotReached(
                f"{self.definition.full_name}: the rows are in the table; whether on as many "
                f"replicas as insert_quorum wants is not known ({error}). Insert the same data "
                "again (or with the same token): nothing is inserted twice, and it is waited for"
                + _told_by(insertion)
            )
        if not insertion.is_pending:
            return error
        return OutcomeUnknown(
            f"{self.definition.full_name}: whether the insert landed is not known: ZooKeeper did "
            f"not answer it, nor any later try ({error}). " + _remedy(insertion)
        )

    def inserts(self, insert_ids: Sequence[str] | None = None) -> list[InsertReport]:
        """What became of these inserts, or of all that are remembered, the latest first. One that
        is not among them is not in the table, or older than its deduplication window.
        """
        return insert_reports(self.replica, insert_ids)

    # --- reading ---

    def parts(self) -> list[ActivePart]:
        """The active parts, sorted by name: maximal ones of what the replica promises."""
        replica = self.replica
        found = []
        for name in parts_now(replica.keeper, replica.paths, replica.memory.queue).current:
            try:
                found.append(ActivePart(name, self.store.manifest(name)))
            except Corruption as error:  # promised, and not to be read: it is fetched again
                suspect(replica, error)
        return found

    @contextmanager
    def snapshot(
        self, settings: Mapping[str, Any] | QuerySettings | None = None
    ) -> Iterator[Snapshot]:
        """The active parts, pinned: their files stay while this is open, and every byte of them
        was compared with its hash since somebody wrote to it.

        A part that is broken or gone is fetched again, and waited for, `broken_parts_wait_ms` at
        most. Then raises MissingPart, or Corruption, which name the part.
        """
        query = query_settings(settings)
        with ExitStack() as pinned:
            yield self._whole_snapshot(pinned, query)

    def _new_peers(self) -> AbstractContextManager[Peers]:
        return self._peers()

    @contextmanager
    def _pinned(
        self, partition: str | None, query: QuerySettings
    ) -> Iterator[Sequence[tuple[PartName, Manifest]]]:
        with ExitStack() as pinned:
            snapshot = self._whole_snapshot(pinned, query, partition)
            yield [(part.name, part.manifest) for part in snapshot.parts]

    def _whole_snapshot(
        self, pinned: ExitStack, query: QuerySettings, partition: str | None = None
    ) -> Snapshot:
        deadline_s = self._clock.monotonic_s() + query.broken_parts_wait_ms / 1000
        rounds_left = SNAPSHOT_ROUNDS_MAX
        told: Corruption | None = None
        read = sequential_parts if query.select_sequential_consistency else readable_parts
        while True:
            pinned.close()  # what was pinned in vain
            try:
                replica = self._reader()
                # What another process was told that it inserted is here, whichever server of the
                # ensemble each of the two asks.
                replica.keeper.sync(replica.table.root)
                require_promises(replica)
                found = read(replica).of_partition(partition)
                require_promises(replica)
            except (ReplicaDropped, ReplicaIsNotInQuorum):
                raise
            except (Unavailable, ReplicaRetired, ZooKeeperIsOlder) as error:
                if isinstance(error, ReplicaRetired) and rounds_left:
                    rounds_left -= 1
                    continue  # with a new session, if there is one to be had
                if query.select_sequential_consistency:
                    raise  # what was there last is not what this reader asked for
                return self._seen_last(pinned, query, error, partition)
            try:
                pinned.enter_context(self.store.pin(found.active))
                snapshot = self._snapshot_of(found.active, query)
                if not found.absent or query.skip_broken_parts:
                    return snapshot
                told = told or absent_error(replica, found.absent)
            except Corruption as error:
                if isinstance(error, MissingPart) and rounds_left:
                    rounds_left -= 1
                    continue  # merged away and removed since it was listed: list again
                told = self._suspected(self._reader, error)
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
        """While ZooKeeper is away, or has lost what it knew: the parts that were active when the
        server looked last, with a warning. Raises `error` when nobody has noted them; MissingPart,
        Corruption.
        """
        seen = self.store.marks.active_seen()
        if seen is None:
            raise error
        known = PartSet(seen.parts)
        lacking = [part for part in self.store.marks.given_up() if not known.containing(part)]
        found = ReadableParts(seen.parts, tuple(lacking)).of_partition(partition)
        # Absent, or dropped since: nobody can tell now.
        if found.absent and not query.skip_broken_parts:
            raise absent_error(f"{self.definition.full_name}", found.absent) from error
        age_s = max(0.0, self._clock.now_s() - seen.seen_s)
        warnings.warn(
            f"{self.definition.full_name} is read without ZooKeeper ({error}): these are the parts "
            f"that its server saw last, and noted when they last changed, {age_s:.0f} s ago; what "
            "was inserted or dropped elsewhere since it saw them, or here while it was away, does "
            "not show",
            ReadWithoutZooKeeper,
            stacklevel=2,
        )
        pinned.enter_context(self.store.pin(found.active))
        return self._snapshot_of(found.active, query)

    def _snapshot_of(self, names: Sequence[PartName], query: QuerySettings) -> Snapshot:
        look = (
            self.store.verify_changed
            if query.check_parts_before_reading
            else self.store.manifest
        )
        parts = tuple(ActivePart(name, look(name)) for name in names)
        files = tuple(path for name in names for path in self.store.files(name))
        return Snapshot(parts, files)

    def require_whole(self, snapshot: Snapshot) -> None:
        """Once more, after its files were read: raises Corruption when one of them was written to
        meanwhile and is broken. What was read of it is not to be believed.
        """
        for part in snapshot.parts:
            try:
                self.store.verify_changed(part.name)
            except Corruption as error:
                raise self._suspected(self._reader, error) from error

    def _suspected(self, replica: Callable[[], Replica], error: Corruption) -> Corruption:
        """What to tell who wanted to read a part that can't be read."""
        try:
            problem = suspect(replica(), error)
        except RmtError as failure:
            told = f"{error}; it could not be given up to be fetched again: {failure}"
            return type(error)(told, part=error.part)
        if problem is None:
            return error
        told = f"{error}; it is fetched again from another replica: try again when it is here"
        return type(error)(told, part=error.part)

    def files(self) -> list[str]:
        """Absolute paths of the active parts' Parquet files, in part and key order.

        They are not pinned: a merge may remove them `old_parts_lifetime` later.
        """
        with self.snapshot() as snapshot:
            return list(snapshot.files)

    def dataset(
        self, settings: Mapping[str, Any] | QuerySettings | None = None
    ) -> "pyarrow.dataset.Dataset":
        """The active parts as a pyarrow Dataset with the table's schema. Raises as `snapshot`."""
        from rmt_pipeline.compute.read.parts import dataset_of  # noqa: PLC0415

        with self.snapshot(settings) as snapshot:
            return dataset_of(self.store, snapshot.parts, self.definition)

    def spark(
        self, session: Any, settings: Mapping[str, Any] | QuerySettings | None = None
    ) -> Any:
        """The active parts as a DataFrame of `session`. Raises as `snapshot`."""
        from rmt_pipeline.compute.jobs.spark import read_parts  # noqa: PLC0415

        with self.snapshot(settings) as snapshot:
            return read_parts(session, self.store, snapshot.parts, self.definition)

    # --- upkeep ---

    def sync(
        self,
        mode: SyncMode = SyncMode.DEFAULT,
        timeout_s: float = 300.0,
        from_replicas: Collection[str] = (),
    ) -> None:
        """SYSTEM SYNC REPLICA: wait until what is in the log now is carried out here; with
        `from_replicas`, what comes from them.
        """
        sync_replica(self.replica, mode, timeout_s, EventWaker(), from_replicas)

    def check(self, wanted: Callable[[PartName], bool] | None = None) -> Iterator[CheckedPart]:
        """CHECK TABLE: read every byte of the active parts (that are `wanted`). What is broken is
        given up, and fetched again.
        """
        return checked_parts(self.replica, wanted)

    def optimize(
        self,
        partition: str | None = None,
        *,
        final: bool = False,
        deduplicate: bool = False,
        deduplicate_by: tuple[str, ...] = (),
        settings: Mapping[str, Any] | QuerySettings | None = None,
    ) -> list[PartName]:
        """OPTIMIZE TABLE (spec §6.7): the parts that the assigned merges make.

        Waits as `alter_sync` says. Raises CannotAssignOptimize with the reason if nothing was
        assigned and `optimize_throw_if_noop` is set; Unfinished when waiting ended first.
        """
        wanted = OptimizeRequest(partition, final, deduplicate, deduplicate_by)
        return optimize(self._replica, wanted, query_settings(settings), EventWaker)

    def mutate(
        self,
        commands: "str | Sequence[Command]",
        *,
        settings: Mapping[str, Any] | QuerySettings | None = None,
    ) -> str:
        """ALTER TABLE … `DELETE WHERE …`, `UPDATE c = … WHERE …`, several with commas between
        (spec §7): the mutation's id.

        Waits as `mutations_sync` says. Raises a UserError before anything is written for what
        the commands may not do; Unfinished when waiting ended first; MutationUnsettled when nobody
        answered often enough: `mutations` tells whether it is there.
        """
        from rmt_pipeline.replica.mutations import request  # noqa: PLC0415  pyarrow
        from rmt_pipeline.syntax.mutation import parse_commands  # noqa: PLC0415

        query = query_settings(settings)
        parsed = parse_commands(commands) if isinstance(commands, str) else commands
        mutation_id = request.request_mutation(self._replica, parsed, query)
        request.wait_as_asked(
            self.replica, mutation_id, query, query.mutations_sync, EventWaker()
        )
        return mutation_id

    # --- mutations ---

    def mutations(self) -> "list[MutationReport]":
        """Every mutation there is, as this replica sees it."""
        from rmt_pipeline.replica.mutations.request import mutation_reports  # noqa: PLC0415

        return mutation_reports(self.replica)

    def kill_mutation(self, mutation_id: str, *, wait_s: float = 0.0) -> KillReport:
        """KILL MUTATION (spec §7.8): it is gone, and where it has taken hold `wait_s` later.

        Raises UnknownMutation, TableIsReadOnly.
        """
        entry = kill_mutation(self.replica, mutation_id)
        return wait_for_kill(self.replica, entry, timeout_s=wait_s, waker=EventWaker())

    def work(
        self,
        pool: Pool,
        tools: Tools,
        *,
        linger_s: float | None,
        max_s: float | None = None,
        select: bool = False,
        on_flush: Callable[[Flush], None],
        should_stop: Callable[[], bool],
    ) -> WorkSummary:
        """Work one pool of this replica's queue; see `replica.work.worker.work`."""
        return work(
            self._replica,
            tools,
            pool,
            waker=EventWaker(),
            linger_s=linger_s,
            max_s=max_s,
            select=select,
            on_flush=on_flush,
            should_stop=should_stop,
        )


def _told(tables: Iterator[Any], on_rows: Callable[[int, int], None]) -> Iterator[Any]:
    for table in tables:
        on_rows(table.num_rows, table.nbytes)
        yield table


def _told_by(insertion: Insertion) -> str:
    """Without an identity it has no record, and nobody can tell."""
    insert_id = insertion.identity.insert_id
    return f"; `rmt inserts {insert_id}` tells what became of it" if insert_id else ""


def _remedy(insertion: Insertion) -> str:
    """For who does not know whether the rows are in."""
    if insertion.identity.insert_id:
        return (
            "Insert the same data again (or with the same token): if it landed, that is answered "
            f"as a duplicate{_told_by(insertion)}"
        )
    parts = ", ".join(map(str, insertion.pending_parts))
    return (
        "Deduplication is switched off for this insert or table: inserted again, these rows could "
        f"be there twice. Look first whether system.parts has {parts}, or a part that covers it; "
        "with a token (insert_deduplication_token) the same insert can be sent again"
    )
