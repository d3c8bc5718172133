"""The dry run of a mutation: what it would do to the parts that are here now. Nothing is
written.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rmt_pipeline.compute.jobs.mutate import rows_touched
from rmt_pipeline.compute.merge.job import SourcePart
from rmt_pipeline.compute.mutate.job import MutateJob
from rmt_pipeline.protocol.errors import MissingPart
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.syntax.mutation import Command, affected_partitions, commands_text
from rmt_pipeline.translate.mutation_rules import check_commands
from rmt_pipeline.zookeeper.snapshot import active_parts


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """What a mutation would do in one partition. `rows_touched` are rows that some command is for;
    `bytes_to_rewrite` is the size of the parts that have such rows. The other parts get a new name
    and no new bytes.
    """

    partition_id: str
    parts: int
    rows: int
    parts_to_rewrite: int
    rows_touched: int
    bytes_to_rewrite: int


def plan_mutation(
    replica: Replica, commands: Sequence[Command], query: QuerySettings
) -> list[PartitionPlan]:
    """What a mutation would do, one plan for each partition, without doing it.

    Each condition is evaluated by itself on the rows as they are now: unfinished mutations, and
    earlier commands of the same mutation, may change what it finds. Raises UserError for commands
    that would be refused.
    """
    check_commands(
        commands,
        replica.definition,
        allow_nondeterministic=query.allow_nondeterministic_mutations,
    )
    found: dict[str, PartitionPlan] = {}
    for plan in _parts(replica, commands):
        known = found.get(plan.partition_id)
        found[plan.partition_id] = plan if known is None else _sum(known, plan)
    return list(found.values())


def _sum(one: PartitionPlan, other: PartitionPlan) -> PartitionPlan:
    return PartitionPlan(
        one.partition_id,
        one.parts + other.parts,
        one.rows + other.rows,
        one.parts_to_rewrite + other.parts_to_rewrite,
        one.rows_touched + other.rows_touched,
        one.bytes_to_rewrite + other.bytes_to_rewrite,
    )


def _parts(replica: Replica, commands: Sequence[Command]) -> Iterator[PartitionPlan]:
    """One plan for each part. A part that is merged away meanwhile is left out."""
    store, partitions = replica.store, affected_partitions(commands)
    for part in PartSet(active_parts(replica.keeper, replica.paths)):
        if partitions is not None and part.partition not in partitions:
            continue
        try:
            with store.pin([part]):
                manifest = store.manifest(part)
                job = MutateJob(
                    result=str(part),
                    source=SourcePart(str(part), store.directory(part), manifest),
                    staging="",
                    definition=replica.definition,
                    commands=(commands_text(tuple(commands)),),
                    mutations=(),
                    create_time_s=0,
                )
                touched = rows_touched(job)
        except MissingPart:
            continue
        rewritten = manifest.bytes_on_disk if touched else 0
        yield PartitionPlan(
            part.partition, 1, manifest.rows, int(touched > 0), touched, rewritten
        )
