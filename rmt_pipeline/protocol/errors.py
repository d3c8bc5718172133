"""What can go wrong, sorted by what the caller must do next.

RmtError
├── Conflict          the world moved; nothing was written. Re-read and decide again.
│   └── Refused       ZooKeeper refused one operation of a multi (which, and why).
├── OutcomeUnknown    the write may or may not have landed. Find out before anything else.
├── Corruption        stored bytes are not what we wrote. Quarantine, then re-fetch.
├── ReplicaRetired    this session may no longer act. Stop and start over.
│   └── ReplicaDropped    nor may any other: the replica is gone from ZooKeeper.
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

    `part` is the one on this disk that they belong to, where that is known.
    """

    code = "CORRUPTED_DATA"

    def __init__(self, message: str, *, part: "PartName | None" = None) -> None:
        super().__init__(message)
        self.part = part


class ReplicaRetired(RmtError):
    """This ZooKeeper session is over. Its keeper refuses everything; start over with
    a new one.
    """

    code = "SESSION_EXPIRED"


class ReplicaDropped(ReplicaRetired):
    """This replica has no nodes in ZooKeeper any more. No session will have them again: create it
    anew, or DROP TABLE here too.
    """

    code = "TABLE_IS_DROPPED"


class Unavailable(RmtError):
    """A peer or service cannot be reached now; nothing was changed here. Retry later."""

    code = "NETWORK_ERROR"


class UserError(RmtError):
    """What was asked cannot be done as asked; nothing was changed."""

    code = "BAD_ARGUMENTS"


class NoReplicaHasPart(Unavailable):
    code = "NO_REPLICA_HAS_PART"


class ZooKeeperUnreachable(Unavailable):
    code = "NO_ZOOKEEPER"


class AccessDenied(Unavailable):
    """ZooKeeper does not let us read or write a node: its access list is for others. Whoever may
    change the list, or the configuration, can mend it while we try.
    """

    code = "KEEPER_EXCEPTION"


class TableIsReadOnly(Unavailable):
    """The replica is not active (its server is not running, or is starting over)."""

    code = "TABLE_IS_READ_ONLY"


class Timeout(Unavailable):
    code = "TIMEOUT_EXCEEDED"


class Unfinished(Unavailable):
    """The command is in the log and will be carried out; waiting for it ended first."""

    code = "UNFINISHED"


class UnknownCluster(UserError):
    code = "CLUSTER_DOESNT_EXIST"


class UnknownTable(UserError):
    code = "UNKNOWN_TABLE"


class TableDetached(UnknownTable):
    """It is there, and the server was told not to serve it."""


class UnknownDatabase(UserError):
    code = "UNKNOWN_DATABASE"


class DatabaseNotEmpty(UserError):
    code = "DATABASE_NOT_EMPTY"


class SamplingNotSupported(UserError):
    code = "SAMPLING_NOT_SUPPORTED"


class SampleOutOfBound(UserError):
    code = "ARGUMENT_OUT_OF_BOUND"


class IncorrectQuery(UserError):
    code = "INCORRECT_QUERY"


class ColumnWithoutDefault(UserError):
    """A column whose values nothing says how to compute."""


class TableAlreadyExists(UserError):
    code = "TABLE_ALREADY_EXISTS"


class DatabaseAlreadyExists(UserError):
    code = "DATABASE_ALREADY_EXISTS"


class ReplicaAlreadyExists(UserError):
    code = "REPLICA_ALREADY_EXISTS"


class ReplicaIsActive(UserError):
    """What was asked of a dead replica, which lives."""

    code = "TABLE_WAS_NOT_DROPPED"


class ReplicaIsAlreadyActive(UserError):
    code = "REPLICA_IS_ALREADY_ACTIVE"


class MetadataMismatch(UserError):
    code = "METADATA_MISMATCH"


class UnknownColumn(UserError):
    code = "UNKNOWN_IDENTIFIER"


class NoSuchColumn(UnknownColumn):
    """What is written names a column that the table does not have."""

    code = "NO_SUCH_COLUMN_IN_TABLE"


class UnknownType(UserError):
    code = "UNKNOWN_TYPE"


class UnknownFunction(UserError):
    code = "UNKNOWN_FUNCTION"


class UnknownSetting(UserError):
    code = "UNKNOWN_SETTING"


class UnknownEngine(UserError):
    code = "UNKNOWN_STORAGE"


class BadValue(UserError):
    """A value does not fit its column. The message has the row (line), column, value
    and type.
    """

    code = "CANNOT_PARSE_TEXT"


class BadDate(BadValue):
    code = "CANNOT_PARSE_DATE"


class BadTime(BadValue):
    code = "CANNOT_PARSE_DATETIME"


class UnequalArrays(BadValue):
    """Arrays of one group of Nested have different lengths in a row."""

    code = "SIZES_OF_ARRAYS_DONT_MATCH"


class ViolatedConstraint(UserError):
    """A CHECK of the table does not hold for a row."""

    code = "VIOLATED_CONSTRAINT"


class IncorrectData(UserError):
    code = "INCORRECT_DATA"


class SyntaxProblem(UserError):
    code = "SYNTAX_ERROR"


class NotImplementedStatement(UserError):
    """A statement of the original that this version does not have."""

    code = "NOT_IMPLEMENTED"


class NotOnCluster(UserError):
    """The statement exists, and does not go to the servers of a cluster."""

    code = "QUERY_IS_PROHIBITED"


class TooManyParts(UserError):
    code = "TOO_MANY_PARTS"


class TooManyMutations(UserError):
    code = "TOO_MANY_MUTATIONS"


class TooManyPartitions(UserError):
    code = "TOO_MANY_PARTS"


class CannotAssignOptimize(UserError):
    code = "CANNOT_ASSIGN_OPTIMIZE"


class BadConfiguration(UserError):
    """A configuration file has an unknown key, a wrong value, or another server's directory."""

    code = "INVALID_CONFIG_PARAMETER"


class AddressInUse(UserError):
    code = "ADDRESS_IN_USE"


class DiskFull(UserError):
    """No space left. Nothing was published; staged bytes were removed."""

    code = "NOT_ENOUGH_SPACE"


class NoJava(UserError):
    """ZooKeeper (embedded) and Spark run on Java, and there is none that is new enough."""

    code = "NO_JAVA"


class MissingPart(Corruption):
    """A part that was promised is not on this disk (or was removed while being looked at)."""

    code = "NO_SUCH_DATA_PART"


class DuplicateColumn(UserError):
    code = "DUPLICATE_COLUMN"


class BadTypeOfField(UserError):
    """A column has a type that its place (sign, version, key, TTL) cannot have."""

    code = "BAD_TYPE_OF_FIELD"


class IllegalColumn(UserError):
    """A column has a place (a key, the columns of an INSERT) that columns like it can't have."""

    code = "ILLEGAL_COLUMN"


class UnknownFormat(UserError):
    code = "UNKNOWN_FORMAT"


class BadTtl(UserError):
    """A TTL that gives no time, or that rows can't be kept by."""

    code = "BAD_TTL_EXPRESSION"
