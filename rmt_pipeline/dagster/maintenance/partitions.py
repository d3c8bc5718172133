"""Jobs on whole partitions and parts of a table."""

from typing import Literal

from rmt_pipeline.config import expand
from rmt_pipeline.dagster.maintenance import forms
from rmt_pipeline.dagster.maintenance.doing import (
    Doing,
    Told,
    Verb,
    few_named,
    parts_in_words,
    refuse_value,
    rows_in,
    told_of,
)
from rmt_pipeline.protocol.errors import UnknownTable, UserError
from rmt_pipeline.sql.run.partitions import part_of


def _drop_partitions(run: Doing, config: forms.PartitionsConfig) -> Told:
    return _take_out(run, config, "dropped")


def _detach_partitions(run: Doing, config: forms.PartitionsConfig) -> Told:
    return _take_out(run, config, "detached")


def _take_out(
    run: Doing, config: forms.PartitionsConfig, what: Literal["dropped", "detached"]
) -> Told:
    table = run.table(config.table)
    partitions = list(dict.fromkeys(config.partitions))
    parts = [part for one in partitions for part in run.parts_of(table, one, "partitions")]
    if config.dry_run:
        run.say("these would be %s on every replica: %s", what, parts_in_words(parts))
        return told_of(parts)
    run.say("these are %s on every replica: %s", what, parts_in_words(parts))
    settings = {"alter_sync": config.alter_sync}
    table.drop_partitions(partitions, detach=what == "detached", settings=settings)
    run.emptied(table, parts)
    return told_of(parts)


def _drop_part(run: Doing, config: forms.PartConfig) -> Told:
    table = run.table(config.table)
    active = table.parts()
    parts = [one for one in active if str(one.name) == config.part]
    if not parts:
        there = few_named([one.name for one in active])
        refuse_value("part", config.part, f"no active part is called so. There are: {there}")
    command = "DETACH PART" if config.detach else "DROP PART"
    run.say("%s, on every replica: %s", command, parts_in_words(parts))
    if config.dry_run:
        return told_of(parts)
    settings = {"alter_sync": config.alter_sync}
    table.drop_part(parts[0].name, detach=config.detach, settings=settings)
    run.emptied(table, parts)
    return told_of(parts)


def _truncate(run: Doing, config: forms.TruncateConfig) -> Told:
    table = run.table(config.table)
    parts = table.parts()
    run.say("TRUNCATE TABLE, on every replica: %s", parts_in_words(parts))
    if config.dry_run:
        return told_of(parts)
    table.truncate(settings={"alter_sync": config.alter_sync})
    run.emptied(table, parts)
    return told_of(parts)


def _clear_column(run: Doing, config: forms.ClearColumnConfig) -> Told:
    table = run.table(config.table)
    if table.definition.column(config.column) is None:
        there = few_named([one.name for one in table.definition.columns])
        refuse_value("column", config.column, f"there is no such column. There are: {there}")
    parts = run.parts(table, config.partition)
    run.say("CLEAR COLUMN %s, on every replica: %s", config.column, parts_in_words(parts))
    if config.dry_run:
        return told_of(parts)
    settings = {"alter_sync": config.alter_sync}
    table.clear_column(config.column, config.partition or None, settings=settings)
    return told_of(parts)


def _drop_detached(run: Doing, config: forms.DropDetachedConfig) -> Told:
    table = run.table(config.table)
    if [bool(config.partition), bool(config.name), config.everything].count(True) != 1:
        refuse_value(
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
        refuse_value(field, wanted, "nothing of it is detached here")
    run.say("detached here, and nowhere else: %s", few_named(meant))
    if config.dry_run:
        return {"detached": len(meant), "which": few_named(meant)}
    removed = table.drop_detached(config.partition or None, name=config.name or None)
    return {"removed": len(removed), "which": few_named(removed)}


def _attach_partition(run: Doing, config: forms.AttachConfig) -> Told:
    table = run.table(config.table)
    if config.partition and config.part:
        refuse_value("part", config.part, "name a partition, or one part, not both")
    field, wanted = ("part", config.part) if config.part else ("partition", config.partition)
    detached = [
        one
        for one in table.store.detached_parts.names()
        if wanted in ("", str(one.part) if config.part else one.part.partition)
    ]
    if not detached:
        refuse_value(
            field,
            wanted,
            f"nothing of it is detached on {run.server.server.name}; system.detached_parts shows "
            "what is, on each server its own",
        )
    run.say("detached here: %s", few_named(detached))
    if config.dry_run:
        return {"detached": len(detached), "parts": few_named(detached)}
    attached = table.attach(
        config.partition or None,
        part=part_of(config.part) if config.part else None,
        settings={"alter_sync": config.alter_sync},
    )
    if attached.words():
        run.say("%s", attached.words())
    new = [part for part in table.parts() if part.name in attached.parts]
    return {**told_of(new), "in words": attached.words()}


def _replace_partition(run: Doing, config: forms.FromTableConfig) -> Told:
    table, source = run.table(config.table), run.table(config.from_table, "from_table")
    coming = run.parts_of(source, config.partition)
    going = [one for one in table.parts() if one.name.partition == config.partition]
    verb = "would go" if config.dry_run else "go"
    run.say("%s %s; in their place: %s", parts_in_words(going), verb, parts_in_words(coming))
    if config.dry_run:
        return {**told_of(going), "rows that would come": rows_in(coming)}
    taken = table.replace_partition(
        config.partition, source, settings={"alter_sync": config.alter_sync}
    )
    return {
        "rows": taken.rows,
        "rows that went": taken.rows_gone,
        "parts": few_named(taken.parts),
    }


def _attach_partition_from(run: Doing, config: forms.AttachFromConfig) -> Told:
    table, source = run.table(config.table), run.table(config.from_table, "from_table")
    coming = run.parts_of(source, config.partition)
    run.say("these come beside what is there: %s", parts_in_words(coming))
    if config.dry_run:
        return told_of(coming)
    settings = {"alter_sync": config.alter_sync}
    taken = table.attach_partition(config.partition, source, settings=settings)
    if taken.already:
        run.say("had been attached before, and are not once more: %s", few_named(taken.already))
    return {"rows": taken.rows, "parts": few_named(taken.parts), "already": len(taken.already)}


def _move_partition(run: Doing, config: forms.ToTableConfig) -> Told:
    table, to = run.table(config.table), run.table(config.to_table, "to_table")
    parts = run.parts_of(table, config.partition)
    verb = "would move" if config.dry_run else "move"
    run.say("%s %s to %s", parts_in_words(parts), verb, to.definition.full_name)
    if config.dry_run:
        return told_of(parts)
    taken = table.move_partition(
        config.partition, to, settings={"alter_sync": config.alter_sync}
    )
    return {"rows": taken.rows, "parts": few_named(taken.parts)}


def _freeze(run: Doing, config: forms.FreezeConfig) -> Told:
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
        "which": few_named(names_of),
        "snapshot": snapshot,
        "directory": directory,
    }


def _unfreeze(run: Doing, config: forms.UnfreezeConfig) -> Told:
    table = run.table(config.table)
    snapshot = table.frozen_parts.snapshot(config.name)
    parts = [
        part.name
        for frozen in snapshot
        for part in frozen.parts
        if config.partition in ("", part.name.partition)
    ]
    if not parts:
        refuse_value("name", config.name, "no snapshot of that name has anything of it here")
    run.say("the snapshot %s has %s", config.name, few_named(parts))
    if config.dry_run:
        return {"parts": len(parts), "which": few_named(parts)}
    table.unfreeze(config.name, config.partition or None)
    return {"parts": len(parts), "which": few_named(parts)}


def _fetch_partition(run: Doing, config: forms.FetchConfig) -> Told:
    table = run.table(config.table)
    if bool(config.partition) == bool(config.part):
        refuse_value("partition", config.partition, "name a partition by its id, or one part")
    definition = table.definition
    macros = run.server.server.macros_for(definition.database, definition.name)
    try:
        part = part_of(config.part) if config.part else None
    except UserError as error:
        refuse_value("part", config.part, str(error))
    try:
        path = expand(config.from_path, macros)
        fetched = table.fetch_partition(path, config.partition, part=part)
    except UnknownTable as error:
        refuse_value("from_path", config.from_path, str(error))
    run.say("in detached/ of this server are now: %s", few_named(fetched.parts))
    return {
        "parts": len(fetched.parts),
        "which": few_named(fetched.parts),
        "brought by an earlier try": few_named(fetched.kept) if fetched.kept else "none",
    }


PARTITION_VERBS = (
    Verb(
        _drop_partitions,
        forms.PartitionsConfig,
        "DROP PARTITION: removes whole partitions, on every replica.",
    ),
    Verb(
        _detach_partitions,
        forms.PartitionsConfig,
        "DETACH PARTITION: takes whole partitions out of the table; each server keeps them in "
        "detached/.",
    ),
    Verb(_drop_part, forms.PartConfig),
    Verb(_truncate, forms.TruncateConfig),
    Verb(_clear_column, forms.ClearColumnConfig),
    Verb(_drop_detached, forms.DropDetachedConfig),
    Verb(_attach_partition, forms.AttachConfig),
    Verb(_replace_partition, forms.FromTableConfig),
    Verb(_attach_partition_from, forms.AttachFromConfig),
    Verb(_move_partition, forms.ToTableConfig),
    Verb(_freeze, forms.FreezeConfig),
    Verb(_unfreeze, forms.UnfreezeConfig),
    Verb(_fetch_partition, forms.FetchConfig),
)
