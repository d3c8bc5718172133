"""Texts of nodes of the queue of statements ON CLUSTER and of Replicated databases: the statement,
its outcome on a server, the tables of a database.
"""

from dataclasses import dataclass
from typing import Self

from rmt_pipeline.protocol.reader import TextReader
from rmt_pipeline.protocol.text import escape, shortened, unescape

DATABASE_MARK = b"Replicated database "
"""How the text of a Replicated database's own node begins."""

FORMAT = 1  # Bump when a text changes; keep decoding every older number.
_DETACHED_FORMAT = 2  # of a TableRecord that is detached permanently
_DETACHED_LINE = "detached: 1\n"
_COUNT_MAX = 100_000
_STATUS_MAX = 2**31 - 1

UNKNOWN_STATUS = 1002
"""The original's UNKNOWN_EXCEPTION, for errors for which the original has no number."""

STATUS_OF = {
    "NO_SUCH_COLUMN_IN_TABLE": 16,
    "DUPLICATE_COLUMN": 15,
    "BAD_ARGUMENTS": 36,
    "CANNOT_PARSE_TEXT": 6,
    "ILLEGAL_COLUMN": 44,
    "UNKNOWN_IDENTIFIER": 47,
    "NOT_IMPLEMENTED": 48,
    "UNKNOWN_TYPE": 50,
    "TYPE_MISMATCH": 53,
    "UNKNOWN_STORAGE": 56,
    "TABLE_ALREADY_EXISTS": 57,
    "UNKNOWN_TABLE": 60,
    "SYNTAX_ERROR": 62,
    "UNKNOWN_DATABASE": 81,
    "DATABASE_ALREADY_EXISTS": 82,
    "UNKNOWN_SETTING": 115,
    "INCORRECT_DATA": 117,
    "ILLEGAL_INDEX": 127,
    "TIMEOUT_EXCEEDED": 159,
    "CLUSTER_DOESNT_EXIST": 170,
    "NETWORK_ERROR": 210,
    "NO_ZOOKEEPER": 225,
    "NO_SUCH_DATA_PART": 232,
    "TABLE_IS_READ_ONLY": 242,
    "NOT_ENOUGH_SPACE": 243,
    "CORRUPTED_DATA": 246,
    "TOO_MANY_PARTS": 252,
    "REPLICA_ALREADY_EXISTS": 253,
    "UNFINISHED": 341,
    "METADATA_MISMATCH": 342,
    "SUPPORT_IS_DISABLED": 344,
    "PART_IS_TEMPORARILY_LOCKED": 384,
    "QUERY_IS_PROHIBITED": 392,
    "BAD_TTL_EXPRESSION": 450,
    "CANNOT_ASSIGN_ALTER": 517,
}
"""The original's numbers of errors, by the errors' names."""


@dataclass(frozen=True, slots=True)
class Task:
    """`query-N`: a statement as it was typed, including ON CLUSTER.

    `request_id` is different for every task: a client that gets no answer when it writes the task
    finds out by it whether it was written. `database` and `settings` are those of the client's
    session. In the log of a Replicated database a task has no hosts: it is for every replica of the
    database.
    """

    query: str
    hosts: tuple[str, ...]
    initiator: str
    request_id: str
    database: str = "default"
    settings: tuple[tuple[str, str], ...] = ()

    def encode(self) -> bytes:
        hosts = "".join(f"{escape(host)}\n" for host in self.hosts)
        settings = "".join(f"{name} = {escape(value)}\n" for name, value in self.settings)
        return (
            f"version: {FORMAT}\n"
            f"query: {escape(self.query)}\n"
            f"hosts: {len(self.hosts)}\n{hosts}"
            f"initiator: {escape(self.initiator)}\n"
            f"settings: {len(self.settings)}\n{settings}"
            f"initial_query_id: {escape(self.request_id)}\n"
            f"database: {escape(self.database)}\n"
        ).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Raises Corruption."""
        reader = TextReader(data, "distributed DDL task")
        reader.version("version: ", FORMAT)
        query = reader.field_as("query: ", unescape)
        count = reader.number("hosts: ", high=_COUNT_MAX)
        hosts = tuple(reader.parse(reader.line(), unescape) for _ in range(count))
        initiator = reader.field_as("initiator: ", unescape)
        settings = []
        for _ in range(reader.number("settings: ", high=_COUNT_MAX)):
            name, equals, value = reader.line().partition(" = ")
            reader.refuse(None if equals else f"{name!r} is no setting with its value")
            settings.append((name, reader.parse(value, unescape)))
        request_id = reader.field_as("initial_query_id: ", unescape)
        database = reader.field_as("database: ", unescape)
        reader.end()
        return cls(query, hosts, initiator, request_id, database, tuple(settings))


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """The outcome of a task on one server. `code` is the error's name; "" if there was no error."""

    code: str = ""
    message: str = ""

    @property
    def status(self) -> int:
        """The original's number of the error; 0 if there was none."""
        return STATUS_OF.get(self.code, UNKNOWN_STATUS) if self.code else 0

    def encode(self) -> bytes:
        """The text of the node. As in the original it begins with the error's number
        and message.
        """
        message = escape(shortened(self.message))
        return f"{self.status}\n{message}\n{escape(self.code)}\n".encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Raises Corruption."""
        reader = TextReader(data, "outcome of a distributed DDL task")
        reader.number("", high=_STATUS_MAX)
        message = reader.parse(reader.line(), unescape)
        code = reader.parse(reader.line(), unescape)
        reader.end()
        return cls(code, message)


@dataclass(frozen=True, slots=True)
class NamesBefore:
    """`begun/<server>`: the uuid of the table that each name stood for before the statement began
    on that server; "" for none. A database is `(name, "")`, and its uuid is its name.

    If the server dies and begins the statement again, it finds out by this what was done already.
    """

    uuids: tuple[tuple[str, str, str], ...] = ()

    def encode(self) -> bytes:
        lines = ("\t".join(map(escape, one)) + "\n" for one in self.uuids)
        return "".join((f"names: {len(self.uuids)}\n", *lines)).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Raises Corruption."""
        reader = TextReader(data, "names of a distributed DDL task")
        found = []
        for _ in range(reader.number("names: ", high=_COUNT_MAX)):
            texts = [reader.parse(text, unescape) for text in reader.line().split("\t")]
            reader.refuse(None if len(texts) == 3 else "a name has a database, a table, a uuid")
            database, table, uuid = texts
            found.append((database, table, uuid))
        reader.end()
        return cls(tuple(found))

    def of(self, database: str, table: str = "") -> str:
        """The uuid for one name; "" if it stood for no table."""
        return next((uuid for d, t, uuid in self.uuids if (d, t) == (database, table)), "")


@dataclass(frozen=True, slots=True)
class TableRecord:
    """`metadata/<table>` of a Replicated database: `query` is the CREATE TABLE that makes the table
    as it is now.

    `origin` is the id of the statement that created the table: tables of the same name with other
    origins are other tables. `version` counts its ALTERs, `task` is the number of the last
    statement that changed it.
    """

    origin: str
    query: str
    version: int = 0
    task: int = 0
    is_detached: bool = False
    """Whether DETACH TABLE PERMANENTLY was said: the name stays taken, and no server
    has the table.
    """

    def encode(self) -> bytes:
        """The text of the node, in the format that older servers read unless the table
        is detached.
        """
        return (
            f"version: {_DETACHED_FORMAT if self.is_detached else FORMAT}\n"
            f"origin: {escape(self.origin)}\n"
            f"metadata version: {self.version}\n"
            f"task: {self.task}\n"
            f"query: {escape(self.query)}\n"
            f"{_DETACHED_LINE if self.is_detached else ''}"
        ).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Raises Corruption."""
        reader = TextReader(data, "table of a Replicated database")
        number = reader.version("version: ", _DETACHED_FORMAT)
        origin = reader.field_as("origin: ", unescape)
        version = reader.number("metadata version: ", high=_STATUS_MAX)
        task = reader.number("task: ", high=_STATUS_MAX)
        query = reader.field_as("query: ", unescape)
        is_detached = number == _DETACHED_FORMAT and reader.number("detached: ", high=1) == 1
        reader.end()
        return cls(origin, query, version, task, is_detached)

    def is_older_than(self, other: Self) -> bool:
        """Whether the `other` record of the same table is newer. The statements, which the database
        counts, decide first: each shard counts the ALTERs of its own table, so `version` alone
        misleads:

        1. A table has had two ALTERs.
        2. r3, alone in a new shard, creates the table as it is now; its table has had no ALTER.
        3. r1 is away, and r3 alone carries out the next ALTER. Its version is 1.
        """
        return (self.task, self.version) < (other.task, other.version)
