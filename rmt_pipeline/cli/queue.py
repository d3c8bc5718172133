"""`rmt queue` and `rmt explain entry`: what a replica has to do, and why it does not do it."""

from collections.abc import Iterator
from typing import Any

from rmt_pipeline.cli.watch import opened_servers, tables_to_tell_of, typed_table
from rmt_pipeline.config import Config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.exchange import control
from rmt_pipeline.protocol.errors import (
    TABLE_FAILS,
    UserError,
    ZooKeeperUnreachable,
    error_words,
)
from rmt_pipeline.replica.upkeep.lag import lag_of
from rmt_pipeline.sql.system.replication import queue_of
from rmt_pipeline.table import Table

SHOWN_MAX = 1000


def run_queue(config: Config, server: str | None, name: str | None) -> int:
    """Print every entry that ZooKeeper has, oldest first, for one table or all, on one server or
    all. If the server does not run or the table is read-only, also print that no entry is worked
    for that reason.

    The exit status is 1 when the queue of a table can't be read. Raises UnknownTable,
    ZooKeeperUnreachable.
    """
    is_read = True
    with opened_servers(config, server, "queue") as contexts:
        told = {one.server.name: control.how_it_is(config, one.server) for one in contexts}
        for context, table in tables_to_tell_of(contexts, name, replicated=True):
            try:
                first, *lines = _queue_lines(table)
            except ZooKeeperUnreachable:
                raise  # the other queues can't be read either
            except TABLE_FAILS as error:
                is_read = False
                first, lines = error_words(error), []
            print(f"{table.definition.full_name} on {context.server.name}: {first}")
            reason = control.why_read_only(
                told[context.server.name], context.server, table.definition
            )
            for line in [*lines, *([] if reason is None else [f"  {reason.words}"])]:
                print(line, flush=True)
    return 0 if is_read else 1


def _queue_lines(table: Table) -> Iterator[str]:
    """The lines about one table's queue. Raises RmtError."""
    replica = table.replica
    entries, lag = queue_of(replica), lag_of(replica)
    behind = f", and {lag.entries} of the log not copied to it yet" if lag.entries else ""
    yield f"{len(entries)} {'entry' if len(entries) == 1 else 'entries'}{behind}"
    now_s = replica.clock.now_s()
    for entry in entries[:SHOWN_MAX]:
        yield f"  {_line(entry, now_s)}"
    if len(entries) > SHOWN_MAX:
        yield f"  and {len(entries) - SHOWN_MAX} more: system.replication_queue"


def run_explain_entry(config: Config, server: str, name: str, wanted: str) -> int:
    """Print all that is known of the entry at this node, or of the entries that make this part.

    Raises UserError when there is none.
    """
    with ServerContext.open(config, server, purpose="explain") as context:
        table = typed_table(context, name)
        found = [
            entry
            for entry in queue_of(table.replica)
            if wanted in (entry["node_name"], entry["new_part_name"])
        ]
        for entry in found:
            for line in _explained(entry, context.clock.now_s()):
                print(line)
    if not found:
        raise UserError(
            f"the queue of {table.definition.full_name} has no entry {wanted!r}: it is done, or it "
            "was never there; rmt queue lists those that are"
        )
    return 0


def _line(entry: dict[str, Any], now_s: float) -> str:
    age_s = max(0.0, now_s - entry["create_time"].timestamp())
    return (
        f"{entry['node_name']} {entry['type']} {entry['new_part_name']}, {age_s:.0f} s old: "
        f"{_state(entry)}"
    )


def _state(entry: dict[str, Any]) -> str:
    if entry["is_currently_executing"]:
        return f"carried out by {entry['executed_by']}"
    words = [entry["postpone_reason"] or "it may run as soon as a worker takes it"]
    if entry["last_exception"]:
        words.append(f"failed {entry['num_tries']} times, last: {entry['last_exception']}")
    return "; ".join(words)


def _explained(entry: dict[str, Any], now_s: float) -> Iterator[str]:
    yield _line(entry, now_s)
    if entry["parts_to_merge"]:
        yield f"  made of {', '.join(entry['parts_to_merge'])}"
    if entry["source_replica"]:
        by = f", by the account {entry['asked_by']}" if entry["asked_by"] else ""
        yield f"  asked for by replica {entry['source_replica']}{by}"
    if entry["num_tries"]:
        yield f"  tried {entry['num_tries']} times, last at {entry['last_attempt_time']:%F %T} UTC"
