"""`rmt check`: CHECK TABLE of one table or all, with an exit status."""

import sys

from rmt_pipeline.cli.watch import full_name
from rmt_pipeline.config import Config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import RmtError, UserError
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.table import Table


def run_check(config: Config, server: str, name: str | None, partition: str, part: str) -> int:
    """Read every byte of the active parts, of one partition (by its id) or of one part if that is
    asked for; what is broken is fetched again, and told at once. 1 when something is broken, or a
    table can't be checked.

    Raises UnknownTable, UserError for a part or partition that is not there.
    """
    with ServerContext.open(config, server, purpose="check") as context:
        tables = (
            context.tables() if name is None else [context.table(*reversed(full_name(name)))]
        )
        statuses = [_check(table, partition, part) for table in tables]
    return max(statuses, default=0)


def _check(table: Table, partition: str, part: str) -> int:
    name = table.definition.full_name

    def is_wanted(one: PartName) -> bool:
        return (not partition or one.partition == partition) and part in ("", str(one))

    try:
        total = sum(is_wanted(one.name) for one in table.parts())
        read = broken = size_bytes = 0
        for found in table.check(is_wanted):
            read += 1
            size_bytes += found.size_bytes
            if found.problem:
                broken += 1
                _progress("")
                print(f"{name}: {found.part} is broken: {found.problem}", flush=True)
            _progress(f"{name}: {read} of {total} parts, {size_bytes} bytes")
    except RmtError as error:
        _progress("")
        print(f"{name}: Code: {error.code}. {error}", file=sys.stderr)
        return 1
    _progress("")
    if not read and (partition or part):
        raise UserError(
            f"{name} has no active part {part or f'in a partition {partition}'}: system.parts "
            "lists them, with the ids of their partitions"
        )
    print(f"{name}: {read} parts, {size_bytes} bytes read; {broken or 'none'} broken")
    return int(broken > 0)


def _progress(words: str) -> None:
    """In place of what stood there, for whoever looks at a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{words}", end="", file=sys.stderr, flush=True)
