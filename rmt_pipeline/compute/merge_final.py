"""SELECT … FINAL: the rows that a merge of all parts would leave (spec §17), in files of their own.

The same kernel as a merge's, in this process; what a merge still keeps for merges to come is
hidden: tombstones of ReplacingMergeTree, negative rows of CollapsingMergeTree.
"""

from collections.abc import Sequence
from dataclasses import replace

from rmt_pipeline.compute.kernel_unit import run_unit
from rmt_pipeline.compute.merge_job import MergeJob, SourcePart
from rmt_pipeline.compute.merge_plan import shape_of, units_of
from rmt_pipeline.compute.units import Collapsing
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.system import Clock


def final_files(
    sources: Sequence[SourcePart], definition: TableDefinition, directory: str, clock: Clock
) -> list[str]:
    """Write the rows to an empty directory; the absolute paths of the files, in key order.

    `sources` in block order; those that are given together are merged together, also when they
    are of several partitions. No rows: no file. Raises BrokenSource, DiskFull, IncorrectData;
    removing the directory is the caller's in any case.
    """
    if not sources:
        return []
    job = MergeJob("final", tuple(sources), directory, definition, 0, cleanup=True)
    shape = shape_of(job)
    if isinstance(shape.rules, Collapsing):
        shape = replace(shape, rules=replace(shape.rules, final=True))
    results = [run_unit(replace(unit, verify=()), clock) for unit in units_of(job, 0, shape)]
    return [f"{directory}/{result.file.name}" for result in results if result.file is not None]
