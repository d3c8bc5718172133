"""How far every mutation is on this replica: parts and rows done and left, how fast, how long."""

from collections.abc import Sequence
from dataclasses import dataclass

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.log.entry import MutatePart
from rmt_pipeline.protocol.nodes.formats import MutationEntry
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.mutations.request import MutationReport, mutation_reports
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper.snapshot import queue_snapshot


@dataclass(frozen=True, slots=True)
class MutationProgress:
    """One mutation as this replica sees it. For a finished one everything except `report` is 0.

    `rows_to_do` counts the parts that are on this disk; those that must be fetched first have no
    size yet. `running` is the number of parts that workers are mutating now. `rows_per_s` is the
    average since the mutation was created.
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
        """The time that is left at this pace; None while nothing has been mutated yet."""
        return self.rows_to_do / self.rows_per_s if self.rows_per_s else None

    def words(self) -> str:
        """One line for people, without failures."""
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
        """What the mutation waits for other than its own work, or ""."""
        return "" if self.parts_to_do and not self.report.missing else self.report.waits_for

    def failure_words(self) -> str:
        """Which part fails and why, or ""."""
        failure = self.report.failure
        if failure is None:
            return ""
        return f"{failure.part} failed {failure.tries} times, last because: {failure.reason}"


def mutation_progress(replica: Replica) -> list[MutationProgress]:
    """All mutations: first the unfinished ones by id, then the finished ones, newest first.

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
    """Whether the mutation applied to the part, and the part has been changed by it (or by it and
    later ones).
    """
    version = entry.version_in(part.partition)
    return version is not None and part.block_min < version <= part.data_version


def _rows(replica: Replica, part: PartName) -> int:
    """How many rows the part has; 0 if that can't be read here (any more)."""
    try:
        return replica.store.manifest(part).rows
    except Corruption:
        return 0
