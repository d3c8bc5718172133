"""Jobs that a person starts: what SQL and Python can do to a table as a whole, as forms.

There is one job for each verb and server, with one op that calls the same function of the engine as
`rmt sql`. A job that can lose rows only says what it would do, until `dry_run` is switched off.
When a value does not fit, the job fails with an error that names the field, and does nothing.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import islice
from typing import Any, NoReturn

import dagster as dg
from pydantic import ValidationError

from rmt_pipeline.config import expand
from rmt_pipeline.context import ServerContext
from rmt_pipeline.dagster import names
from rmt_pipeline.dagster.engine import EngineResource, table_named
from rmt_pipeline.dagster.record.ledger import Recorder, first_of
from rmt_pipeline.dagster.upkeep import forms
from rmt_pipeline.dagster.upkeep.checks import ACKNOWLEDGED, loss_name
from rmt_pipeline.protocol.errors import RmtError, UnknownTable, UserError
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.text import require_node
from rmt_pipeline.replica.life.drop import drop_dead_replica
from rmt_pipeline.replica.mutations.plan import PartitionPlan, plan_mutation
from rmt_pipeline.replica.upkeep.lost import lost_parts
from rmt_pipeline.replica.sync import SyncMode
from rmt_pipeline.sql.formats.rows import Done
from rmt_pipeline.sql.formats.write import write_rows
from rmt_pipeline.sql.run.alter import commands_for
from rmt_pipeline.sql.run.partitions import part_of
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.syntax.mutation import parse_commands
from rmt_pipeline.syntax.statements.parse import parse
from rmt_pipeline.system import account
from rmt_pipeline.replica.reading import ActivePart
from rmt_pipeline.table import Table
from rmt_pipeline.types.escapes import in_backticks, quote_text
from rmt_pipeline.zookeeper.paths import TablePaths

PARTS_SHOWN_MAX = 1000
NAMED_MAX = 20
CHECKED_LOGGED_EVERY = 100
ANSWER_SHOWN_MAX = 10_000
"""How many characters of a statement's answer are shown."""
STORES_NOTHING = "rmt_stores_nothing"
"""The jobs' own IO manager: with the location's, every form would ask for its configuration."""
_DO_IT = "To do it, launch the job again with `dry_run: false`"

_Told = Mapping[str, Any]

_PARTS_SCHEMA = dg.TableSchema(
    columns=[
        dg.TableColumn("part", "string"),
        dg.TableColumn("partition", "string"),
        dg.TableColumn("rows", "int"),
        dg.TableColumn("bytes", "int"),
    ]
)
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


# --- what they do -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Doing:
    """What a job's function works with: the context of its run, and the server."""

    context: dg.OpExecutionContext
    server: ServerContext

    def say(self, words: str, *values: object) -> None:
        self.context.log.info(words, *values)

    def table(self, name: str, field: str = "table") -> Table:
        try:
            return table_named(self.server, name)
        except RmtError as error:
            there = _few([one.full_name for one in self.server.catalog.definitions()])
            why = str(error)
            end = "" if why.endswith("?") else "."
            _refuse_value(field, name, f"{why}{end} There are: {there}")

    def parts(self, table: Table, partition: str) -> list[ActivePart]:
        """The active parts of a partition; all active parts if `partition` is empty."""
        return self.parts_of(table, partition) if partition else table.parts()

    def parts_of(
        self, table: Table, partition: str, field: str = "partition"
    ) -> list[ActivePart]:
        """The active parts of one partition. Fails, naming `field`, if it has none."""
        active = table.parts()
        found = [part for part in active if part.name.partition == partition]
        if not found:
            there = _few(sorted({part.name.partition for part in active}))
            why = (
                f"{table.definition.full_name} has no rows in a partition of that id"
                if partition
                else "it is to be the id of a partition, and empty does not mean all"
            )
            _refuse_value(field, partition, f"{why}. There are: {there}")
        return found

    def sql(self, statement: str) -> _Told:
        """The answer to a statement, as metadata. Raises what the statement raises."""
        answer = Session(self.server).execute(statement)
        if isinstance(answer, Done):
            self.say("%s", answer.note or "done")
            return {"in words": answer.note}
        shown = BytesIO()
        write_rows(replace(answer, batches=islice(answer.batches, 1)), "TSVWithNames", shown)
        text = shown.getvalue().decode(errors="replace")[:ANSWER_SHOWN_MAX]
        self.say("%s", text)
        return {"answer": text}

    def recorder(self, table: Table) -> Recorder:
        return Recorder(self.context, table, self.server.server.name)

    def emptied(self, table: Table, gone: Sequence[ActivePart]) -> None:
        """Remove emptied partitions from Dagster's. Events about the drop are written by the worker
        of each server that carries it out, and by the log sensor for what this server did at once.
        """
        self.recorder(table).forget_empty({part.name.partition for part in gone})


def _refuse_value(field: str, value: object, why: str) -> NoReturn:
    raise dg.Failure(f"{field} is {value!r}: {why}. Nothing was done", allow_retries=False)


def _optimize(run: Doing, config: forms.OptimizeConfig) -> _Told:
    table = run.table(config.table)
    if config.deduplicate_by and not config.deduplicate:
        _refuse_value(
            "deduplicate_by", config.deduplicate_by, "it needs deduplicate to be switched on"
        )
    for column in config.deduplicate_by:
        if table.definition.column(column) is None:
            there = _few([one.name for one in table.definition.columns])
            _refuse_value(
                "deduplicate_by", column, f"there is no such column. There are: {there}"
            )
    parts = run.parts(table, config.partition)
    if config.dry_run:
        whole = config.final or config.deduplicate
        run.say(
            "%s would be merged: %s",
            "these" if whole else "some of these, those that are worth it most,",
            _words(parts),
        )
        return _did(parts)
    run.say("asked for merges of %s; see `rmt merges` for how far they are", _words(parts))
    made = table.optimize(
        config.partition or None,
        final=config.final,
        deduplicate=config.deduplicate,
        deduplicate_by=tuple(config.deduplicate_by),
        settings={"alter_sync": config.alter_sync},
    )
    run.say("merges: %s", _few(made) if made else "none was worth it")
    return {"merges": len(made), "parts": _few(made)}


def _mutate(run: Doing, config: forms.MutateConfig) -> _Told:
    table = run.table(config.table)
    try:
        commands = commands_for(parse_commands(config.commands), table.definition)
        plan = plan_mutation(table.replica, commands, QuerySettings())
    except RmtError as error:
        _refuse_value("commands", config.commands, f"{error.code}. {error}")
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


def _drop_partitions(
    run: Doing, config: forms.PartitionsConfig, *, detach: bool = False
) -> _Told:
    table = run.table(config.table)
    partitions = list(dict.fromkeys(config.partitions))
    parts = [part for one in partitions for part in run.parts_of(table, one, "partitions")]
    what = "detached" if detach else "dropped"
    if config.dry_run:
        run.say("these would be %s on every replica: %s", what, _words(parts))
        return _did(parts)
    run.say("these are %s on every replica: %s", what, _words(parts))
    table.drop_partitions(partitions, detach=detach, settings={"alter_sync": config.alter_sync})
    run.emptied(table, parts)
    return _did(parts)


def _detach_partitions(run: Doing, config: forms.PartitionsConfig) -> _Told:
    return _drop_partitions(run, config, detach=True)


def _drop_part(run: Doing, config: forms.PartConfig) -> _Told:
    table = run.table(config.table)
    active = table.parts()
    parts = [one for one in active if str(one.name) == config.part]
    if not parts:
        there = _few([one.name for one in active])
        _refuse_value("part", config.part, f"no active part is called so. There are: {there}")
    command = "DETACH PART" if config.detach else "DROP PART"
    run.say("%s, on every replica: %s", command, _words(parts))
    if config.dry_run:
        return _did(parts)
    settings = {"alter_sync": config.alter_sync}
    table.drop_part(parts[0].name, detach=config.detach, settings=settings)
    run.emptied(table, parts)
    return _did(parts)


def _truncate(run: Doing, config: forms.TruncateConfig) -> _Told:
    table = run.table(config.table)
    parts = table.parts()
    run.say("TRUNCATE TABLE, on every replica: %s", _words(parts))
    if config.dry_run:
        return _did(parts)
    table.truncate(settings={"alter_sync": config.alter_sync})
    run.emptied(table, parts)
    return _did(parts)


def _clear_column(run: Doing, config: forms.ClearColumnConfig) -> _Told:
    table = run.table(config.table)
    if table.definition.column(config.column) is None:
        there = _few([one.name for one in table.definition.columns])
        _refuse_value("column", config.column, f"there is no such column. There are: {there}")
    parts = run.parts(table, config.partition)
    run.say("CLEAR COLUMN %s, on every replica: %s", config.column, _words(parts))
    if config.dry_run:
        return _did(parts)
    settings = {"alter_sync": config.alter_sync}
    table.clear_column(config.column, config.partition or None, settings=settings)
    return _did(parts)


def _drop_table(run: Doing, config: forms.DropTableConfig) -> _Told:
    table = run.table(config.table)
    replica = table.replica
    others = [
        one for one in replica.keeper.children(replica.table.replicas) if one != replica.name
    ]
    parts = table.parts()
    run.say("%s; other replicas, which keep theirs: %s", _words(parts), _few(sorted(others)))
    if config.dry_run:
        return _did(parts)
    sync = " SYNC" if config.sync else ""
    run.sql(f"DROP TABLE {_sql_name(table.definition.full_name)}{sync}")
    return _did(parts)


def _undrop_table(run: Doing, config: forms.UndropTableConfig) -> _Told:
    uuid = f" UUID {quote_text(config.uuid)}" if config.uuid else ""
    try:
        told = run.sql(f"UNDROP TABLE {_sql_name(config.table)}{uuid}")
    except RmtError as error:
        _refuse_value("table", config.table, str(error))
    return {**_did(run.table(config.table).parts()), **told}


def _statement(run: Doing, config: forms.StatementConfig) -> _Told:
    if config.dry_run:
        try:
            kind = type(parse(config.statement)).__name__
        except RmtError as error:
            _refuse_value("statement", config.statement, f"{error.code}. {error}")
        run.say("a statement that can be read (%s); it was not carried out", kind)
        return {"kind": kind}
    return run.sql(config.statement)


def _drop_detached(run: Doing, config: forms.DropDetachedConfig) -> _Told:
    table = run.table(config.table)
    if [bool(config.partition), bool(config.name), config.everything].count(True) != 1:
        _refuse_value(
            "partition",
            config.partition,
            "name a partition by its id, or one directory, or switch on everything",
        )
    meant = [
        one
        for one in table.store.detached_parts.names()
        if config.everything
        or config.name == str(one)
        or config.partition == one.part.partition
    ]
    if not meant:
        field = "name" if config.name else "partition"
        wanted = config.name or config.partition
        _refuse_value(field, wanted, "nothing of it is detached here")
    run.say("detached here, and nowhere else: %s", _few(meant))
    if config.dry_run:
        return {"detached": len(meant), "which": _few(meant)}
    removed = table.drop_detached(config.partition or None, name=config.name or None)
    return {"removed": len(removed), "which": _few(removed)}


def _attach_partition(run: Doing, config: forms.AttachConfig) -> _Told:
    table = run.table(config.table)
    if config.partition and config.part:
        _refuse_value("part", config.part, "name a partition, or one part, not both")
    field, wanted = ("part", config.part) if config.part else ("partition", config.partition)
    detached = [
        one
        for one in table.store.detached_parts.names()
        if wanted in ("", str(one.part) if config.part else one.part.partition)
    ]
    if not detached:
        _refuse_value(
            field,
            wanted,
            f"nothing of it is detached on {run.server.server.name}; system.detached_parts shows "
            "what is, on each server its own",
        )
    run.say("detached here: %s", _few(detached))
    if config.dry_run:
        return {"detached": len(detached), "parts": _few(detached)}
    attached = table.attach(
        config.partition or None,
        part=part_of(config.part) if config.part else None,
        settings={"alter_sync": config.alter_sync},
    )
    if attached.words():
        run.say("%s", attached.words())
    new = [part for part in table.parts() if part.name in attached.parts]
    return {**_did(new), "in words": attached.words()}


def _replace_partition(run: Doing, config: forms.FromTableConfig) -> _Told:
    table, source = run.table(config.table), run.table(config.from_table, "from_table")
    coming = run.parts_of(source, config.partition)
    going = [one for one in table.parts() if one.name.partition == config.partition]
    verb = "would go" if config.dry_run else "go"
    run.say("%s %s; in their place: %s", _words(going), verb, _words(coming))
    if config.dry_run:
        return {**_did(going), "rows that would come": _rows(coming)}
    taken = table.replace_partition(
        config.partition, source, settings={"alter_sync": config.alter_sync}
    )
    return {"rows": taken.rows, "rows that went": taken.rows_gone, "parts": _few(taken.parts)}


def _attach_partition_from(run: Doing, config: forms.AttachFromConfig) -> _Told:
    table, source = run.table(config.table), run.table(config.from_table, "from_table")
    coming = run.parts_of(source, config.partition)
    run.say("these come beside what is there: %s", _words(coming))
    if config.dry_run:
        return _did(coming)
    settings = {"alter_sync": config.alter_sync}
    taken = table.attach_partition(config.partition, source, settings=settings)
    if taken.already:
        run.say("had been attached before, and are not once more: %s", _few(taken.already))
    return {"rows": taken.rows, "parts": _few(taken.parts), "already": len(taken.already)}


def _move_partition(run: Doing, config: forms.ToTableConfig) -> _Told:
    table, to = run.table(config.table), run.table(config.to_table, "to_table")
    parts = run.parts_of(table, config.partition)
    verb = "would move" if config.dry_run else "move"
    run.say("%s %s to %s", _words(parts), verb, to.definition.full_name)
    if config.dry_run:
        return _did(parts)
    taken = table.move_partition(
        config.partition, to, settings={"alter_sync": config.alter_sync}
    )
    return {"rows": taken.rows, "parts": _few(taken.parts)}


def _freeze(run: Doing, config: forms.FreezeConfig) -> _Told:
    table = run.table(config.table)
    if config.partition:
        run.parts_of(table, config.partition)
    frozen = table.freeze(config.partition or None, name=config.name)
    if not frozen:
        run.say("%s has no rows: there is nothing to freeze", table.definition.full_name)
        return {"parts": 0}
    snapshot, directory = frozen[0].snapshot, frozen[0].directory
    run.say("the snapshot %s has %s more parts, below %s", snapshot, len(frozen), directory)
    names_of = [str(one.part) for one in frozen]
    return {
        "parts": len(frozen),
        "which": _few(names_of),
        "snapshot": snapshot,
        "directory": directory,
    }


def _unfreeze(run: Doing, config: forms.UnfreezeConfig) -> _Told:
    table = run.table(config.table)
    snapshot = table.frozen_parts.snapshot(config.name)
    parts = [
        part.name
        for frozen in snapshot
        for part in frozen.parts
        if config.partition in ("", part.name.partition)
    ]
    if not parts:
        _refuse_value("name", config.name, "no snapshot of that name has anything of it here")
    run.say("the snapshot %s has %s", config.name, _few(parts))
    if config.dry_run:
        return {"parts": len(parts), "which": _few(parts)}
    table.unfreeze(config.name, config.partition or None)
    return {"parts": len(parts), "which": _few(parts)}


def _fetch_partition(run: Doing, config: forms.FetchConfig) -> _Told:
    table = run.table(config.table)
    if bool(config.partition) == bool(config.part):
        _refuse_value("partition", config.partition, "name a partition by its id, or one part")
    definition = table.definition
    macros = run.server.server.macros_for(definition.database, definition.name)
    try:
        part = part_of(config.part) if config.part else None
    except UserError as error:
        _refuse_value("part", config.part, str(error))
    try:
        path = expand(config.from_path, macros)
        fetched = table.fetch_partition(path, config.partition, part=part)
    except UnknownTable as error:
        _refuse_value("from_path", config.from_path, str(error))
    run.say("in detached/ of this server are now: %s", _few(fetched.parts))
    return {
        "parts": len(fetched.parts),
        "which": _few(fetched.parts),
        "brought by an earlier try": _few(fetched.kept) if fetched.kept else "none",
    }


def _check_table(run: Doing, config: forms.CheckConfig) -> _Told:
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


def _sync_replica(run: Doing, config: forms.SyncConfig) -> _Told:
    table = run.table(config.table)
    replica = table.replica
    waiting = len(replica.keeper.children(replica.paths.queue))
    run.say("%s entries in the queue; waiting for %s s at most", waiting, config.timeout_s)
    began_s = run.server.clock.monotonic_s()
    table.sync(SyncMode(config.mode), config.timeout_s)
    seconds = run.server.clock.monotonic_s() - began_s
    return {"entries at first": waiting, "seconds": round(seconds, 3)}


def _restore_replica(run: Doing, config: forms.RestoreConfig) -> _Told:
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
            _few(parts),
        )
        return {"parts": len(parts), "ZooKeeper has the table": there}
    restored = run.server.restore(table.definition)
    run.say("%s", restored.words())
    return {"parts": restored.parts, "rows": restored.rows, "in words": restored.words()}


def _drop_replica(run: Doing, config: forms.DropReplicaConfig) -> _Told:
    server, keeper = run.server, run.server.keeper()
    try:
        require_node(config.replica, "replica")
    except UserError as error:
        _refuse_value("replica", config.replica, str(error))
    if config.table:
        definitions = [run.table(config.table).definition]
    else:
        definitions = server.catalog.definitions()
    own = [one.full_name for one in definitions if one.engine.replica == config.replica]
    if own:
        _refuse_value(
            "replica",
            config.replica,
            f"it is the replica of this server, {server.server.name}, of {_few(own)}: DROP TABLE "
            "removes that",
        )
    found = {}
    for one in definitions:
        replica = TablePaths(one.engine.zookeeper_path).replica(config.replica)
        root, active = keeper.exists_many([replica.root, replica.is_active])
        if active is not None:
            _refuse_value(
                "replica",
                config.replica,
                f"it is active in {one.full_name}: its server runs. Stop that first",
            )
        if root is not None:
            found[one.full_name] = one.engine.zookeeper_path
    if not found:
        _refuse_value(
            "replica",
            config.replica,
            f"no table has one, of {_few([one.full_name for one in definitions])}",
        )
    verb = "would be removed" if config.dry_run else "is removed"
    run.say("replica %s %s from ZooKeeper, of %s", config.replica, verb, _few(list(found)))
    if not config.dry_run:
        for path in found.values():
            drop_dead_replica(keeper, TablePaths(path), config.replica)
    return {"tables": len(found), "of": _few(list(found))}


def _undo_insert(run: Doing, config: forms.UndoConfig) -> _Told:
    table = run.table(config.table)
    try:
        plan = table.plan_undo(config.insert_id)
    except RmtError as error:
        _refuse_value("insert_id", config.insert_id, str(error))
    run.say("%s", plan.words())
    if plan.refusal:
        _refuse_value("insert_id", config.insert_id, f"it can't be undone: {plan.refusal}")
    told = {"rows": plan.rows, "bytes": plan.size_bytes, "parts": _few(plan.parts)}
    if config.dry_run:
        return told
    gone = [part for part in table.parts() if part.name in plan.parts]
    undone = table.undo(config.insert_id, settings={"alter_sync": config.alter_sync})
    run.say("%s", undone.words())
    run.recorder(table).command(f"UNDO INSERT {config.insert_id}", _by_partition(gone))
    return {"rows": undone.rows, "bytes": undone.size_bytes, "parts": _few(undone.parts)}


def _acknowledge_lost(run: Doing, config: forms.AcknowledgeConfig) -> _Told:
    table = run.table(config.table)
    name, lost = table.definition.full_name, lost_parts(table.replica)
    if not lost:
        _refuse_value("table", config.table, "no part of it was ever lost on all replicas")
    losses = [loss_name(part, one) for part, one in sorted(lost.items())]
    told = {ACKNOWLEDGED: "\n".join(losses), "user": account(), "note": config.note or "none"}
    key = names.health_key(name, run.server.server.name)
    run.context.log_event(dg.AssetObservation(key, metadata=told))
    run.say("the check `lost` is about what is lost after these: %s", _few(sorted(lost)))
    return {"lost parts": len(lost), "which": _few(sorted(lost))}


# --- jobs -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Verb:
    """`do` carries the job out; the job is named after it and the server. `said` describes the job
    if the form's docstring does not.
    """

    do: Callable[[Doing, Any], _Told]
    form: type[dg.Config]
    said: str = ""

    @property
    def name(self) -> str:
        return self.do.__name__.removeprefix("_")

    @property
    def description(self) -> str:
        return self.said or " ".join((self.form.__doc__ or "").split())


VERBS = (
    _Verb(_optimize, forms.OptimizeConfig),
    _Verb(_mutate, forms.MutateConfig),
    _Verb(
        _drop_partitions,
        forms.PartitionsConfig,
        "DROP PARTITION: removes whole partitions, on every replica.",
    ),
    _Verb(
        _detach_partitions,
        forms.PartitionsConfig,
        "DETACH PARTITION: takes whole partitions out of the table; each server keeps them in "
        "detached/.",
    ),
    _Verb(_drop_part, forms.PartConfig),
    _Verb(_truncate, forms.TruncateConfig),
    _Verb(_clear_column, forms.ClearColumnConfig),
    _Verb(_drop_table, forms.DropTableConfig),
    _Verb(_undrop_table, forms.UndropTableConfig),
    _Verb(_statement, forms.StatementConfig),
    _Verb(_drop_detached, forms.DropDetachedConfig),
    _Verb(_attach_partition, forms.AttachConfig),
    _Verb(_replace_partition, forms.FromTableConfig),
    _Verb(_attach_partition_from, forms.AttachFromConfig),
    _Verb(_move_partition, forms.ToTableConfig),
    _Verb(_freeze, forms.FreezeConfig),
    _Verb(_unfreeze, forms.UnfreezeConfig),
    _Verb(_fetch_partition, forms.FetchConfig),
    _Verb(_check_table, forms.CheckConfig),
    _Verb(_sync_replica, forms.SyncConfig),
    _Verb(_restore_replica, forms.RestoreConfig),
    _Verb(_drop_replica, forms.DropReplicaConfig),
    _Verb(_undo_insert, forms.UndoConfig),
    _Verb(_acknowledge_lost, forms.AcknowledgeConfig),
)


def maintenance_jobs(server: str) -> list[dg.JobDefinition]:
    """The jobs of one server that a person starts, one for each verb."""
    return [_job(server, verb) for verb in VERBS]


def _job(server: str, verb: _Verb) -> dg.JobDefinition:
    name = f"{verb.name}_{names.dagster_name(server)}"

    @dg.op(
        name=f"work_{name}",
        description=verb.description,
        config_schema=forms.schema_of(verb.form),
        out=dg.Out(dg.Nothing, io_manager_key=STORES_NOTHING),
    )
    def work(context: dg.OpExecutionContext, engine: EngineResource) -> None:
        config = _filled_in(verb.form, context.op_config)
        with engine.server(server, purpose=f"run {context.run_id[:8]}") as opened:
            try:
                told = verb.do(Doing(context, opened), config)
            except RmtError as error:
                raise dg.Failure(f"{error.code}. {error}", allow_retries=False) from error
            if getattr(config, "dry_run", False):
                context.log.info("This was a dry run: nothing was changed. %s", _DO_IT)
                told = {"dry run": True, **told}
            context.add_output_metadata(told)

    @dg.job(
        name=name,
        executor_def=dg.in_process_executor,
        tags={
            names.SERVER_TAG: server,
            names.KIND_TAG: "maintenance",
            "dagster/max_retries": "0",  # the person who started it decides
        },
        description=f"{verb.description} Server: {server}.",
    )
    def job() -> None:
        work()

    return job


def _filled_in(form: type[dg.Config], values: Mapping[str, Any]) -> dg.Config:
    try:
        return form(**values)
    except ValidationError as error:
        first = error.errors()[0]
        _refuse_value(str(first["loc"][0]), first["input"], first["msg"])


# --- words ------------------------------------------------------------------------------------


def _sql_name(full_name: str) -> str:
    """The name in backticks, split into database and table as `table_named` splits it."""
    return ".".join(map(in_backticks, full_name.split(".", 1)))


def _did(parts: Sequence[ActivePart]) -> _Told:
    records = [
        dg.TableRecord(
            {
                "part": str(part.name),
                "partition": part.name.partition,
                "rows": part.manifest.rows,
                "bytes": part.manifest.bytes_on_disk,
            }
        )
        for part in parts[:PARTS_SHOWN_MAX]
    ]
    return {
        "parts": len(parts),
        "rows": _rows(parts),
        "bytes": sum(part.manifest.bytes_on_disk for part in parts),
        "which": dg.MetadataValue.table(records, schema=_PARTS_SCHEMA),
    }


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


def _rows(parts: Sequence[ActivePart]) -> int:
    return sum(part.manifest.rows for part in parts)


def _by_partition(parts: Sequence[ActivePart]) -> dict[str, int]:
    """By how many rows each partition grows when these parts go: negative numbers."""
    rows: dict[str, int] = defaultdict(int)
    for part in parts:
        rows[part.name.partition] -= part.manifest.rows
    return rows


def _words(parts: Sequence[ActivePart]) -> str:
    size_bytes = sum(part.manifest.bytes_on_disk for part in parts)
    named = _few([part.name for part in parts])
    return f"{_rows(parts)} rows in {len(parts)} parts, {size_bytes} bytes ({named})"


def _few(found: Sequence[object]) -> str:
    return first_of(found, NAMED_MAX, between=", ") or "none"
