"""The Python interface of one table on one server: insert, read, optimize, mutate, replicate.

with ServerContext.open("rmt.toml", "r1") as server:
    flights = server.table("flights")
    flights.insert(arrow_table, token="flights/2013-01-01")
    flights.dataset().to_table()

Imports inside methods are for start-up time: pyarrow alone takes longer than all the rest.
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
from rmt_pipeline.replica.tries import Tries, nobody_knows
from rmt_pipeline.replica.upkeep.check import manifest_here, suspect
from rmt_pipeline.replica.upkeep.outdated_ids import forget_outdated_ids
from rmt_pipeline.replica.upkeep.rewound import ZooKeeperIsOlder, require_promises
from rmt_pipeline.replica.upkeep.scrub import CheckedPart, checked_parts
from rmt_pipeline.replica.wait import SyncMode, sync_replica
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
    100  # of one partition; so many fit into one commit, however long their names are
)
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


class Table(Partitions):
    """One table of one server, which is a replica of it. Thread-safe. Get it from
    `ServerContext.table`.
    """

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
        """`replica` returns a Replica with a live ZooKeeper session. `reader` does so for reads: it
        gives up sooner, so that a read can go on from what was known last. `current` returns the
        definition after all ALTERs so far; None if the table is never altered. `why_read_only`
        asks the server why the replica takes no writes.
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
        self.new_waker = new_waker

    @property
    def definition_then(self) -> TableDefinition:
        """The definition as of when this object was made: the catalog is not looked at."""
        return self._definition

    @property
    def definition(self) -> TableDefinition:
        """The definition as of now. An ALTER may change it between two calls, so take it once per
        task.
        """
        return self._definition if self._current is None else self._current()

    @property
    def replica(self) -> Replica:
        """The replica, with a live session. Raises ZooKeeperUnreachable."""
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
        """Insert rows exactly once, into all of their partitions or none.

        Rows of so many partitions that one transaction can't hold them (hundreds) are committed
        some partitions at a time. If that is cut off, repeating the insert adds what is missing.

        data     pyarrow Table, RecordBatch, RecordBatchReader or Dataset, pandas DataFrame, list of
                 dicts, or a file from `compute.inputs`
        columns  names of the columns that the data have, in order; all of the table's by default
        token    names the insert: another one with the same token adds nothing. Without a token the
                 same rows are the same insert
        quorum   how many replicas must have the rows before this returns, or "auto" for the
                 majority; overrides the setting `insert_quorum`
        run_id   the Dagster run, for the part ledger
        on_rows  called with the numbers of rows and bytes read so far
        now_s    the value of `now()` in column defaults, seconds since the epoch

        Raises BadValue and other UserErrors, TooFewLiveReplicas and UnsatisfiedQuorum among them:
        nothing was inserted. OutcomeUnknown: ZooKeeper was away for all retries, or the quorum was
        not reached in time; it is safe to repeat the insert with the same data or token.
        QuorumFailed: the rows were in the table, and were taken out again. ReplicaDropped, and
        TableIsReadOnly if the server says that a person has to act: raised at once. Any other
        read-only table is tried again (`insert_keeper_max_retries`), with the warning StillTrying.
        """
        from rmt_pipeline.compute.inputs.conform import conform  # noqa: PLC0415
        from rmt_pipeline.compute.insert import blocks  # noqa: PLC0415  pyarrow

        query = query_settings(settings)
        if quorum is not None:
            query = replace(query, insert_quorum=str(quorum))
        Quorum.of(query)  # raises for a senseless value, before anything is staged
        token = token or query.insert_deduplication_token
        replica = self._replica()
        definition, created_s = replica.definition, self._clock.now_s()
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
            slowed = throttle_insert(replica, query)
            insert_id = self._insert_id(token, query, replica.settings)
            staged.extend(
                blocks.stage_all(
                    blocks.blocks_of(tables, definition, query),
                    self.store,
                    insert_id=insert_id,
                    run_id=run_id,
                    created_s=int(created_s),
                )
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
        """Insert the rows of a Spark DataFrame as one insert. Its tasks write parts on this host,
        and this process commits them all together. A DataFrame that reads Parquet files and leaves
        them as they are is as fast as `insert_parquet`, if the table has no partitions. Otherwise
        as `insert`.
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
        """Insert the rows of Parquet files as one insert. The tasks of this Spark session read the
        files themselves, so they must be able to open them. It is twice to three times as fast as
        `insert_spark` with a DataFrame whose rows Spark has to compute. Raises IncorrectData for a
        file that is not Parquet.
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
        """For inserts whose rows are staged by tasks of another scheduler: what these tasks need,
        and for how long the insert was slowed down. `commit` then commits what they staged. Raises
        for wrong settings and for too many parts.
        """
        from rmt_pipeline.compute.insert.stage import StagePlan  # noqa: PLC0415  start-up

        Quorum.of(query)
        replica = self._replica()
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

    def _insert_id(self, token: str, query: QuerySettings, settings: TableSettings) -> str:
        deduplicate = query.insert_deduplicate and self._window(settings, token) > 0
        return block_ids.insert_id_of_parts(token, deduplicate=deduplicate)

    def _window(self, settings: TableSettings, token: str) -> int:
        """How many of the latest inserts this one is compared with; 0: it is always new. A table
        that is not replicated compares by rows only if `non_replicated_deduplication_window` is
        set, as in the original, but always by tokens.
        """
        if self._definition.engine.is_private and not token:
            return settings.non_replicated_deduplication_window
        return settings.replicated_deduplication_window

    def pipeline(self, in_flight: int = 4) -> InsertPipeline:
        """Inserts that overlap in time: `with table.pipeline() as inserts:
        inserts.insert(rows)`.
        """
        return InsertPipeline(self.insert, in_flight)

    def commit(
        self,
        staged: Sequence[StagedPart],
        *,
        token: str = "",
        settings: QuerySettings | None = None,
        run_id: str = "",
    ) -> InsertResult:
        """Commit parts that are staged in this table's store, as one insert (design §5). Raises as
        `insert`.
        """
        query = settings or QuerySettings()
        try:
            replica = self._replica()
            window = self._window(replica.settings, token)
            identity = identity_of(staged, token, query, window)
            waker = self.new_waker()
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
            return self._run(insertion, query, replica)
        except Exception as error:  # also of the disk
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
        """Join the blocks of a partition that has more of them than one commit takes: many Spark
        tasks had rows of it, or `max_insert_block_size` is small.
        """
        counts = Counter(part.manifest.partition_id for part in staged)
        if max(counts.values(), default=0) <= BLOCKS_ALWAYS_TOGETHER:
            return staged
        from rmt_pipeline.compute.insert import blocks  # noqa: PLC0415  pyarrow

        together = blocks_together(replica, staged[0], identity, waits)
        return blocks.joined(staged, together, self.store, self.definition, query)

    def _run(
        self, insertion: Insertion, query: QuerySettings, replica: Replica | None = None
    ) -> InsertResult:
        """Run the insertion, with retries, until it is done or `insert_keeper_max_retries` is used
        up. The session stays open after an answer that did not come: all tables of the process use
        it. The first try is made with `replica`, if the caller has just got it.
        """
        definition = self.definition if replica is None else replica.definition
        what = f"INSERT into {definition.full_name}"
        tries = Tries(what, query, self._clock, self._why_read_only)
        while True:
            try:
                living = replica or self._replica()
                if insertion.identity.insert_id and living.has_own_window:
                    forget_outdated_ids(living)
                return insertion.run(living)
            except RmtError as error:
                if isinstance(error, UserError) or not retryable(error):
                    raise
                ended = tries.pause(error, is_pending=insertion.is_pending)
                if ended is not None:
                    raise self._give_up(insertion, ended) from error
                replica = None

    def _give_up(self, insertion: Insertion, error: RmtError) -> RmtError:
        if insertion.is_waiting and not insertion.is_pending:
            return QuorumNotReached(
                f"{self.definition.full_name}: the rows are in the table; whether on as many "
                f"replicas as insert_quorum wants is not known ({error}). {_wait_again(insertion)}"
            )
        if not insertion.is_pending:
            return error
        return OutcomeUnknown(
            f"{self.definition.full_name}: whether the insert landed is not known: ZooKeeper did "
            f"not answer it, nor any later try ({error}). " + _remedy(insertion)
        )

    def inserts(self, insert_ids: Sequence[str] | None = None) -> list[InsertReport]:
        """What became of these inserts, or of all that are remembered, the latest first. An insert
        that is missing from the result is not in the table, or older than the deduplication window.
        """
        return insert_reports(self.replica, insert_ids)

    # --- reading ---

    def parts(self) -> list[ActivePart]:
        """The active parts, sorted by name: those of the replica's parts that no other one
        contains. One that can't be read is left out, and fetched again. Raises ReplicaDropped.
        """
        replica = self.replica
        names = parts_now(replica.keeper, replica.paths, replica.memory.queue).current
        manifests = ((name, manifest_here(replica, name)) for name in names)
        return [ActivePart(name, found) for name, found in manifests if found is not None]

    @contextmanager
    def snapshot(
        self, settings: Mapping[str, Any] | QuerySettings | None = None
    ) -> Iterator[Snapshot]:
        """The active parts, pinned: their files stay while this is open. Every file was compared
        with its hash since it was last written to.

        A part that is broken or missing is fetched again. This waits for it for at most
        `broken_parts_wait_ms`, and then raises Corruption or MissingPart, which name the part.
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
            pinned.close()  # from the round before
            try:
                replica = self._reader()
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
        """While ZooKeeper is away, or lost the table: the parts that were active when the server
        last looked, with a warning. Raises `error` if these are not noted on the disk; MissingPart,
        Corruption.

        The server may reach ZooKeeper when this process does not, and remove parts that it merged.
        It has noted what is active since; so a part that is gone or broken is looked for once more.
        """
        rounds_left = SNAPSHOT_ROUNDS_MAX
        while True:
            seen = self.store.marks.active_seen()
            if seen is None:
                raise error
            known = PartSet(seen.parts)
            given_up = self.store.marks.given_up()
            lacking = [part for part in given_up if not known.containing(part)]
            found = ReadableParts(seen.parts, tuple(lacking)).of_partition(partition)
            pinned.close()  # from the round before
            snapshot, broken = self._whole_of(pinned, found.active, query)
            if broken is None or not rounds_left or self.store.marks.active_seen() == seen:
                break
            rounds_left -= 1
        # Such a part is lost, or was dropped since: without ZooKeeper that is not known.
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
        if broken is not None and not query.skip_broken_parts:
            raise type(broken)(
                f"{self.definition.full_name}: part {broken.part}, which its server saw last, "
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
                pinned.enter_context(self.store.pin([name]))
                one = self._snapshot_of([name], query)
            except Corruption as error:
                broken = broken or error
                continue
            parts += one.parts
            files += one.files
        return Snapshot(tuple(parts), tuple(files)), broken

    def _snapshot_of(self, names: Sequence[PartName], query: QuerySettings) -> Snapshot:
        look = (
            self.store.verify_changed
            if query.check_parts_before_reading
            else self.store.manifest
        )
        parts = tuple(ActivePart(name, look(name)) for name in names)
        files = tuple(path for name in names for path in self.store.files(name))
        return Snapshot(parts, files)

    def require_whole(self, snapshot: Snapshot, failure: str = "") -> None:
        """Check the files once more after they were read. Raises Corruption if one was written to
        meanwhile and is broken: then what was read of it may be wrong.

        `failure` is the error of a reader that could not read a file. The part that it names is
        read completely, or each part if it names no file: what a disk loses by itself changes no
        time of change.
        """
        store = self.store
        names_none = bool(failure) and ".parquet" not in failure
        for part in snapshot.parts:
            is_suspected = names_none or f"/{part.name}/" in failure
            try:
                (store.verify_again if is_suspected else store.verify_changed)(part.name)
            except Corruption as error:
                raise self._suspected(self._reader, error) from error

    def _suspected(self, replica: Callable[[], Replica], error: Corruption) -> Corruption:
        """Have a part that can't be read checked; the error for the reader."""
        try:
            problem = suspect(replica(), error)
        except (RmtError, OSError) as failure:
            told = f"{error}; it could not be given up to be fetched again: {failure}"
            return type(error)(told, part=error.part)
        if problem is None:
            return error
        told = f"{error}; it is fetched again from another replica: try again when it is here"
        return type(error)(told, part=error.part)

    def files(self) -> list[str]:
        """Absolute paths of the active parts' Parquet files, in part and key order.

        They are not pinned: once a merge has replaced them, they go after `old_parts_lifetime`.
        """
        with self.snapshot() as snapshot:
            return list(snapshot.files)

    def dataset(
        self, settings: Mapping[str, Any] | QuerySettings | None = None
    ) -> "pyarrow.dataset.Dataset":
        """The active parts as a pyarrow Dataset with the table's schema. Raises as `snapshot`."""
        with self.snapshot(settings) as snapshot:
            return self._dataset_of(snapshot)

    @contextmanager
    def reading(
        self, settings: Mapping[str, Any] | QuerySettings | None = None
    ) -> Iterator["pyarrow.dataset.Dataset"]:
        """The same, to be read within the block: its files stay as long, and an error by bytes that
        went bad since they were looked at is Corruption, and they are fetched again. So is, at the
        end of the block, what was read of a file that was written to meanwhile.
        """
        import pyarrow as pa  # noqa: PLC0415

        with self.snapshot(settings) as snapshot:
            try:
                yield self._dataset_of(snapshot)
            except (OSError, pa.ArrowException) as error:
                self.require_whole(snapshot, str(error))
                raise
            self.require_whole(snapshot)

    def _dataset_of(self, snapshot: Snapshot) -> "pyarrow.dataset.Dataset":
        from rmt_pipeline.compute.read.parts import dataset_of  # noqa: PLC0415

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
        """SYSTEM SYNC REPLICA: wait until what is in the log now is carried out here. With
        `from_replicas`, only what comes from these.
        """
        sync_replica(self.replica, mode, timeout_s, self.new_waker(), from_replicas)

    def check(self, wanted: Callable[[PartName], bool] | None = None) -> Iterator[CheckedPart]:
        """CHECK TABLE: read every byte of the active parts, or of those that are `wanted`. A broken
        part is given up, and fetched again.
        """
        return checked_parts(self.replica, wanted)

    def optimize(
        self,
        partition: str | None = None,
        *,
        final: bool = False,
        deduplicate: bool = False,
        deduplicate_by: tuple[str, ...] = (),
        cleanup: bool = False,
        settings: Mapping[str, Any] | QuerySettings | None = None,
    ) -> list[PartName]:
        """OPTIMIZE TABLE (spec §6.7). Returns the parts that the assigned merges make.

        Waits for them as `alter_sync` says. Raises CannotAssignOptimize with the reason if nothing
        was assigned and `optimize_throw_if_noop` is set; Unfinished when waiting ended first.
        """
        wanted = OptimizeRequest(partition, final, deduplicate, deduplicate_by, cleanup)
        return optimize(self._replica, wanted, query_settings(settings), self.new_waker)

    def mutate(
        self,
        commands: "str | Sequence[Command]",
        *,
        settings: Mapping[str, Any] | QuerySettings | None = None,
    ) -> str:
        """ALTER TABLE … `DELETE WHERE …` or `UPDATE c = … WHERE …`, or several, separated by commas
        (spec §7). Returns the mutation's id.

        Waits for it as `mutations_sync` says. Raises a UserError, before anything is written, for
        commands that are not allowed; Unfinished when waiting ended first; MutationUnsettled when
        ZooKeeper did not answer often enough: `mutations` then tells whether the mutation exists.
        """
        from rmt_pipeline.replica.mutations import request  # noqa: PLC0415  pyarrow
        from rmt_pipeline.syntax.mutation import parse_commands  # noqa: PLC0415

        query = query_settings(settings)
        parsed = parse_commands(commands) if isinstance(commands, str) else commands
        mutation_id = request.request_mutation(self._replica, parsed, query)
        request.wait_as_asked(
            self._replica, mutation_id, query, query.mutations_sync, self.new_waker()
        )
        return mutation_id

    # --- mutations ---

    def mutations(self) -> "list[MutationReport]":
        """All mutations of the table, and how far they are on this replica."""
        from rmt_pipeline.replica.mutations.request import mutation_reports  # noqa: PLC0415

        return mutation_reports(self.replica)

    def kill_mutation(self, mutation_id: str, *, wait_s: float = 0.0) -> KillReport:
        """KILL MUTATION (spec §7.8). Reports, `wait_s` seconds later, which replicas have stopped
        it.

        Raises UnknownMutation, TableIsReadOnly.
        """
        entry = kill_mutation(self.replica, mutation_id)
        return wait_for_kill(self.replica, entry, timeout_s=wait_s, waker=self.new_waker())


def _told(tables: Iterator[Any], on_rows: Callable[[int, int], None]) -> Iterator[Any]:
    for table in tables:
        on_rows(table.num_rows, table.nbytes)
        yield table


def _told_by(insertion: Insertion) -> str:
    """How to find out what became of an insert. Without an identity it has no record."""
    insert_id = insertion.identity.insert_id
    return f"; `rmt inserts {insert_id}` tells what became of it" if insert_id else ""


def _wait_again(insertion: Insertion) -> str:
    """What to do when it is not known whether a quorum has the rows."""
    if insertion.identity.insert_id:
        return (
            "Insert the same data again (or with the same token): nothing is inserted twice, and "
            f"it is waited for{_told_by(insertion)}"
        )
    return (
        "Do not insert them again: deduplication is switched off for this insert or table, and "
        "they would be there twice. system.replicas.parts_awaiting_quorum says which parts wait"
    )


def _remedy(insertion: Insertion) -> str:
    """What to do when it is not known whether the rows are in the table."""
    if insertion.command_id:
        return "Repeat the ATTACH: nothing is attached twice"
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
