"""`rmt cleanup`, `rmt restore`, `rmt force-restore-data` and `rmt explain merges`."""

import random
import sys
from contextlib import suppress

from rmt_pipeline.catalog.replicated import replicated_database
from rmt_pipeline.cli.watch import full_name, typed_table
from rmt_pipeline.config import Config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import (
    TABLE_FAILS,
    RmtError,
    UserError,
    ZooKeeperUnreachable,
    error_words,
)
from rmt_pipeline.protocol.retention import HYSTERESIS
from rmt_pipeline.replica.assign.explain import ExplainedRange, explain_merges
from rmt_pipeline.replica.life.restoring import NothingToRestore
from rmt_pipeline.replica.upkeep.clean_up import CleanUpPlan, carry_out, plan_clean_up
from rmt_pipeline.sql.run.databases import restore_lost
from rmt_pipeline.table import Table
from rmt_pipeline.zookeeper.keeper import Create, Refused


def run_cleanup(config: Config, server: str, *, dry_run: bool) -> int:
    """Clean every table of the server. The exit status is 1 when one fails; the others are still
    cleaned. Raises ZooKeeperUnreachable.
    """
    status = 0
    with ServerContext(config, server, purpose="cleanup") as context:
        for table in context.tables():
            try:
                _clean(table, dry_run=dry_run)
            except ZooKeeperUnreachable:
                raise  # the other tables can't be cleaned either
            except TABLE_FAILS as error:
                status = 1
                print(f"{table.definition.full_name}: {error_words(error)}", file=sys.stderr)
    return status


def run_force_restore_data(config: Config, server: str, name: str) -> int:
    """Set the flag with which the table starts although ZooKeeper does not know parts
    of this disk.
    """
    with ServerContext(config, server, purpose="force-restore-data") as context:
        replica = typed_table(context, name).replica
        if replica.keeper.exists(replica.paths.is_active) is not None:
            raise UserError(f"{replica} is active: there is nothing to force")
        with suppress(Refused):  # the flag is set already
            replica.keeper.multi([Create(replica.paths.force_restore_data)])
        print(f"{replica}: the next start sets aside in detached/ what ZooKeeper does not know")
    return 0


def run_restore(config: Config, server: str, name: str | None) -> int:
    """SYSTEM RESTORE REPLICA of one table; or of every table of the server that needs it, and
    SYSTEM RESTORE DATABASE REPLICA of every Replicated database. The exit status is 1 when one
    can't be restored; the others still are. Raises ZooKeeperUnreachable.
    """
    status = 0
    with ServerContext(config, server, purpose="restore") as context:
        if name is None:
            status = _restore_databases(context)
            definitions = context.catalog.definitions()
        else:
            definitions = [context.catalog.definition(*full_name(name))]
        for definition in definitions:
            failed = 0
            try:
                words = context.restore(definition).words()
            except NothingToRestore as error:
                failed, words = int(name is not None), str(error)
            except ZooKeeperUnreachable:
                raise  # the other tables can't be restored either
            except TABLE_FAILS as error:
                failed, words = 1, error_words(error)
            print(f"{definition.full_name}: {words}", file=sys.stderr if failed else sys.stdout)
            status |= failed
    return status


def _restore_databases(context: ServerContext) -> int:
    """Restore the Replicated databases that ZooKeeper lost. Returns 1 if one can't be restored."""
    status = 0
    for name in context.catalog.databases():
        try:
            found = replicated_database(context.catalog, name)
            if found is not None:
                words = restore_lost(context, name, found) or "it is in ZooKeeper again"
                print(f"database {name}: {words}")
        except NothingToRestore:
            continue
        except ZooKeeperUnreachable:
            raise
        except RmtError as error:
            status = 1
            print(f"database {name}: Code: {error.code}. {error}", file=sys.stderr)
    return status


def _clean(table: Table, *, dry_run: bool) -> None:
    replica, name = table.replica, table.definition.full_name
    plan = plan_clean_up(replica, hysteresis=random.uniform(*HYSTERESIS))  # noqa: S311
    for line in _words(plan):
        print(f"{name}: {line}")
    if dry_run:
        return
    print(f"{name}: {carry_out(replica, plan).words()}")


def _words(plan: CleanUpPlan) -> list[str]:
    """What is removed, what is kept, and why."""
    lines = [f"old part {part} is removed" for part in plan.parts.remove]
    lines += [f"old part {part} is kept: {reason}" for part, reason in plan.parts.kept]
    lines += [
        f"directory {part} is removed: another part covers it, and ZooKeeper no longer lists it"
        for part in plan.leftovers
    ]
    lines += [
        f"directory {part} is set aside: ZooKeeper does not know it" for part in plan.unexpected
    ]
    lines += [f"replica {name} becomes lost" for name in plan.log.mark_lost]
    lines.append(
        f"{len(plan.log.remove)} log entries are removed; {'; '.join(plan.log.kept_because)}"
    )
    for what, ids in (("block ids", plan.ids.blocks), ("insert records", plan.ids.inserts)):
        lines.append(
            f"{len(ids.remove)} {what} are removed, {ids.kept} kept: {ids.kept_because}"
        )
    return lines


def run_explain_merges(config: Config, server: str, table: str, partition: str | None) -> int:
    """Print every candidate range with its score, or the rule that forbids it."""
    with ServerContext(config, server, purpose="explain") as context:
        explained = explain_merges(typed_table(context, table).replica, partition)
    if explained.limit:
        print(explained.limit)
    if not explained.ranges:
        print("no two neighbouring parts: there is nothing to merge")
    for one in explained.ranges:
        print(_line(one))
    return 0


def _line(one: ExplainedRange) -> str:
    first, last = one.parts[0], one.parts[-1]
    what = (
        f"{len(one.parts)} parts {first} … {last}"
        if len(one.parts) > 2
        else " and ".join(one.parts)
    )
    if one.what:
        what += f", {one.what}"
    score = "" if one.score is None else f", {one.size_bytes} bytes, score {one.score:.0f}"
    verdict = one.reason or "may be merged"
    return f"partition {one.partition}: {what}{score}: {verdict}"
