"""How far every mutation is on this replica: parts and rows done and left, how fast, how long; and
how KILL MUTATION takes hold of it everywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rmt_pipeline.protocol.errors import MissingPart
from rmt_pipeline.protocol.log.entry import LogEntry, MutatePart
from rmt_pipeline.protocol.nodes.formats import MutationEntry
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.mutations.request import MutationReport, mutation_reports
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.system import Waker
from rmt_pipeline.zookeeper.known import KnownQueue
from rmt_pipeline.zookeeper.snapshot import living_replicas, queue_snapshot, queued_entries


@dataclass(frozen=True, slots=True)
class MutationProgress:
    """One mutation as this replica sees it. Of a finished one everything but `report` is 0.

    `rows_to_do` counts the parts that are on this disk; those to be fetched first have no size
    yet. `running` are parts that somebody mutates just now. `rows_per_s` is the average since
    the mutation was created.
    """

    report: MutationReport
    parts_done: int = 0
    rows_done: int = 0
    rows_to_do: int = 0
    running: int = 0
    rows_per_s: float = 0.0

    @property
    def is_done(self) -> bool:
        return self.report.status.is_done

    @property
    def parts_to_do(self) -> int:
        return len(self.report.status.parts_to_do)

    @property
    def seconds_left(self) -> float | None:
        """At the present pace; None while nothing was mutated yet."""
        return self.rows_to_do / self.rows_per_s if self.rows_per_s else None

    def words(self) -> str:
        """One line for people, without the failure."""
        if self.is_done:
            return "finished"
        parts = self.parts_done + self.parts_to_do
        rows = self.rows_done + self.rows_to_do
        left = "" if self.seconds_left is None else f", about {self.seconds_left:.0f} s left"
        return (
            f"{self.parts_done} of {parts} parts done, {self.parts_to_do} to do "
            f"({self.running} running), {self.rows_done} of {rows} rows, "
            f"{self.rows_per_s:.0f} rows/s{left}"
        )

    def waits_words(self) -> str:
        """What it waits for that is not its own work, or ""."""
        return "" if self.parts_to_do and not self.report.missing else self.report.waits_for

    def failure_words(self) -> str:
        """What fails, or ""."""
        failure = self.report.failure
        if failure is None:
            return ""
        return f"{failure.part} failed {failure.tries} times, last because: {failure.reason}"


def mutation_progress(replica: Replica) -> list[MutationProgress]:
    """Every mutation there is: unfinished ones first, those by id; then the newest finished.

    Raises what `mutation_reports` raises.
    """
    reports = mutation_reports(replica)
    unfinished = [one for one in reports if not one.status.is_done]
    finished = [MutationProgress(one) for one in reversed(reports) if one.status.is_done]
    if not unfinished:
        return finished
    snapshot = queue_snapshot(replica.keeper, replica.paths, replica.memory.queue)
    active = list(snapshot.parts.current)
    running = [
        entry.source
        for node, entry in snapshot.entries.items()
        if isinstance(entry, MutatePart) and node in snapshot.claims
    ]
    rows: dict[PartName, int] = {}
    for part in {*active, *(part for one in unfinished for part in one.status.parts_to_do)}:
        rows[part] = _rows(replica, part)
    now_s = replica.clock.now_s()
    return [*(_progress(one, active, running, rows, now_s) for one in unfinished), *finished]


def _progress(
    report: MutationReport,
    active: Sequence[PartName],
    running: Sequence[PartName],
    rows: dict[PartName, int],
    now_s: float,
) -> MutationProgress:
    entry, todo = report.status.entry, report.status.parts_to_do
    done = [part for part in active if _has_seen(part, entry)]
    rows_done = sum(rows[part] for part in done)
    return MutationProgress(
        report,
        parts_done=len(done),
        rows_done=rows_done,
        rows_to_do=sum(rows[part] for part in todo),
        running=len(set(todo) & set(running)),
        rows_per_s=rows_done / max(now_s - entry.create_time, 1.0),
    )


def _has_seen(part: PartName, entry: MutationEntry) -> bool:
    """It was there before the mutation, and is changed by it, or by a later one as well."""
    version = entry.version_in(part.partition)
    return version is not None and part.block_min < version <= part.data_version


def _rows(replica: Replica, part: PartName) -> int:
    try:
        return replica.store.manifest(part).rows
    except MissingPart:
        return 0


LOOK_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class KillReport:
    """After how many seconds each active replica had no entry for the mutation any more; which have
    one still; and which are away, and learn of it when they come back.
    """

    after_s: dict[str, float] = field(default_factory=dict)
    not_yet: tuple[str, ...] = ()
    away: tuple[str, ...] = ()

    def words(self) -> str:
        words = [f"{name} after {seconds:.1f} s" for name, seconds in self.after_s.items()]
        words += [f"{name} not yet" for name in self.not_yet]
        words += [f"{name} when it is active again" for name in self.away]
        return ", ".join(words)


def wait_for_kill(
    replica: Replica, entry: MutationEntry, *, timeout_s: float, waker: Waker
) -> KillReport:
    """Look at the queue of every active replica until none has an entry for the mutation that
    `entry` was, at most `timeout_s`. Its entries are not taken away: a worker that was at one
    stops, and whoever takes it next carries out what is left to do for the part, or gives it its
    new name (spec §7.8, §16.8 U5).
    """
    clock, start_s = replica.clock, replica.clock.monotonic_s()
    living = living_replicas(replica.keeper, replica.table)
    away = tuple(name for name, active in sorted(living.items()) if not active)
    known = {name: KnownQueue() for name, active in sorted(living.items()) if active}
    after_s: dict[str, float] = {}
    while True:
        for name in [name for name in known if name not in after_s]:
            queue = queued_entries(
                replica.keeper, replica.table.replica(name), known[name]
            ).values()
            if not any(_is_for(one, entry) for one in queue):
                after_s[name] = clock.monotonic_s() - start_s
        not_yet = tuple(name for name in known if name not in after_s)
        if not not_yet or clock.monotonic_s() - start_s >= timeout_s:
            return KillReport(after_s, not_yet, away)
        waker.wait_s(LOOK_EVERY_S)


def _is_for(queued: LogEntry, mutation: MutationEntry) -> bool:
    if not isinstance(queued, MutatePart):
        return False
    number = mutation.version_in(queued.source.partition)
    return number is not None and queued.source.data_version < number <= (
        queued.result.data_version
    )
