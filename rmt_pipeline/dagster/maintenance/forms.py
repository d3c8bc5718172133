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
        description="The table, as database.table. Without a database: a table of `default`."
    )


class _DryRun(dg.Config):
    dry_run: bool = Field(
        default=True,
        description="Change nothing, only show what would be done: which parts, how many rows "
        "and bytes. Set it to false to do it.",
    )


class _Waits(dg.Config):
    alter_sync: int = Field(
        default=1,
        ge=0,
        le=3,
        description="When the run ends. 0: at once; 1: when this server has done it; 2: when all "
        "replicas have; 3: when all active replicas have. All replicas do it in any case.",
    )


class OptimizeConfig(TableForm, _DryRun, _Waits):
    """OPTIMIZE: merges parts of a table now."""

    partition: str = Field(
        default="",
        description="The id of one partition (partition_id in system.parts). Empty: all "
        "partitions.",
    )
    final: bool = Field(
        default=False,
        description="Merge each partition into one part; rewrite it even if it is one already.",
    )
    deduplicate: bool = Field(
        default=False,
        description="Remove duplicate rows: of rows that are equal only one is kept.",
    )
    deduplicate_by: list[str] = Field(
        default_factory=list,
        description="Only with deduplicate: the columns that are compared. Empty: all columns.",
    )


class MutateConfig(TableForm, _DryRun):
    """ALTER TABLE … UPDATE or DELETE: changes or deletes the rows for which WHERE holds."""

    commands: str = Field(
        description="What follows ALTER TABLE t, e.g. DELETE WHERE id = 7, or UPDATE price = 0 "
        "WHERE price < 0. Separate several commands by commas."
    )
    mutations_sync: int = Field(
        default=1,
        ge=0,
        le=2,
        description="When the run ends. 0: at once; 1: when this server has rewritten its parts; "
        "2: when all replicas have. All replicas do it in any case.",
    )


class PartitionsConfig(TableForm, _DryRun, _Waits):
    """The partitions to drop or detach."""

    partitions: list[str] = Field(
        description="The ids of the partitions: partition_id in system.parts. The table's "
        "partitions in Dagster have the same names.",
        min_length=1,
    )


class PartConfig(TableForm, _DryRun, _Waits):
    """DROP PART or DETACH PART: takes one active part out of the table, on every replica."""

    part: str = Field(description="The part's name, as system.parts shows it.")
    detach: bool = Field(
        default=False,
        description="Detach it: each server keeps the part in detached/, and the job "
        "attach_partition brings it back. Otherwise it is deleted.",
    )


class TruncateConfig(TableForm, _DryRun, _Waits):
    """TRUNCATE TABLE: removes every row, on every replica. Columns and settings stay."""


class DropDetachedConfig(TableForm, _DryRun):
    """DROP DETACHED: deletes directories in detached/ of this server. They may be the only copy of
    their rows. Fill in exactly one of partition, name and everything.
    """

    partition: str = Field(
        default="", description="Delete what is detached of this partition (its id)."
    )
    name: str = Field(
        default="",
        description="Delete the one directory of this name, as system.detached_parts shows it.",
    )
    everything: bool = Field(
        default=False, description="Delete everything that is detached on this server."
    )


class ClearColumnConfig(TableForm, _DryRun, _Waits):
    """CLEAR COLUMN: existing rows get the column's default value, on every replica."""

    column: str = Field(description="The column. It stays in the table; its values are lost.")
    partition: str = Field(
        default="", description="The id of one partition. Empty: all partitions."
    )


class DropTableConfig(TableForm, _DryRun):
    """DROP TABLE: removes this server's replica; the other servers keep theirs."""

    sync: bool = Field(
        default=False,
        description="Delete the rows at once. Otherwise the job undrop_table can bring the table "
        "back for some minutes.",
    )


class UndropTableConfig(TableForm):
    """UNDROP TABLE: brings back a table that was dropped on this server some minutes ago."""

    uuid: str = Field(
        default="",
        description="If several dropped tables have that name: which one, as in "
        "system.dropped_tables. Empty: the one that was dropped last.",
    )


class StatementConfig(_DryRun):
    """Runs one SQL statement as `rmt sql` does, for what has no job of its own."""

    statement: str = Field(
        description="For example RENAME TABLE a TO b, DETACH TABLE t, or CREATE TABLE … ON "
        "CLUSTER c. The run shows the first rows of the answer."
    )


class AttachConfig(TableForm, _Waits):
    """ATTACH: brings back into the table what was detached on this server. All replicas get it."""

    dry_run: bool = Field(
        default=False, description="Change nothing, only show what would come."
    )
    partition: str = Field(
        default="", description="The id of one partition. Empty: everything detached here."
    )
    part: str = Field(
        default="", description="Or one detached part, by its name; leave partition empty then."
    )


class FromTableConfig(TableForm, _DryRun, _Waits):
    """REPLACE PARTITION … FROM: replaces the partition's rows by those of another table."""

    partition: str = Field(description="The id of the partition, the same in both tables.")
    from_table: str = Field(
        description="The table to copy the rows from. It keeps them, and must have the same "
        "columns and keys."
    )


class AttachFromConfig(TableForm, _Waits):
    """ATTACH PARTITION … FROM: adds another table's rows of the partition to those of
    this table.
    """

    dry_run: bool = Field(
        default=False, description="Change nothing, only show what would come."
    )
    partition: str = Field(description="The id of the partition, the same in both tables.")
    from_table: str = Field(
        description="The table to copy the rows from. It keeps them, and must have the same "
        "columns and keys."
    )


class ToTableConfig(TableForm, _DryRun, _Waits):
    """MOVE PARTITION … TO TABLE: moves the partition's rows to another table, in one commit."""

    partition: str = Field(description="The id of the partition, the same in both tables.")
    to_table: str = Field(
        description="The table to move the rows to. It must have the same columns and keys."
    )


class FreezeConfig(TableForm):
    """FREEZE: makes a snapshot of this server's active parts. It consists of hard links, and stays
    whatever happens to the table.
    """

    partition: str = Field(
        default="", description="The id of one partition. Empty: all partitions."
    )
    name: str = Field(
        default="",
        description="The snapshot's name. Several tables and partitions may share a snapshot. "
        "Empty: the next number.",
    )


class UnfreezeConfig(TableForm, _DryRun):
    """UNFREEZE: deletes the table's parts from a snapshot on this server."""

    name: str = Field(description="The snapshot's name, as the job freeze showed it.")
    partition: str = Field(
        default="", description="The id of one partition. Empty: all partitions."
    )


class FetchConfig(TableForm):
    """FETCH: copies parts from another table's replicas into detached/ of this server. The job
    attach_partition then adds them to the table. Fill in either partition or part.
    """

    from_path: str = Field(
        description="The other table's path in ZooKeeper. Macros like {shard} are replaced by "
        "this server's values."
    )
    partition: str = Field(default="", description="The id of the partition to copy.")
    part: str = Field(default="", description="Or the name of one part to copy.")


class CheckConfig(TableForm):
    """CHECK TABLE: reads every byte of this server's parts. A broken part is removed and fetched
    from another replica.
    """

    partition: str = Field(
        default="", description="The id of one partition. Empty: all partitions."
    )


class SyncConfig(TableForm):
    """SYSTEM SYNC REPLICA: waits until this server has carried out what is in the log now."""

    mode: Literal["DEFAULT", "STRICT", "LIGHTWEIGHT", "PULL"] = Field(
        default="DEFAULT",
        description="DEFAULT: wait for what is in the log now. STRICT: wait until the queue is "
        "empty. LIGHTWEIGHT: do not wait for merges and mutations. PULL: only copy the log into "
        "the queue.",
    )
    timeout_s: float = Field(
        default=300.0,
        gt=0,
        description="How many seconds to wait. After that the run fails and says what it waited "
        "for.",
    )


class RestoreConfig(TableForm):
    """SYSTEM RESTORE REPLICA: after ZooKeeper has lost the table, makes it there anew from this
    server's disk.
    """

    dry_run: bool = Field(
        default=True, description="Change nothing, only show which parts this disk has."
    )


class DropReplicaConfig(_DryRun):
    """SYSTEM DROP REPLICA: removes a replica from ZooKeeper whose server is gone for good."""

    replica: str = Field(
        description="The replica's name in ZooKeeper. Its server must not be running."
    )
    table: str = Field(
        default="",
        description="One table, as database.table. Empty: every table of this server that has "
        "such a replica.",
    )


class UndoConfig(TableForm, _DryRun, _Waits):
    """Undo an insert: removes exactly its rows, on every replica. The same rows can be inserted
    again afterwards.
    """

    insert_id: str = Field(
        description="The insert's id. It is in the event of the asset that inserted, in "
        "system.inserts, and in what `rmt inserts` prints."
    )


class AcknowledgeConfig(TableForm):
    """Acknowledges the parts lost on all replicas so far, so that the check `lost` of this server
    passes.
    """

    note: str = Field(
        default="", description="A note for later readers, e.g. what became of the rows."
    )
