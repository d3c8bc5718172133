"""What happened, as clients know it: the inserts they made and were told of, and what they read."""

from dataclasses import dataclass, field

from rmt_pipeline.replica.insert_result import InsertResult


@dataclass(slots=True, eq=False)
class ClientInsert:
    """One logical insert: its rows by partition, and every answer that a client got."""

    number: int
    rows: dict[str, list[str]]
    token: str
    gives_up: bool
    """The client never asks again after a doubtful end."""
    block_rows_max: int = 0
    """Rows per block; 0: cut at random."""
    answers: list[InsertResult] = field(default_factory=list)
    attempts: int = 0
    is_over: bool = False

    @property
    def is_acknowledged(self) -> bool:
        return bool(self.answers)

    def all_rows(self) -> list[str]:
        return [row for rows in self.rows.values() for row in rows]

    def __str__(self) -> str:
        return f"insert {self.number} of {sorted(self.rows)}"


@dataclass(slots=True)
class Read:
    """One look at a replica's rows, by partition, while everything went on."""

    replica: str
    rows: list[str]


@dataclass(slots=True)
class Ledger:
    inserts: list[ClientInsert] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    taken_by: dict[str, str] = field(default_factory=dict)
    """Row to the replica that wrote it to the log."""
    assigned: int = 0
    clients: int = 0
    """Clients that still have something to do."""
