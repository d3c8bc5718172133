"""The forms for the jobs of `maintenance`, which a person fills in: in the UI's launchpad, or as
run config.

The form of a job that can lose rows has `dry_run`, which is on unless it is switched off.
"""

from typing import Any, Literal, get_origin

import dagster as dg
from pydantic import Field
from pydantic.fields import FieldInfo


def schema_of(form: type[dg.Config]) -> dg.Field:
    """The config schema of a form. The launchpad opens with all fields, and those that have to be
    filled in are empty. A run config that leaves out such a field fails with an error that names
    it.
    """
    empty = {name: _empty(field) for name, field in form.model_fields.items()}
    return dg.Field(form.to_config_schema().config_type, default_value=empty)


def _empty(field: FieldInfo) -> Any:
    if not field.is_required():
        return field.get_default(call_default_factory=True)
    return [] if get_origin(field.annotation) is list else ""


class TableForm(dg.Config):
    """The table that the job is for."""

    table: str = Field(
        description="The table, as database.table; without a database, the one of `default`."
    )


class _DryRun(dg.Config):
    dry_run: bool = Field(
        default=True,
        description="Only say what would be done: which parts, how many rows and bytes. Switch it "
        "off to do it.",
    )


class _Waits(dg.Config):
    alter_sync: int = Field(
        default=1,
        ge=0,
        le=3,
        description="Whom to wait for: 0 nobody, 1 this server's replica, 2 all replicas, 3 those "
        "that are active. It happens on all of them in any case.",
    )


class OptimizeConfig(TableForm, _DryRun, _Waits):
    """OPTIMIZE TABLE: merge parts now."""

    partition: str = Field(
        default="",
        description="The id of one partition (partition_id in system.parts). Empty: all.",
    )
    final: bool = Field(
        default=False, description="Make one part of each partition, even if it is one already."
    )
    deduplicate: bool = Field(
        default=False, description="Of rows that are equal keep one: the others are lost."
    )
    deduplicate_by: list[str] = Field(
        default_factory=list,
        description="With deduplicate: rows are equal when these columns are. None: all columns.",
    )


class MutateConfig(TableForm, _DryRun):
    """ALTER TABLE … UPDATE or DELETE: rewrites every part with rows for which WHERE holds."""

    commands: str = Field(
        description="What follows ALTER TABLE t, e.g. DELETE WHERE id = 7, or UPDATE price = 0 "
        "WHERE price < 0; several with commas between them."
    )
    mutations_sync: int = Field(
        default=1,
        ge=0,
        le=2,
        description="Whom to wait for: 0 nobody, 1 this server's replica, 2 all replicas.",
    )


class PartitionsConfig(TableForm, _DryRun, _Waits):
    """Drops or detaches whole partitions, on every replica."""

    partitions: list[str] = Field(
        description="Ids of the partitions: partition_id in system.parts, and the names of the "
        "table's partitions in Dagster.",
        min_length=1,
    )


class PartConfig(TableForm, _DryRun, _Waits):
    """DROP PART, DETACH PART: one active part and no other, on every replica."""

    part: str = Field(description="The part's name, as system.parts shows it.")
    detach: bool = Field(
        default=False, description="DETACH: each server keeps it in detached/, for ATTACH."
    )


class TruncateConfig(TableForm, _DryRun, _Waits):
    """TRUNCATE TABLE: removes every row, on every replica. Columns and settings stay."""


class DropDetachedConfig(TableForm, _DryRun):
    """DROP DETACHED: deletes directories in detached/ of this server, of which there may be no
    other copy.
    """

    partition: str = Field(
        default="", description="The id of one partition. Empty: the one directory below."
    )
    name: str = Field(
        default="",
        description="The name of one directory, as system.detached_parts shows it, instead of a "
        "partition.",
    )
    everything: bool = Field(
        default=False, description="All that is detached here, instead of either."
    )


class ClearColumnConfig(TableForm, _DryRun, _Waits):
    """CLEAR COLUMN: existing rows get the column's default value, on every replica."""

    column: str = Field(description="The column whose values go; it stays.")
    partition: str = Field(default="", description="The id of one partition. Empty: all.")


class DropTableConfig(TableForm, _DryRun):
    """DROP TABLE: removes this server's replica; the other servers keep theirs."""

    sync: bool = Field(
        default=False,
        description="The rows are gone when it returns. Otherwise `undrop_table` can bring the "
        "table back for some minutes.",
    )


class UndropTableConfig(TableForm):
    """UNDROP TABLE: brings back a table that was dropped on this server some minutes ago."""

    uuid: str = Field(
        default="",
        description="Which of several dropped tables of that name, as in "
        "system.dropped_tables. Empty: the last one.",
    )


class StatementConfig(_DryRun):
    """One statement, carried out as by `rmt sql`, for what has no form of its own."""

    statement: str = Field(
        description="E.g. RENAME TABLE a TO b, DETACH TABLE t, CREATE TABLE … ON CLUSTER c. What "
        "it answers is shown, up to some rows."
    )


class AttachConfig(TableForm, _Waits):
    """ATTACH: what was detached on this server becomes part of the table again."""

    dry_run: bool = Field(default=False, description="Only say what there is to be attached.")
    partition: str = Field(
        default="", description="The id of one partition. Empty: all that is detached here."
    )
    part: str = Field(
        default="", description="The name of one detached part, instead of a partition."
    )


class FromTableConfig(TableForm, _DryRun, _Waits):
    """REPLACE PARTITION … FROM: another table's rows take the place of the partition's rows."""

    partition: str = Field(description="The id of the partition, the same in both tables.")
    from_table: str = Field(
        description="The table whose rows come, of the same columns and keys; it keeps them."
    )


class AttachFromConfig(TableForm, _Waits):
    """ATTACH PARTITION … FROM: adds another table's rows of the partition to those of
    this table.
    """

    dry_run: bool = Field(default=False, description="Only say which parts would come.")
    partition: str = Field(description="The id of the partition, the same in both tables.")
    from_table: str = Field(
        description="The table whose rows come, of the same columns and keys; it keeps them."
    )


class ToTableConfig(TableForm, _DryRun, _Waits):
    """MOVE PARTITION … TO TABLE: moves the partition's rows to another table, in one commit."""

    partition: str = Field(description="The id of the partition, the same in both tables.")
    to_table: str = Field(
        description="The table that gets its rows, of the same columns and keys."
    )


class FreezeConfig(TableForm):
    """FREEZE: makes hard links to this server's active parts, which stay whatever happens to the
    table.
    """

    partition: str = Field(default="", description="The id of one partition. Empty: all.")
    name: str = Field(
        default="",
        description="The snapshot's name; it may have parts of other tables and partitions too. "
        "Empty: the next number.",
    )


class UnfreezeConfig(TableForm, _DryRun):
    """UNFREEZE: deletes what a snapshot on this server has of the table."""

    name: str = Field(description="The snapshot's name, as FREEZE told it.")
    partition: str = Field(default="", description="The id of one partition. Empty: all.")


class FetchConfig(TableForm):
    """FETCH: copies parts of another table's replicas into detached/ of this server, for ATTACH."""

    from_path: str = Field(
        description="The other table's path in ZooKeeper; {macros} are this server's."
    )
    partition: str = Field(
        default="", description="The id of the partition. Empty: the one part below."
    )
    part: str = Field(default="", description="The name of one part, instead of a partition.")


class CheckConfig(TableForm):
    """CHECK TABLE: reads every byte. A broken part is given up, and fetched from
    another replica.
    """

    partition: str = Field(default="", description="The id of one partition. Empty: all.")


class SyncConfig(TableForm):
    """SYSTEM SYNC REPLICA: waits until this server has carried out what is in the log now."""

    mode: Literal["DEFAULT", "STRICT", "LIGHTWEIGHT", "PULL"] = Field(
        default="DEFAULT",
        description="DEFAULT: what is in the log now. STRICT: until the queue is empty. "
        "LIGHTWEIGHT: no merges and mutations. PULL: only copy the log into the queue.",
    )
    timeout_s: float = Field(
        default=300.0,
        gt=0,
        description="Seconds to wait; then the run fails and says for what.",
    )


class RestoreConfig(TableForm):
    """SYSTEM RESTORE REPLICA: makes what ZooKeeper has lost again, from this server's disk."""

    dry_run: bool = Field(
        default=True, description="Only say which parts of this disk would be announced."
    )


class DropReplicaConfig(_DryRun):
    """SYSTEM DROP REPLICA: removes what a server that is gone for good has left in ZooKeeper."""

    replica: str = Field(
        description="The replica's name in ZooKeeper; its server must not run."
    )
    table: str = Field(
        default="",
        description="database.table of one table. Empty: every table of this server that has it.",
    )


class UndoConfig(TableForm, _DryRun, _Waits):
    """Undo an insert: removes exactly its rows, on every replica; the same rows can be inserted
    again.
    """

    insert_id: str = Field(
        description="The insert's id, as in the event of its asset, system.inserts and "
        "`rmt inserts`."
    )


class AcknowledgeConfig(TableForm):
    """Acknowledges the parts lost on all replicas so far, so that the check `lost` of this server
    passes.
    """

    note: str = Field(default="", description="For who looks later: what became of the rows.")
