"""Mutations on the driver's side: takes jobs and returns outcomes, computed in this process or by
Spark.

Each file of a part is a unit. A unit first finds out whether any command applies to a row of its
file; if none does, it writes nothing. If no unit of a part wrote anything, the part is not
rewritten. If some did and others did not, those others are run again, to write their rows as they
are.

What only some calls need is imported when they are made, for start-up time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from rmt_pipeline.compute.jobs.merge import RunUnits, UnitResults, are_small, results_of_jobs
from rmt_pipeline.compute.jobs.spark import SparkSessions, run_jobs
from rmt_pipeline.compute.jobs.task import try_units
from rmt_pipeline.compute.merge.job import MergeJob
from rmt_pipeline.compute.merge.plan import shape_of, tasks_of, unit_source
from rmt_pipeline.compute.merge.result import (
    MODULUS,
    added_up,
    column_sums,
    error_of,
    first_failure,
)
from rmt_pipeline.compute.mutate.job import (
    MutateDone,
    MutateFailure,
    MutateJob,
    MutateOutcome,
    Untouched,
    as_result,
)
from rmt_pipeline.compute.mutate.units import MutateUnit, MutateUnitDone
from rmt_pipeline.compute.progress import forget_progress
from rmt_pipeline.compute.rows.keys import KeyColumns
from rmt_pipeline.compute.units import (
    Plain,
    Shape,
    Unit,
    UnitResult,
    UnitSource,
    shape_without,
)
from rmt_pipeline.protocol.alter.history import stored_as
from rmt_pipeline.protocol.errors import Corruption, UserError
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.store import layout
from rmt_pipeline.syntax.mutation import (
    AlterColumn,
    Command,
    DeleteRows,
    UpdateColumns,
    in_partition,
    parse_commands,
)
from rmt_pipeline.system import Clock, IdSource, SystemClock

LOCAL_JOBS_MAX = 64
"""How many small parts are handled together in this process."""


class LocalMutator:
    """Runs mutations in this process, one part after the other."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def mutate(self, jobs: Sequence[MutateJob]) -> Iterator[MutateOutcome]:
        for start in range(0, len(jobs), LOCAL_JOBS_MAX):
            yield from _outcomes(jobs[start : start + LOCAL_JOBS_MAX], self._run)

    def _run(self, parts: Sequence[Sequence[Unit]]) -> UnitResults:
        yield from try_units([unit for units in parts for unit in units], self._clock)


class SparkMutator:
    """Runs mutations as Spark jobs of units; those of small parts in this process, as
    with merges.
    """

    def __init__(self, sessions: SparkSessions, ids: IdSource) -> None:
        self._sessions = sessions
        self._ids = ids

    def mutate(self, jobs: Sequence[MutateJob]) -> Iterator[MutateOutcome]:
        if are_small(job.source for job in jobs):
            yield from LocalMutator(SystemClock()).mutate(jobs)
        else:
            yield from _outcomes(jobs, self._run)

    def _run(self, parts: Sequence[Sequence[Unit]]) -> UnitResults:
        return run_jobs(self._sessions, tasks_of(parts), tag=f"mutate-{self._ids.new_id()}")


def _outcomes(jobs: Sequence[MutateJob], run: RunUnits) -> Iterator[MutateOutcome]:
    """Plan all jobs, run their units, and yield each job's outcome as soon as it is known."""
    planned: dict[int, list[MutateUnit]] = {}
    for number, job in enumerate(jobs):
        units = _plan(job, number)
        if units:
            planned[number] = units
        else:
            yield Untouched(job)
    mixed: dict[int, list[UnitResult]] = {}
    for number, results in results_of_jobs(planned, run):
        outcome = _outcome(jobs[number], planned[number][0].written, results)
        if outcome is None:
            mixed[number] = results
        else:
            yield outcome
    again = {number: _to_rewrite(planned[number], results) for number, results in mixed.items()}
    for number, results in results_of_jobs(again, run):
        whole = [*filter(_was_touched, mixed[number]), *results]
        outcome = _outcome(jobs[number], planned[number][0].written, whole)
        assert outcome is not None, "every unit was told to write its rows"
        yield outcome


def try_first_rows(job: MutateJob) -> None:
    """Try a mutation on the first rows of its source, in this process. Nothing is written.

    Raises UserError for a value that can't be computed, BrokenSource.
    """
    from rmt_pipeline.compute.mutate.unit import try_rows  # noqa: PLC0415  DuckDB

    for unit in _plan(job, 0)[:1]:
        try_rows(unit)


def rows_touched(job: MutateJob) -> int:
    """The number of rows of the source to which some command applies, each row as it is now.
    Nothing is written.
    """
    from rmt_pipeline.compute.mutate.unit import count_rows  # noqa: PLC0415  DuckDB

    return sum(count_rows(unit) for unit in _plan(job, 0))


def _plan(job: MutateJob, number: int) -> list[MutateUnit]:
    if not job.commands:
        return []
    source = unit_source(job.source, job.definition)
    shape, codec = _shape(job.definition), job.source.manifest.ttl.codec
    if codec != shape.codec:
        shape = replace(shape, codec=codec)
    lacking = _lacking(job, shape)
    rewrite = _has_old_columns(job, shape, lacking)
    if not rewrite and _is_for_none(job, source, shape):
        return []
    return [
        MutateUnit(
            merge=number,
            ordinal=ordinal,
            shape=shape,
            sources=(replace(source, files=(file,)),),
            output=f"{job.staging}/{layout.data_file(ordinal)}",
            verify=((source.part, file),),
            commands=job.commands,
            partition=job.source.manifest.partition_id,
            rewrite=rewrite,
            lacking=lacking,
        )
        for ordinal, file in enumerate(source.files)
    ]


@lru_cache(maxsize=100)
def _shape(definition: TableDefinition) -> Shape:
    """The shape of what a mutation writes: that of a merge of the part alone, but without the
    engine's rules and TTL, which would remove rows.
    """
    return replace(
        shape_of(MergeJob("", (), "", definition, 0)), rules=Plain(), expire_s=0, codec=""
    )


def _is_for_none(job: MutateJob, source: UnitSource, shape: Shape) -> bool:
    """Whether the manifest alone shows that no command applies to any row of the part."""
    from rmt_pipeline.compute.mutate.commands import commands_of  # noqa: PLC0415  DuckDB
    from rmt_pipeline.compute.mutate.pruning import manifest_bounds  # noqa: PLC0415

    manifest = job.source.manifest
    try:
        commands = commands_of(job.commands, shape.columns, manifest.partition_id)
    except UserError:  # the unit raises it too, as the failure of this one part
        return False
    return commands.is_for_none(manifest_bounds(source, shape, manifest.key_bounds))


def _commands_for(job: MutateJob) -> list[Command]:
    partition = job.source.manifest.partition_id
    commands = (command for text in job.commands for command in parse_commands(text))
    return [command for command in commands if in_partition(command, partition)]


def _lacking(job: MutateJob, shape: Shape) -> frozenset[str]:
    """The columns of which the result has no values, so that they are read as their default at the
    time of reading. These are the columns that the source lacks, and those that CLEAR COLUMN
    clears. But an UPDATE writes the columns that it sets or that follow from these, and a DELETE
    writes every row with all columns.
    """
    from rmt_pipeline.translate.mutation_rules import affected  # noqa: PLC0415  start-up: DuckDB

    manifest, columns = job.source.manifest, shape.columns
    everything = frozenset(column.name for column in columns)
    found = stored_as(job.definition, manifest.columns, manifest.metadata_version)
    there = {one.column for one in found}
    for command in _commands_for(job):
        match command:
            case DeleteRows():
                there = set(everything)
            case UpdateColumns():
                for one in command.assignments:
                    there |= {one.column, *(c.name for c in affected(one.column, columns))}
            case AlterColumn() if command.clears:
                there.discard(command.column)
            case AlterColumn():
                pass
    return everything - there - _always_written(job.definition, shape)


def _always_written(definition: TableDefinition, shape: Shape) -> frozenset[str]:
    """The columns that every file must have: those for the keys, the engine and TTL;
    at least one.
    """
    if shape.ttl:
        return frozenset(column.name for column in shape.columns)
    keys = KeyColumns((*definition.partition_by, *definition.order_by), shape.columns)
    names = (*keys.inputs, *definition.engine.columns, *definition.engine.columns_to_sum)
    return frozenset(names or (shape.columns[0].name,))


def _has_old_columns(job: MutateJob, shape: Shape, lacking: frozenset[str]) -> bool:
    """Whether an ALTER is among the commands and the part does not have its columns yet (spec
    §8.3).
    """
    manifest = job.source.manifest
    if not any(isinstance(command, AlterColumn) for command in _commands_for(job)):
        return False
    found = stored_as(job.definition, manifest.columns, manifest.metadata_version)
    wanted = shape_without(shape, lacking).columns
    return len(found) != len(manifest.columns) or [
        (one.column, one.name, one.type) for one in found
    ] != [(column.name, column.name, column.type) for column in wanted]


def _as_merge(job: MutateJob) -> MergeJob:
    """The merge of the part alone, as which the results of a mutation's units are added up."""
    return MergeJob(job.result, (job.source,), job.staging, job.definition, job.create_time_s)


def _was_touched(result: UnitResult) -> bool:
    return isinstance(result, MutateUnitDone) and result.touched


def _to_rewrite(units: Sequence[MutateUnit], results: Sequence[UnitResult]) -> list[MutateUnit]:
    touched = {result.ordinal for result in results if _was_touched(result)}
    return [replace(unit, rewrite=True) for unit in units if unit.ordinal not in touched]


def _outcome(
    job: MutateJob, shape: Shape, results: Sequence[UnitResult]
) -> MutateOutcome | None:
    """The outcome of a job from its units' results; None if some units wrote rows and others did
    not.
    """
    failed = first_failure(results)
    if failed is not None:
        return MutateFailure(job, error_of(failed), failed.part)
    done = sorted(
        (result for result in results if isinstance(result, MutateUnitDone)),
        key=lambda unit: unit.ordinal,
    )
    touched = [unit.touched for unit in done]
    if not any(touched):
        return Untouched(job)
    if not all(touched):
        return None
    made = added_up(_as_merge(job), shape, done)
    problem = _not_conserved(job, done, made.rows_in)
    if problem is not None:
        message = f"mutating {job.source.name} into {job.result}: {problem}"
        return MutateFailure(job, Corruption(f"{message}. Nothing was published"))
    forget_progress(job.staging)
    return MutateDone(job, as_result(job, made.manifest))


def _not_conserved(job: MutateJob, units: Sequence[MutateUnitDone], rows_in: int) -> str | None:
    """What the mutation lost or changed that should have stayed, in words; None if nothing.

    The rows that stayed and those that were deleted must be the rows of the source, and in every
    column that no command changes their values must be the source's too. Columns that the source
    has with another type, or not at all, have no sum to compare with.
    """
    source = job.source.manifest
    if rows_in != source.rows:
        return f"{rows_in} rows were read, the source has {source.rows}"
    rows = sum(unit.rows + unit.rows_deleted for unit in units)
    if rows != source.rows:
        return f"{rows} rows were kept or deleted, the source has {source.rows}"
    for name, expected in column_sums(job.definition, source).items():
        if any(name in unit.changed for unit in units):
            continue
        found = sum(
            value
            for unit in units
            for hashes in (unit.column_hashes, unit.deleted_hashes)
            for column, value in hashes
            if column == name
        )
        if found % MODULUS != expected:
            return f"column {name}, which no command changes, is not what it was"
    return None
