"""Jobs on a table as a whole, and on its replicas."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import dagster as dg

from rmt_pipeline.dagster import names
from rmt_pipeline.dagster.maintenance import forms
from rmt_pipeline.dagster.maintenance.doing import (
    PARTS_SHOWN_MAX,
    Doing,
    Told,
    Verb,
    few_named,
    parts_in_words,
    refuse_value,
    told_of,
)
from rmt_pipeline.dagster.upkeep.checks import ACKNOWLEDGED, loss_name
from rmt_pipeline.protocol.errors import RmtError, UserError
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.text import require_node
from rmt_pipeline.replica.life.dead import drop_dead_replicas
from rmt_pipeline.replica.mutations.plan import PartitionPlan, plan_mutation
from rmt_pipeline.replica.reading import ActivePart
from rmt_pipeline.replica.sync import SyncMode
from rmt_pipeline.replica.upkeep.lost import lost_parts
from rmt_pipeline.sql.run.alter import commands_for
from rmt_pipeline.syntax.mutation import parse_commands
from rmt_pipeline.syntax.statements.parse import parse
from rmt_pipeline.system import account
from rmt_pipeline.types.escapes import in_backticks, quote_text
from rmt_pipeline.zookeeper.paths import TablePaths

CHECKED_LOGGED_EVERY = 100

_PLAN_SCHEMA = dg.TableSchema(
    columns=[
        dg.TableColumn("partition", "string"),
        dg.TableColumn("rows", "int"),
        dg.TableColumn("rows that match", "int"),
        dg.TableColumn("parts", "int"),
        dg.TableColumn("parts to rewrite", "int"),
        dg.TableColumn("bytes to rewrite", "int"),
    ]
)


def _optimize(run: Doing, config: forms.OptimizeConfig) -> Told:
    table = run.table(config.table)
    if config.deduplicate_by and not config.deduplicate:
        refuse_value(
            "deduplicate_by", config.deduplicate_by, "it needs deduplicate to be switched on"
        )
    for column in config.deduplicate_by:
        if table.definition.column(column) is None:
            there = few_named([one.name for one in table.definition.columns])
            refuse_value(
                "deduplicate_by", column, f"there is no such column. There are: {there}"
            )
    parts = run.parts(table, config.partition)
    if config.dry_run:
        whole = config.final or config.deduplicate
        run.say(
            "%s would be merged: %s",
            "these" if whole else "some of these, those that are worth it most,",
            parts_in_words(parts),
        )
        return told_of(parts)
    run.say(
        "asked for merges of %s; see `rmt merges` for how far they are", parts_in_words(parts)
    )
    made = table.optimize(
        config.partition or None,
        final=config.final,
        deduplicate=config.deduplicate,
        deduplicate_by=tuple(config.deduplicate_by),
        settings={"alter_sync": config.alter_sync},
    )
    run.say("merges: %s", few_named(made) if made else "none was worth it")
    return {"merges": len(made), "parts": few_named(made)}


def _mutate(run: Doing, config: forms.MutateConfig) -> Told:
    table = run.table(config.table)
    try:
        commands = commands_for(parse_commands(config.commands), table.definition)
        plan = plan_mutation(table.replica, commands, QuerySettings())
    except RmtError as error:
        refuse_value("commands", config.commands, f"{error.code}. {error}")
    told = _plan_metadata(plan)
    run.say(
        "%s of %s rows match; %s of %s parts %s rewritten, %s bytes",
        told["rows that match"],
        sum(one.rows for one in plan),
        told["parts to rewrite"],
        sum(one.parts for one in plan),
        "would be" if config.dry_run else "are to be",
        told["bytes to rewrite"],
    )
    if config.dry_run:
        return told
    mutation_id = table.mutate(commands, settings={"mutations_sync": config.mutations_sync})
    run.say("mutation %s; `rmt mutations` shows how far it is", mutation_id)
    return {"mutation": mutation_id, **told}


def _drop_table(run: Doing, config: forms.DropTableConfig) -> Told:
    table = run.table(config.table)
    replica = table.replica
    others = [
        one for one in replica.keeper.children(replica.table.replicas) if one != replica.name
    ]
    parts = table.parts()
    run.say(
        "%s; other replicas, which keep theirs: %s",
        parts_in_words(parts),
        few_named(sorted(others)),
    )
    if config.dry_run:
        return told_of(parts)
    sync = " SYNC" if config.sync else ""
    run.sql(f"DROP TABLE {_sql_name(table.definition.full_name)}{sync}")
    return told_of(parts)


def _undrop_table(run: Doing, config: forms.UndropTableConfig) -> Told:
    uuid = f" UUID {quote_text(config.uuid)}" if config.uuid else ""
    try:
        told = run.sql(f"UNDROP TABLE {_sql_name(config.table)}{uuid}")
    except RmtError as error:
        refuse_value("table", config.table, str(error))
    return {**told_of(run.table(config.table).parts()), **told}


def _statement(run: Doing, config: forms.StatementConfig) -> Told:
    if config.dry_run:
        try:
            kind = type(parse(config.statement)).__name__
        except RmtError as error:
            refuse_value("statement", config.statement, f"{error.code}. {error}")
        run.say("a statement that can be read (%s); it was not carried out", kind)
        return {"kind": kind}
    return run.sql(config.statement)


def _check_table(run: Doing, config: forms.CheckConfig) -> Told:
    table = run.table(config.table)
    wanted = {part.name for part in run.parts(table, config.partition)}
    problems: dict[str, str] = {}
    checked = size_bytes = 0
    for found in table.check(lambda part: part in wanted):
        checked, size_bytes = checked + 1, size_bytes + found.size_bytes
        if found.problem:
            problems[str(found.part)] = found.problem
            run.context.log.error("%s: %s", found.part, found.problem)
        if checked % CHECKED_LOGGED_EVERY == 0:
            run.say("%s of %s parts read, %s bytes", checked, len(wanted), size_bytes)
    run.say("%s parts read, %s bytes; %s are broken", checked, size_bytes, len(problems))
    if problems:
        told = "; ".join(f"{part}: {problem}" for part, problem in list(problems.items())[:3])
        raise dg.Failure(
            f"{len(problems)} of {checked} parts are broken: {told}. They are given up and fetched "
            "from another replica; the log sensor starts the worker",
            metadata={"parts": checked, "broken": len(problems)},
        )
    return {"parts": checked, "bytes": size_bytes, "broken": 0}


def _sync_replica(run: Doing, config: forms.SyncConfig) -> Told:
    table = run.table(config.table)
    replica = table.replica
    waiting = len(replica.keeper.children(replica.paths.queue))
    run.say("%s entries in the queue; waiting for %s s at most", waiting, config.timeout_s)
    began_s = run.server.clock.monotonic_s()
    table.sync(SyncMode(config.mode), config.timeout_s)
    seconds = run.server.clock.monotonic_s() - began_s
    return {"entries at first": waiting, "seconds": round(seconds, 3)}


def _restore_replica(run: Doing, config: forms.RestoreConfig) -> Told:
    table = run.table(config.table)
    if config.dry_run:
        there = run.server.keeper().exists(table.definition.engine.zookeeper_path) is not None
        parts = table.store.parts()
        run.say(
            "ZooKeeper has %s; this disk has %s parts to make it from: %s",
            "the table: there is nothing to restore unless this replica is missing"
            if there
            else "lost the table",
            len(parts),
            few_named(parts),
        )
        return {"parts": len(parts), "ZooKeeper has the table": there}
    restored = run.server.restore(table.definition)
    run.say("%s", restored.words())
    return {"parts": restored.parts, "rows": restored.rows, "in words": restored.words()}


def _drop_replica(run: Doing, config: forms.DropReplicaConfig) -> Told:
    server, keeper = run.server, run.server.keeper()
    try:
        require_node(config.replica, "replica")
    except UserError as error:
        refuse_value("replica", config.replica, str(error))
    if config.table:
        definitions = [run.table(config.table).definition]
    else:
        definitions = server.catalog.definitions()
    own = [one.full_name for one in definitions if one.engine.replica == config.replica]
    if own:
        refuse_value(
            "replica",
            config.replica,
            f"it is the replica of this server, {server.server.name}, of {few_named(own)}: DROP "
            "TABLE removes that",
        )
    found = {}
    for one in definitions:
        replica = TablePaths(one.engine.zookeeper_path).replica(config.replica)
        root, active = keeper.exists_many([replica.root, replica.is_active])
        if active is not None:
            refuse_value(
                "replica",
                config.replica,
                f"it is active in {one.full_name}: its server runs. Stop that first",
            )
        if root is not None:
            found[one.full_name] = one.engine.zookeeper_path
    if not found:
        refuse_value(
            "replica",
            config.replica,
            f"no table has one, of {few_named([one.full_name for one in definitions])}",
        )
    verb = "would be removed" if config.dry_run else "is removed"
    run.say("replica %s %s from ZooKeeper, of %s", config.replica, verb, few_named(list(found)))
    if not config.dry_run:
        drop_dead_replicas(server.keeper, found.values(), config.replica)
    return {"tables": len(found), "of": few_named(list(found))}


def _undo_insert(run: Doing, config: forms.UndoConfig) -> Told:
    table = run.table(config.table)
    try:
        plan = table.plan_undo(config.insert_id)
    except RmtError as error:
        refuse_value("insert_id", config.insert_id, str(error))
    run.say("%s", plan.words())
    if plan.refusal:
        refuse_value("insert_id", config.insert_id, f"it can't be undone: {plan.refusal}")
    told = {"rows": plan.rows, "bytes": plan.size_bytes, "parts": few_named(plan.parts)}
    if config.dry_run:
        return told
    gone = [part for part in table.parts() if part.name in plan.parts]
    undone = table.undo(config.insert_id, settings={"alter_sync": config.alter_sync})
    run.say("%s", undone.words())
    run.recorder(table).command(f"UNDO INSERT {config.insert_id}", _by_partition(gone))
    return {"rows": undone.rows, "bytes": undone.size_bytes, "parts": few_named(undone.parts)}


def _acknowledge_lost(run: Doing, config: forms.AcknowledgeConfig) -> Told:
    table = run.table(config.table)
    name, lost = table.definition.full_name, lost_parts(table.replica)
    if not lost:
        refuse_value("table", config.table, "no part of it was ever lost on all replicas")
    losses = [loss_name(part, one) for part, one in sorted(lost.items())]
    told = {ACKNOWLEDGED: "\n".join(losses), "user": account(), "note": config.note or "none"}
    key = names.health_key(name, run.server.server.name)
    run.context.log_event(dg.AssetObservation(key, metadata=told))
    run.say("the check `lost` is about what is lost after these: %s", few_named(sorted(lost)))
    return {"lost parts": len(lost), "which": few_named(sorted(lost))}


def _sql_name(full_name: str) -> str:
    """The name in backticks, split into database and table as `table_named` splits it."""
    return ".".join(map(in_backticks, full_name.split(".", 1)))


def _plan_metadata(plan: Sequence[PartitionPlan]) -> dict[str, Any]:
    records = [
        dg.TableRecord(
            {
                "partition": one.partition_id,
                "rows": one.rows,
                "rows that match": one.rows_touched,
                "parts": one.parts,
                "parts to rewrite": one.parts_to_rewrite,
                "bytes to rewrite": one.bytes_to_rewrite,
            }
        )
        for one in plan[:PARTS_SHOWN_MAX]
    ]
    return {
        "rows that match": sum(one.rows_touched for one in plan),
        "parts to rewrite": sum(one.parts_to_rewrite for one in plan),
        "bytes to rewrite": sum(one.bytes_to_rewrite for one in plan),
        "partitions": dg.MetadataValue.table(records, schema=_PLAN_SCHEMA),
    }


def _by_partition(parts: Sequence[ActivePart]) -> dict[str, int]:
    """By how many rows each partition grows when these parts go: negative numbers."""
    rows: dict[str, int] = defaultdict(int)
    for part in parts:
        rows[part.name.partition] -= part.manifest.rows
    return rows


TABLE_VERBS = (
    Verb(_optimize, forms.OptimizeConfig),
    Verb(_mutate, forms.MutateConfig),
    Verb(_drop_table, forms.DropTableConfig),
    Verb(_undrop_table, forms.UndropTableConfig),
    Verb(_statement, forms.StatementConfig),
    Verb(_check_table, forms.CheckConfig),
    Verb(_sync_replica, forms.SyncConfig),
    Verb(_restore_replica, forms.RestoreConfig),
    Verb(_drop_replica, forms.DropReplicaConfig),
    Verb(_undo_insert, forms.UndoConfig),
    Verb(_acknowledge_lost, forms.AcknowledgeConfig),
)
