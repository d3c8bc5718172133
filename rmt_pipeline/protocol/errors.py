"""The errors that this project raises on purpose, sorted by what the caller must do next.

RmtError
├── Conflict          the world moved; nothing was written. Re-read and decide again.
│   └── Refused       ZooKeeper refused one operation of a multi (which, and why).
├── OutcomeUnknown    the write may or may not have landed. Find out before anything else.
├── Corruption        stored bytes are not what we wrote. Quarantine, then re-fetch.
├── ReplicaRetired    this session may no longer act. Stop and start over.
│   ├── ReplicaDropped    nor may any other: the replica is gone from ZooKeeper.
│   └── NoNextSession     nor may this work go on in another one: it is begun again there.
├── Unavailable       a peer or service cannot be reached now. Retry later.
└── UserError         what was asked cannot be done as asked; nothing was changed.
                      One subclass per mistake; `code` is ClickHouse's name for it.

Every error message names the thing, the value and the remedy.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmt_pipeline.protocol.parts.name import PartName


class RmtError(Exception):
    """Base of every error this project raises on purpose. `code` is the original's
    error name.
    """

    code = "RMT_ERROR"


TABLE_FAILS = (RmtError, OSError)
"""What may be wrong with one table, or with its disk, while others can still be looked at. Without
ZooKeeper none can: ZooKeeperUnreachable is an RmtError, too, and comes first.
"""


def error_words(error: RmtError | OSError) -> str:
    """An error in a line for people, with its code if it is one of ours."""
    if isinstance(error, RmtError):
        return f"Code: {error.code}. {error}"
    return f"Code: SYSTEM_ERROR. {error}"


class Conflict(RmtError):
    """The world moved; nothing was written. Re-read and decide again."""

    code = "CONFLICT"


class OutcomeUnknown(RmtError):
    """The write may or may not have landed. Find out before anything else; never
    clean up under it.
    """

    code = "UNKNOWN_STATUS_OF_INSERT"


class Corruption(RmtError):
    """Stored bytes (disk, ZooKeeper, a peer's answer) are not what we wrote.

    `part` is the part on this disk that they belong to, if that is known.
    """

    code = "CORRUPTED_DATA"

    def __init__(self, message: str, *, part: "PartName | None" = None) -> None:
        super().__init__(message)
        self.part = part


class ReplicaRetired(RmtError):
    """This ZooKeeper session is over. Its keeper refuses every call; start over with a new one."""

    code = "SESSION_EXPIRED"


class ReplicaDropped(ReplicaRetired):
    """This replica has no nodes in ZooKeeper any more, and no new session brings them back. Create
    the table anew, or DROP TABLE here too.
    """

    code = "TABLE_IS_DROPPED"


class NoNextSession(ReplicaRetired):
    """The session is over in which a statement ON CLUSTER was begun. What became of it is looked at
    anew in the next one, so whoever asks until there is an answer ends at once.
    """


class Unavailable(RmtError):
    """A peer or service cannot be reached now; nothing was changed here. Retry later."""

    code = "NETWORK_ERROR"


class YetToDrop(Unavailable):
    """This replica has parts that a drop takes, the queue entry `node`, and others were to come
    beside them. Nothing was changed.
    """

    def __init__(self, message: str, *, node: str = "") -> None:
        super().__init__(message)
        self.node = node


class UserError(RmtError):
    """What was asked cannot be done as asked; nothing was changed."""

    code = "BAD_ARGUMENTS"


class NoReplicaHasPart(Unavailable):
    """No replica that answers has the wanted part, or one that contains it. The fetch is retried
    automatically: a replica that is away may come back, or a merge may bring the rows.
    """

    code = "NO_REPLICA_HAS_PART"


class ZooKeeperUnreachable(Unavailable):
    """No ZooKeeper answered in time, or it refused the connection. Start it, or correct its
    addresses in rmt.toml; commands may then be repeated.
    """

    code = "NO_ZOOKEEPER"


class AccessDenied(Unavailable):
    """ZooKeeper does not let us read or write a node: its access list does not name us. It is tried
    again, in case an administrator changes the list or the configuration.
    """

    code = "KEEPER_EXCEPTION"


class TableIsReadOnly(Unavailable):
    """The replica is not active: its server is not running, or is starting over. Start the server
    (`rmt serve`), then repeat the statement.
    """

    code = "TABLE_IS_READ_ONLY"


class Timeout(Unavailable):
    """The expected change did not happen in time. It may still happen: the message says what is
    missing, and which replica or server is to bring it.
    """

    code = "TIMEOUT_EXCEEDED"


class Unfinished(Unavailable):
    """The command is in the log and will be carried out; waiting for it ended first. Don't repeat
    it: look at `system.replication_queue`, or wait with SYSTEM SYNC REPLICA.
    """

    code = "UNFINISHED"


class QueryTooSlow(UserError):
    """The statement took longer than `max_execution_time`. Nothing was changed."""

    code = "TIMEOUT_EXCEEDED"


class QueryInterrupted(UserError):
    """KILL QUERY, or Ctrl-C, ended the statement. Nothing was changed."""

    code = "QUERY_WAS_CANCELLED"


class CannotKill(UserError):
    """KILL QUERY may not end the statement of another account."""

    code = "CANNOT_KILL"


class UnknownCluster(UserError):
    """ON CLUSTER names a cluster that rmt.toml has no section for. The message lists those that it
    has.
    """

    code = "CLUSTER_DOESNT_EXIST"


class UnknownTable(UserError):
    """This server has no table of that name, or the table that was opened has been dropped, renamed
    or created again since. Look at SHOW TABLES.
    """

    code = "UNKNOWN_TABLE"


class TableDetached(UnknownTable):
    """The table exists and was detached from this server by DETACH TABLE. ATTACH TABLE brings it
    back.
    """


class UnknownDatabase(UserError):
    """This server has no database of that name: see SHOW DATABASES, or CREATE DATABASE."""

    code = "UNKNOWN_DATABASE"


class DatabaseNotEmpty(UserError):
    """DROP DATABASE of a database that still has tables, attached or detached. Drop them first."""

    code = "DATABASE_NOT_EMPTY"


class SamplingNotSupported(UserError):
    """SELECT … SAMPLE of a table that was created without SAMPLE BY."""

    code = "SAMPLING_NOT_SUPPORTED"


class IllegalFinal(UserError):
    """SELECT … FINAL of a table whose engine leaves all rows when it merges."""

    code = "ILLEGAL_FINAL"


class SampleOutOfBound(UserError):
    """OFFSET after a SAMPLE of all rows, such as `SAMPLE 1 OFFSET 0.5`, which leaves no rows."""

    code = "ARGUMENT_OUT_OF_BOUND"


class IncorrectQuery(UserError):
    """The statement is well formed but has nothing to work on, such as MATERIALIZE TTL of a table
    without a TTL.
    """

    code = "INCORRECT_QUERY"


class ColumnWithoutDefault(UserError):
    """MATERIALIZE COLUMN of a column that has neither DEFAULT nor MATERIALIZED: nothing says which
    values to compute.
    """


class TableAlreadyExists(UserError):
    """The name is taken by another table on this server, attached, detached or being dropped.
    Choose another one, or IF NOT EXISTS.
    """

    code = "TABLE_ALREADY_EXISTS"


class DatabaseAlreadyExists(UserError):
    """The name is taken by another database on this server. Choose another one, or IF NOT
    EXISTS.
    """

    code = "DATABASE_ALREADY_EXISTS"


class ReplicaAlreadyExists(UserError):
    """A replica of this name is already in ZooKeeper at this path, made by another server or by an
    earlier table of this one. Give the new one another name, ATTACH the old one where it was
    created, or remove it with SYSTEM DROP REPLICA.
    """

    code = "REPLICA_ALREADY_EXISTS"


class ReplicaIsActive(UserError):
    """SYSTEM DROP REPLICA and similar statements remove only dead replicas, and this one is active.
    Stop its server first.
    """

    code = "TABLE_WAS_NOT_DROPPED"


class ReplicaIsAlreadyActive(UserError):
    """Another process serves this replica, or runs as this server. Stop it, or give this one
    another replica name, server name and data directory.
    """

    code = "REPLICA_IS_ALREADY_ACTIVE"


class MetadataMismatch(UserError):
    """The table's definition here differs from the one in ZooKeeper, in a key, the engine or a
    column. The message has the first difference; CREATE the table as it is in ZooKeeper.
    """

    code = "METADATA_MISMATCH"


class UnknownColumn(UserError):
    """An expression, key or list of columns names a column that is not known there. The message
    names columns with similar names.
    """

    code = "UNKNOWN_IDENTIFIER"


class NoSuchColumn(UnknownColumn):
    """ALTER or INSERT names a column to write or to change that the table does not have."""

    code = "NO_SUCH_COLUMN_IN_TABLE"


class UnknownType(UserError):
    """The text is not a type that columns can have: it is misspelt, has wrong parameters, or is a
    type of the original that is not supported. The message says which.
    """

    code = "UNKNOWN_TYPE"


class UnknownFunction(UserError):
    """An expression calls a function that is not in the allow-list, `system.functions`. The message
    names functions with similar names.
    """

    code = "UNKNOWN_FUNCTION"


class UnknownSetting(UserError):
    """SET, SETTINGS or rmt.toml names a setting that does not exist. The message names settings
    with similar names.
    """

    code = "UNKNOWN_SETTING"


class UnknownEngine(UserError):
    """CREATE TABLE names an engine that does not belong to the ReplicatedMergeTree family."""

    code = "UNKNOWN_STORAGE"


class BadValue(UserError):
    """A value does not fit its column. The message has the row (line), column, value and type."""

    code = "CANNOT_PARSE_TEXT"


class BadDate(BadValue):
    """A text is not a date, such as 'soon' for a column of type Date."""

    code = "CANNOT_PARSE_DATE"


class BadTime(BadValue):
    """A text is not a date with a time, such as '25:00' for a column of type DateTime."""

    code = "CANNOT_PARSE_DATETIME"


class UnequalArrays(BadValue):
    """The arrays of one Nested group have different lengths in a row."""

    code = "SIZES_OF_ARRAYS_DONT_MATCH"


class ViolatedConstraint(UserError):
    """A CHECK of the table does not hold for a row."""

    code = "VIOLATED_CONSTRAINT"


class IncorrectData(UserError):
    """A file or stream of rows can't be read in the given format. The message has the line; nothing
    was inserted.
    """

    code = "INCORRECT_DATA"


class SyntaxProblem(UserError):
    """The text is not a valid statement, expression or TTL. The message has line and column, and
    what was expected there.
    """

    code = "SYNTAX_ERROR"


class AssignedTwice(SyntaxProblem):
    """One UPDATE assigns two values to the same column."""

    code = "MULTIPLE_ASSIGNMENTS_TO_COLUMN"


class NotReadBack(SyntaxProblem):
    """The text of a mutation, or of an expression in a table's definition, which replicas would
    carry out, does not mean what its statement says, or can't be read.
    """


class BadPartName(UserError):
    """DROP PART or a similar statement gives a text that can't be a part's name. An example of a
    name is `20240101_0_5_1`.
    """

    code = "BAD_DATA_PART_NAME"


class NotImplementedStatement(UserError):
    """A statement of the original that is not implemented in this version."""

    code = "NOT_IMPLEMENTED"


class NotOnCluster(UserError):
    """The statement exists, but not with ON CLUSTER."""

    code = "QUERY_IS_PROHIBITED"


class TooManyParts(UserError):
    """An insert is refused because merges or clean-up are behind (`parts_to_throw_insert`,
    `max_parts_in_total`, `inactive_parts_to_throw_insert`). Insert larger blocks less often, or see
    why they are behind.
    """

    code = "TOO_MANY_PARTS"


class TooManyMutations(UserError):
    """A mutation is refused because `number_of_mutations_to_throw` of them are unfinished. Wait for
    some, or KILL MUTATION those that fail.
    """

    code = "TOO_MANY_MUTATIONS"


class TooManyPartitions(UserError):
    """One insert, or one mutation, touches more partitions than it may at once. Do it in pieces, or
    choose a coarser PARTITION BY.
    """

    code = "TOO_MANY_PARTS"


class TooManyColumns(UserError):
    """The texts of a table's columns are more than one transaction of ZooKeeper can write. Make
    fewer columns, or shorter types, defaults and comments.
    """

    code = "TOO_MANY_COLUMNS"


class CannotAssignOptimize(UserError):
    """OPTIMIZE with `optimize_throw_if_noop` found nothing to merge. The message has the reason for
    each partition.
    """

    code = "CANNOT_ASSIGN_OPTIMIZE"


class BadConfiguration(UserError):
    """A configuration file has an unknown key, a wrong value, or another server's directory."""

    code = "INVALID_CONFIG_PARAMETER"


class AddressInUse(UserError):
    """Another program listens on the port that a server is to use. End that program, or change the
    port in rmt.toml.
    """

    code = "ADDRESS_IN_USE"


class DiskFull(UserError):
    """The disk has no space left. Nothing was published; staged bytes were removed."""

    code = "NOT_ENOUGH_SPACE"


class NoJava(UserError):
    """ZooKeeper (embedded) and Spark run on Java, and no Java that is new enough was found."""

    code = "NO_JAVA"


class MissingPart(Corruption):
    """A promised part is not on this disk, or was removed while it was being read."""

    code = "NO_SUCH_DATA_PART"


class DuplicateColumn(UserError):
    """A list of columns in CREATE TABLE, ALTER or INSERT has the same name twice."""

    code = "DUPLICATE_COLUMN"


class BadTypeOfField(UserError):
    """A column's type is not allowed for its use (as sign, version, key or TTL)."""

    code = "BAD_TYPE_OF_FIELD"


class IllegalColumn(UserError):
    """A column is used where such columns are not allowed (a key, the columns of an INSERT)."""

    code = "ILLEGAL_COLUMN"


class IllegalIndex(UserError):
    """An index that a table can't have, such as a second one of the same name."""

    code = "ILLEGAL_INDEX"


class UnknownFormat(UserError):
    """FORMAT names a format that rows can't be read or written in, or a file's name does not tell
    its format. The message lists the known ones.
    """

    code = "UNKNOWN_FORMAT"


class BadTtl(UserError):
    """A TTL expression does not give a time, or can't be used for a TTL."""

    code = "BAD_TTL_EXPRESSION"
