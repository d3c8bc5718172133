"""`rmt mutations` and `rmt mutations plan`: how far mutations are, and what one would cost.

What a call needs beyond this is imported when it is made, for start-up time.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from rmt_pipeline.cli.options import config_of, server_option

if TYPE_CHECKING:
    from rmt_pipeline.context import ServerContext
    from rmt_pipeline.replica.mutations.plan import PartitionPlan
    from rmt_pipeline.replica.mutations.progress import MutationProgress
    from rmt_pipeline.table import Table

WATCH_EVERY_S = 2.0
PARTITIONS_SHOWN_MAX = 50
FINISHED_SHOWN_MAX = 10


class _ListByDefault(click.Group):
    """`rmt mutations t` is `rmt mutations list t`; a table called `plan` needs the long form."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        asks_for_help = bool(args) and args[0] in ctx.help_option_names
        if not asks_for_help and (not args or args[0] not in self.commands):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_ListByDefault)
def mutations() -> None:
    """How far mutations are (rmt mutations [TABLE]), and what one would do."""


@mutations.command("list")
@click.argument("table", metavar="[[DATABASE.]TABLE]", required=False)
@server_option(looks=True)
@click.option("--watch", is_flag=True, help="Again and again, until none is unfinished.")
@click.pass_context
def list_mutations(
    context: click.Context, table: str | None, server: str | None, watch: bool
) -> None:
    """Every mutation, unfinished ones first: parts, pace, time left, what fails and why."""
    from rmt_pipeline.cli.watch import CLEAR, opened_servers  # noqa: PLC0415  slow
    from rmt_pipeline.system import SystemClock  # noqa: PLC0415

    clock = SystemClock()
    with opened_servers(config_of(context), server, "mutations") as contexts:
        while True:
            lines, unfinished = _look(contexts, table)
            shown = "\n".join(lines)
            print(f"{CLEAR}{shown}" if watch and _is_terminal() else shown, flush=True)
            if not (watch and unfinished):
                return
            clock.sleep_s(WATCH_EVERY_S)


@mutations.command("plan")
@click.argument("table", metavar="[DATABASE.]TABLE")
@click.argument("commands")
@server_option(looks=True)
@click.pass_context
def plan(context: click.Context, table: str, commands: str, server: str | None) -> None:
    """What a mutation would do to the parts that are there now. Nothing is done.

    COMMANDS: 'DELETE WHERE …', 'UPDATE c = … WHERE …'.
    """
    from rmt_pipeline.cli.watch import opened_servers, tables_of  # noqa: PLC0415  slow
    from rmt_pipeline.protocol.settings.query import QuerySettings  # noqa: PLC0415
    from rmt_pipeline.replica.mutations.plan import plan_mutation  # noqa: PLC0415
    from rmt_pipeline.sql.run.alter import commands_for  # noqa: PLC0415
    from rmt_pipeline.syntax.mutation import parse_commands  # noqa: PLC0415

    with opened_servers(config_of(context), server, "mutations") as contexts:
        opened, found = tables_of(contexts, table)[0]
        parsed = commands_for(parse_commands(commands), found.definition)
        plans = plan_mutation(found.replica, parsed, QuerySettings())
        for line in plan_lines(_title(opened, found), plans):
            print(line)


def _is_terminal() -> bool:
    import sys  # noqa: PLC0415

    return sys.stdout.isatty()


def _title(opened: "ServerContext", table: "Table") -> str:
    return f"{table.definition.full_name} on {opened.server.name}"


def _look(contexts: "Sequence[ServerContext]", table: str | None) -> tuple[list[str], bool]:
    """What to show, and whether any mutation is unfinished."""
    from rmt_pipeline.cli.watch import tables_of  # noqa: PLC0415  slow
    from rmt_pipeline.protocol.errors import RmtError, UnknownTable  # noqa: PLC0415
    from rmt_pipeline.replica.mutations.progress import mutation_progress  # noqa: PLC0415

    lines: list[str] = []
    unfinished = False
    for opened, found in tables_of(contexts, table):
        try:
            progress = mutation_progress(found.replica)
        except UnknownTable:
            raise
        except RmtError as error:
            lines.append(f"{_title(opened, found)}: {error}")
            continue
        lines += progress_lines(_title(opened, found), progress)
        unfinished |= any(not one.is_done for one in progress)
    return lines or ["no tables"], unfinished


def progress_lines(title: str, progress: "list[MutationProgress]") -> Iterator[str]:
    """The mutations of one replica."""
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


def plan_lines(title: str, plans: "list[PartitionPlan]") -> Iterator[str]:
    """The partitions with most to rewrite first, and the sum."""
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
