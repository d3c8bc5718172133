"""The Python interface of one table on one server: insert, read, optimize, mutate, replicate.

with ServerContext.open("rmt.toml", "r1") as server:
    flights = server.table("flights")
    flights.insert(arrow_table, token="flights/2013-01-01")
    flights.dataset().to_table()

Imports inside methods are for start-up time: pyarrow alone takes longer than all the rest.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from rmt_pipeline.exchange.peers import Peers
from rmt_pipeline.partitions import Partitions
from rmt_pipeline.protocol.inserts import ids as block_ids
from rmt_pipeline.protocol.inserts.quorum import Quorum
from rmt_pipeline.protocol.parts.name import PartName
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
    Slowed,
    identity_of,
)
from rmt_pipeline.replica.insert.throttle import throttle_insert
from rmt_pipeline.replica.inserting import run_until_done
from rmt_pipeline.replica.mutations.killed import KillReport, wait_for_kill
from rmt_pipeline.replica.mutations.mutations import kill_mutation
from rmt_pipeline.replica.reading import ActivePart, Snapshot, TableReader
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.sync import SyncMode, sync_replica
from rmt_pipeline.replica.tries import Tries, nobody_knows
from rmt_pipeline.replica.upkeep.check import manifest_here
from rmt_pipeline.replica.upkeep.scrub import CheckedPart, checked_parts
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

BLOCKS_ALWAYS_TOGETHER = 100
"""Of one partition: so many fit into one commit, however long their names are."""


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
        self._current = current or (lambda: definition)
        self.store = store
        self.frozen_parts = frozen
        self._peers = peers
        self._replica = replica
        self._reader = TableReader(
            store,
            replica=reader or replica,
            definition=self._current,
            clock=clock,
        )
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
        return self._current()

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

        query = _with_quorum(query_settings(settings), quorum)
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
        slowed = throttle_insert(replica, query)
        insert_id = self._insert_id(token, query, replica.settings)
        staged: list[StagedPart] = []
        try:
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
        query = _with_quorum(query_settings(settings), quorum)
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
        name = (self.definition if replica is None else replica.definition).full_name
        tries = Tries(f"INSERT into {name}", query, self._clock, self._why_read_only)
        return run_until_done(insertion, name, tries, self._replica, replica)

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

    def snapshot(
        self, settings: Mapping[str, Any] | QuerySettings | None = None
    ) -> AbstractContextManager[Snapshot]:
        """The active parts, pinned: their files stay while this is open. Waits for a part that is
        broken or gone, and raises, as `TableReader.snapshot`.
        """
        return self._reader.snapshot(query_settings(settings))

    def _new_peers(self) -> AbstractContextManager[Peers]:
        return self._peers()

    @contextmanager
    def _pinned(
        self, partition: str | None, query: QuerySettings
    ) -> Iterator[Sequence[tuple[PartName, Manifest]]]:
        with self._reader.snapshot(query, partition) as snapshot:
            yield [(part.name, part.manifest) for part in snapshot.parts]

    def require_whole(self, snapshot: Snapshot, failure: str = "") -> None:
        """See `TableReader.require_whole`."""
        self._reader.require_whole(snapshot, failure)

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


def _with_quorum(query: QuerySettings, quorum: int | Literal["auto"] | None) -> QuerySettings:
    return query if quorum is None else replace(query, insert_quorum=str(quorum))
