"""`rmt mutations` and `rmt mutations plan`: shows how far mutations are, and what one
would cost.
"""

import sys
from collections.abc import Iterator, Sequence

from rmt_pipeline.cli.watch import CLEAR, opened_servers, tables_of
from rmt_pipeline.config import Config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import (
    TABLE_FAILS,
    UnknownTable,
    ZooKeeperUnreachable,
    error_words,
)
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.mutations.plan import PartitionPlan, plan_mutation
from rmt_pipeline.replica.mutations.progress import MutationProgress, mutation_progress
from rmt_pipeline.sql.run.alter import commands_for
from rmt_pipeline.syntax.mutation import parse_commands
from rmt_pipeline.system import SystemClock
from rmt_pipeline.table import Table

WATCH_EVERY_S = 2.0
PARTITIONS_SHOWN_MAX = 50
FINISHED_SHOWN_MAX = 10


def run_mutations(config: Config, server: str | None, table: str | None, *, watch: bool) -> int:
    """Print every mutation; with `watch`, again every two seconds until all are finished.

    Raises ZooKeeperUnreachable, UnknownTable, UserError for an unknown server.
    """
    clock = SystemClock()
    with opened_servers(config, server, "mutations") as contexts:
        while True:
            lines, unfinished = _look(contexts, table)
            shown = "\n".join(lines)
            print(f"{CLEAR}{shown}" if watch and sys.stdout.isatty() else shown, flush=True)
            if not (watch and unfinished):
                return 0
            clock.sleep_s(WATCH_EVERY_S)


def run_plan(config: Config, server: str | None, table: str, commands: str) -> int:
    """Print what the commands would do to the parts that the table has now.

    Raises what `run_mutations` raises, and UserError for commands that the table can't carry out.
    """
    with opened_servers(config, server, "mutations") as contexts:
        opened, found = tables_of(contexts, table)[0]
        parsed = commands_for(parse_commands(commands), found.definition)
        plans = plan_mutation(found.replica, parsed, QuerySettings())
        for line in plan_lines(_title(opened, found), plans):
            print(line)
    return 0


def _title(opened: ServerContext, table: Table) -> str:
    return f"{table.definition.full_name} on {opened.server.name}"


def _look(contexts: Sequence[ServerContext], table: str | None) -> tuple[list[str], bool]:
    """The lines to show, and whether any mutation is unfinished."""
    lines: list[str] = []
    unfinished = False
    for opened, found in tables_of(contexts, table):
        try:
            progress = mutation_progress(found.replica)
        except (UnknownTable, ZooKeeperUnreachable):
            raise
        except TABLE_FAILS as error:
            lines.append(f"{_title(opened, found)}: {error_words(error)}")
            continue
        lines += progress_lines(_title(opened, found), progress)
        unfinished |= any(not one.is_done for one in progress)
    return lines or ["no tables"], unfinished


def progress_lines(title: str, progress: list[MutationProgress]) -> Iterator[str]:
    """The lines about the mutations of one replica."""
    unfinished = [one for one in progress if not one.is_done]
    finished = [one for one in progress if one.is_done]
    yield f"{title}: {len(unfinished)} unfinished, {len(finished)} finished"
    for one in [*unfinished, *finished[:FINISHED_SHOWN_MAX]]:
        status = one.report.status
        yield f"  {status.mutation_id} {status.entry.commands}"
        yield f"    {one.words()}"
        if failure := one.failure_words():
            yield f"    {failure}"
        if waits := one.waits_words():
            yield f"    waits: {waits}"
    if len(finished) > FINISHED_SHOWN_MAX:
        yield f"  and {len(finished) - FINISHED_SHOWN_MAX} older finished ones"


def plan_lines(title: str, plans: list[PartitionPlan]) -> Iterator[str]:
    """The sum, and then the partitions, those with the most bytes to rewrite first."""
    plans = sorted(plans, key=lambda plan: (-plan.bytes_to_rewrite, plan.partition_id))
    yield (
        f"{title}: {sum(plan.rows_touched for plan in plans)} of "
        f"{sum(plan.rows for plan in plans)} rows match; "
        f"{sum(plan.parts_to_rewrite for plan in plans)} of "
        f"{sum(plan.parts for plan in plans)} parts would be rewritten, "
        f"{sum(plan.bytes_to_rewrite for plan in plans)} bytes; the others only renamed"
    )
    for plan in plans[:PARTITIONS_SHOWN_MAX]:
        yield (
            f"  partition {plan.partition_id}: {plan.rows_touched} of {plan.rows} rows match; "
            f"{plan.parts_to_rewrite} of {plan.parts} parts, {plan.bytes_to_rewrite} bytes"
        )
    if len(plans) > PARTITIONS_SHOWN_MAX:
        yield f"  and {len(plans) - PARTITIONS_SHOWN_MAX} more partitions"
