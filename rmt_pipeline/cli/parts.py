"""`rmt check` and `rmt detached`: whether parts are as they were written, and what is set aside."""

import sys

from rmt_pipeline.cli.watch import opened_servers, tables_to_tell_of, typed_table
from rmt_pipeline.config import Config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import (
    TABLE_FAILS,
    UserError,
    ZooKeeperUnreachable,
    error_words,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.partitions.detached import DetachedDirectory, detached_directories
from rmt_pipeline.table import Table


def run_check(config: Config, server: str, name: str | None, partition: str, part: str) -> int:
    """Read every byte of the active parts: of all, of one partition (by its id), or of one part.
    Broken parts are fetched again, and printed at once. The exit status is 1 when a part is broken
    or a table can't be checked.

    Raises UnknownTable, ZooKeeperUnreachable; UserError for a part or partition that is not there.
    """
    with ServerContext.open(config, server, purpose="check") as context:
        tables = context.tables() if name is None else [typed_table(context, name)]
        statuses = [_check(table, partition, part) for table in tables]
    if not statuses:
        print("no tables")
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
    except ZooKeeperUnreachable:
        raise  # the other tables can't be checked either
    except TABLE_FAILS as error:
        _progress("")
        print(f"{name}: {error_words(error)}", file=sys.stderr)
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
    """Show progress on a terminal, in place of what was shown before."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{words}", end="", file=sys.stderr, flush=True)


def run_detached(config: Config, server: str | None, name: str | None) -> int:
    """Print each detached directory of one table or of all, on one server or on all of this
    configuration. The exit status is 1 when a table can't be looked at. Raises
    ZooKeeperUnreachable, UnknownTable.
    """
    status = told = 0
    with opened_servers(config, server, "detached") as contexts:
        tables = tables_to_tell_of(contexts, name)
        for context, table in tables:
            title = f"{table.definition.full_name} on {context.server.name}"
            try:
                is_any = table.store.detached_parts.directories()
                found = detached_directories(table.replica) if is_any else []
            except ZooKeeperUnreachable:
                raise  # the other tables can't be looked at either
            except TABLE_FAILS as error:
                status = told = 1
                print(f"{title}: {error_words(error)}")
                continue
            if not found and name is None:
                continue
            told = 1
            count = f"{len(found)} detached" if found else "nothing is detached"
            print(f"{title}: {count}")
            now_s = context.clock.now_s()
            for one in found:
                print(f"  {_line(one, now_s)}")
        if tables and not told:
            print("nothing is detached")
    return status


def _line(one: DetachedDirectory, now_s: float) -> str:
    about = [
        "another's" if one.name is None else one.name.reason or "no reason",
        "" if one.name is None else f"part {one.name.part}",
        "rows unknown" if one.rows is None else f"{one.rows} rows",
        f"{one.size_bytes} bytes",
        _age(now_s - one.modified_s),
    ]
    verdict = "safe to delete" if one.is_safe else "keep it"
    return f"{one.directory}: {', '.join(filter(None, about))}: {verdict}: {one.why}"


def _age(seconds: float) -> str:
    for unit_s, unit in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.0f} {unit} old"
    return f"{max(0.0, seconds):.0f} s old"
