"""What an ALTER did to a column's name: parts that were written before still have the old one."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """The ALTER that made metadata `version` renamed `column`, or dropped it (`renamed_to` "").

    The changes of one ALTER are in the order of its commands.
    """

    version: int
    column: str
    renamed_to: str = ""
