"""`rmt merges`: shows what is being merged and mutated now, and how far it is."""

import sys
import time
from collections.abc import Iterable, Iterator

from rmt_pipeline.cli.watch import CLEAR, opened_servers, tables_of
from rmt_pipeline.config import Config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import TABLE_FAILS, ZooKeeperUnreachable, error_words
from rmt_pipeline.replica.work.running import RunningMerge, running_merges
from rmt_pipeline.table import Table

WATCH_EVERY_S = 1.0
_UNITS = ("B", "kB", "MB", "GB", "TB")


def run_merges(config: Config, server: str | None, table: str | None, *, watch: bool) -> int:
    """Print what runs now on one server or on all; with `watch`, again every second until Ctrl-C.

    The exit status is 1 when a table can't be looked at. Raises ZooKeeperUnreachable, UnknownTable,
    UserError for an unknown server.
    """
    with opened_servers(config, server, "merges") as contexts:
        while True:
            found = tables_of(contexts, table)
            failed: list[str] = []
            lines = [
                line
                for context in contexts
                for line in _server_lines(
                    context, [one for on, one in found if on is context], failed
                )
            ]
            if watch and sys.stdout.isatty():
                print(CLEAR, end="")
            print("\n".join(lines), flush=True)
            if not watch:
                return 1 if failed else 0
            try:
                time.sleep(WATCH_EVERY_S)
            except KeyboardInterrupt:
                return 0


def _server_lines(
    context: ServerContext, tables: Iterable[Table], failed: list[str]
) -> Iterator[str]:
    """The lines of a server. Tables that can't be looked at are added to `failed`."""
    lines = []
    for table in tables:
        try:
            lines += list(_table_lines(table))
        except ZooKeeperUnreachable:
            raise  # the other tables can't be looked at either
        except TABLE_FAILS as error:
            failed.append(table.definition.full_name)
            lines.append(f"{failed[-1]}: {error_words(error)}")
    name = context.server.name
    if not lines:
        yield f"server {name}: nothing is being merged"
        return
    yield f"server {name}:"
    yield from (f"  {line}" for line in lines)


def _table_lines(table: Table) -> Iterator[str]:
    for merge in running_merges(table.replica):
        yield f"{table.definition.full_name}: {merge_words(merge)}"


def merge_words(merge: RunningMerge) -> str:
    """One running merge or mutation in a line."""
    done, sources = merge.done, merge.sources
    what = "mutating" if merge.is_mutation else "merging"
    names = (
        " ".join(map(str, sources))
        if len(sources) <= 3
        else f"{len(sources)} parts {sources[0]} … {sources[-1]}"
    )
    speed = f", {done.rows_read / merge.elapsed_s:,.0f} rows/s" if merge.elapsed_s else ""
    return (
        f"{what} {names} into {merge.result}: {merge.share_done:.0%}, "
        f"{done.rows_read:,} of {merge.rows:,} rows read, {done.rows_written:,} written, "
        f"{_size(done.bytes_read)} of {_size(merge.bytes_uncompressed)} read "
        f"({_size(merge.bytes_on_disk)} on disk), {merge.elapsed_s:.1f} s{speed}, "
        f"by {merge.worker}"
    )


def _size(count: float) -> str:
    """A number of bytes for people, in powers of 1000."""
    at = 0
    while count >= 1000 and at + 1 < len(_UNITS):
        count /= 1000
        at += 1
    return f"{count:.0f} {_UNITS[at]}" if at == 0 else f"{count:.1f} {_UNITS[at]}"
