"""`rmt inserts` and `rmt undo`: shows what became of inserts, and takes one back."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from rmt_pipeline.cli.watch import opened_servers, tables_of, tables_to_tell_of
from rmt_pipeline.config import Config
from rmt_pipeline.protocol.errors import (
    TABLE_FAILS,
    UserError,
    ZooKeeperUnreachable,
    error_words,
)
from rmt_pipeline.protocol.inserts.ids import insert_id_of_token
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.insert.report import InsertReport, InsertState, again_words
from rmt_pipeline.replica.partitions.undo import UndoPlan, UnknownInsert
from rmt_pipeline.table import Table

SHOWN_MAX = 20
NAMED_MAX = 5


def run_inserts(
    config: Config, server: str | None, table: str | None, insert_id: str, token: str
) -> int:
    """Print the inserts. The exit status is 1 when one insert is asked for and no table knows it,
    or it is not done; or when those of a table can't be read. Raises UserError for an unknown
    server or table, ZooKeeperUnreachable.
    """
    wanted = insert_id_of_token(token) if token else insert_id
    told: list[InsertReport] = []
    is_read = True
    with opened_servers(config, server, "inserts") as contexts:
        for opened, found in tables_to_tell_of(contexts, table):
            try:
                reports = found.inserts([wanted] if wanted else None)
            except ZooKeeperUnreachable:
                raise  # those of other tables can't be read either
            except TABLE_FAILS as error:
                is_read = False
                print(f"{_title(found, opened.server.name)}: {error_words(error)}")
                continue
            told += reports
            for line in insert_lines(found, opened.server.name, reports, is_one=bool(wanted)):
                print(line)
    if wanted and not told and is_read:
        print(
            f"no table knows insert {wanted}: it was never in, or its quorum failed, or its rows "
            "were dropped, or it is older than replicated_deduplication_window. Inserted again, "
            "it is a new one"
        )
    done = bool(told) and all(one.state is InsertState.DONE for one in told)
    return 0 if is_read and (done or not wanted) else 1


def insert_lines(
    table: Table, server: str, reports: Sequence[InsertReport], *, is_one: bool
) -> Iterator[str]:
    """The lines about the inserts of one table on one server."""
    name = _title(table, server)
    if not is_one:
        are = "insert is" if len(reports) == 1 else "inserts are"
        yield f"{name}: {len(reports)} {are} remembered"
    elif reports:
        yield f"{name}:"
    for report in reports[:SHOWN_MAX]:
        yield f"  {insert_words(report)}"
    if len(reports) > SHOWN_MAX:
        yield f"  and {len(reports) - SHOWN_MAX} earlier ones; see system.inserts"


def _title(table: Table, server: str) -> str:
    return f"{table.definition.full_name} on {server}"


def insert_words(report: InsertReport) -> str:
    """One insert in a line, for people."""
    record = report.record
    if report.problem:
        return f"{report.insert_id}: {report.state}: {report.problem}"
    when = datetime.fromtimestamp(record.created_s, UTC).isoformat(timespec="seconds")
    run = f" by run {record.run_id}" if record.run_id else ""
    by = f"{record.rows} rows on {record.replica}{run} at {when}"
    words = f"{report.insert_id}: {report.state}, {by}"
    if report.state is InsertState.IN_PART:
        words += f"; {record.rows_there} rows are in, {again_words(record)} for the others"
    if report.awaiting:
        words += f"; waits for its quorum: {', '.join(map(str, report.awaiting[:NAMED_MAX]))}"
    if report.parts:
        words += f"; in {_named(report.parts)}"
    if report.coming:
        words += f"; not here yet: {_named(report.coming)}"
    if report.parts or report.coming:
        return words
    if report.is_lost:
        return f"{words}; this replica is lost, and has yet to clone which parts there are"
    return f"{words}; its rows were dropped since"


def _named(parts: Sequence[PartName]) -> str:
    named = ", ".join(map(str, parts[:NAMED_MAX]))
    return f"{named} and {len(parts) - NAMED_MAX} more" if len(parts) > NAMED_MAX else named


def run_undo(
    config: Config,
    server: str | None,
    table: str | None,
    insert_id: str,
    token: str,
    *,
    is_meant: bool,
) -> int:
    """Print what would be removed; with `is_meant`, remove it. The exit status is 1 when the insert
    can't be undone. Raises UserError when it is not clear which insert is meant, and what
    `Table.undo` raises.
    """
    if bool(insert_id) == bool(token):
        raise UserError("which insert? Give its ID, as `rmt inserts` shows it, or --token")
    wanted = insert_id_of_token(token) if token else insert_id
    with opened_servers(config, server, "undo") as contexts:
        found: dict[str, tuple[Table, UndoPlan]] = {}
        unknown: UnknownInsert | None = None
        for _, one in tables_of(contexts, table):
            path = one.definition.engine.zookeeper_path
            if path in found:
                continue  # another replica of the same table
            try:
                found[path] = one, one.plan_undo(wanted)
            except UnknownInsert as error:
                unknown = error
        if not found:
            raise unknown or UserError("there is no table")
        for one, plan in found.values():
            print(f"{one.definition.full_name}: {plan.words()}")
        if any(plan.refusal for _, plan in found.values()):
            return 1
        if not is_meant:
            print("nothing was changed: --yes undoes it")
            return 0
        if len(found) > 1:
            raise UserError(
                f"insert {wanted} is in {len(found)} tables: say which with --table. "
                "Nothing was changed"
            )
        [(one, _)] = found.values()
        print(f"{one.definition.full_name}: {one.undo(wanted).words()}")
    return 0
