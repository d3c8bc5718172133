"""Rows as they were read, before their values are checked and converted."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from rmt_pipeline.protocol.errors import BadValue, IncorrectData


class Absent(Enum):
    """Stands for a value that a row of Python values does not have."""

    ABSENT = "absent"


ABSENT = Absent.ABSENT

InputValues = Any
"""The values of a column: an Arrow (Chunked)Array, or a list of Python values, which
may be ABSENT.
"""


@dataclass(frozen=True, slots=True)
class InputRows:
    """Some consecutive rows of one source, column by column.

    `where` names a row (counted from 0 within these) for people, as "row 17" or "a.csv line 18".
    """

    columns: Mapping[str, InputValues]
    count: int
    where: Callable[[int], str]
    nan_may_be_null: bool = False
    """NaN means NULL, unless the column is a float that is not Nullable (for pandas)."""
    empty_is_absent: bool = False
    """An empty text means that there is no value (CSV with `input_format_csv_empty_as_default`)."""
    again: "Callable[[], InputRows] | None" = None
    """Reads the same rows as Python values, in which NULL differs from an absent value. They are
    used if the Arrow columns do not fit, or if the difference matters.
    """

    def part(self, start: int, stop: int) -> "InputRows":
        """The rows from `start` up to `stop`, which is not included."""
        again = self.again
        return replace(
            self,
            columns={name: values[start:stop] for name, values in self.columns.items()},
            count=stop - start,
            where=lambda row: self.where(start + row),
            again=None if again is None else lambda: again().part(start, stop),
        )


@dataclass(slots=True)
class Tolerance:
    """How many wrong rows of its texts an insert may leave out: `most` of them, or the share
    `ratio` of those read so far (`input_format_allow_errors_num`, `…_ratio`). Counts the `rows`
    that were read and those that were `skipped`.
    """

    most: int = 0
    ratio: float = 0.0
    rows: int = 0
    skipped: int = 0

    @property
    def is_none(self) -> bool:
        return self.most == 0 and self.ratio == 0

    @property
    def is_used_up(self) -> bool:
        """Whether one more wrong row would be too many."""
        wrong = self.skipped + 1
        return wrong > self.most and wrong > self.ratio * (self.rows + 1)

    def skip(self, problem: BadValue) -> None:
        """Count a wrong row as left out. Raises its `problem` if it is one too many."""
        is_too_many = self.is_used_up
        self.rows += 1
        self.skipped += 1
        if is_too_many:
            if self.is_none:
                raise problem
            raise type(problem)(
                f"{problem} ({self.skipped} wrong rows of {self.rows} are more than "
                "input_format_allow_errors_num and input_format_allow_errors_ratio permit)"
            ) from problem


@dataclass(frozen=True, slots=True)
class InputSource:
    """One source of rows. `name` is for people, "" for data in memory.

    `nulls_become_defaults` is set for formats whose NULL may mean that there is no value (spec
    §15.1, `input_format_null_as_default`). Only texts have a `tolerance`; in other sources every
    row must be right.
    """

    name: str
    batches: Iterator[InputRows]
    nulls_become_defaults: bool = False
    tolerance: Tolerance = field(default_factory=Tolerance)


def counted_rows(name: str, first: int) -> Callable[[int], str]:
    """A function that names rows by their number; that of the first one is `first`,
    counted from 1.
    """
    prefix = f"{name} row" if name else "row"
    return lambda row: f"{prefix} {first + row}"


def numbered_lines(name: str, numbers: Sequence[int]) -> Callable[[int], str]:
    """A function that names rows by their lines."""
    return lambda row: f"{name} line {numbers[row]}"


def refuse_twice(name: str, columns: Sequence[str]) -> None:
    """Raises IncorrectData if the header of the text of that name has a column twice."""
    for one in columns:
        if columns.count(one) > 1:
            raise IncorrectData(f"{name}: its header has {one!r} twice. Nothing was inserted")


def blocks_of_lines(stream: Any, size: int) -> Iterator[bytes]:
    """The stream's bytes as blocks of whole lines, of about `size` bytes; a line may be longer."""
    waiting: list[bytes] = []
    while data := stream.read(size):
        head, newline, tail = data.rpartition(b"\n")
        if newline:
            yield b"".join([*waiting, head, newline])
            waiting = [tail] if tail else []
        else:
            waiting.append(data)
    if waiting:
        yield b"".join(waiting)
