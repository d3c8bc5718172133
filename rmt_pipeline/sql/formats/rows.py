"""The answer of a statement: rows in batches, or none."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import pyarrow as pa

from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.syntax.types import parse_type
from rmt_pipeline.types.data_type import DataType

Columns = tuple[tuple[str, str], ...]
"""The names and types of columns, as texts."""

TEXT_ROWS_MAX = 16_384
"""The number of rows that are turned into text at a time, which bounds memory for batches of any
size.
"""


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of an answer: its title and its ClickHouse type."""

    name: str
    type: DataType


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """How an answer is written: the `format_…` and `output_format_…` settings."""

    csv_delimiter: str = ","
    csv_null: str = "\\N"
    tsv_null: str = "\\N"
    quote_64bit_integers: bool = False
    pretty_rows_max: int = 10_000

    @classmethod
    def of(cls, settings: QuerySettings) -> Self:
        return cls(
            csv_delimiter=settings.format_csv_delimiter,
            csv_null=settings.format_csv_null_representation,
            tsv_null=settings.format_tsv_null_representation,
            quote_64bit_integers=settings.output_format_json_quote_64bit_integers,
            pretty_rows_max=settings.output_format_pretty_max_rows,
        )


@dataclass(frozen=True, slots=True)
class Rows:
    """An answer with rows. Batches have stored forms (see types.data_type) and can be read only
    once.

    `format` is the FORMAT of the statement, None without one. `totals` is the row of WITH TOTALS.
    """

    columns: tuple[ResultColumn, ...]
    batches: Iterable[pa.RecordBatch] = field(repr=False)
    format: str | None = None
    options: OutputOptions = field(default=OutputOptions())
    totals: pa.RecordBatch | None = None

    def of_totals(self) -> "Rows | None":
        """Return the row of WITH TOTALS as an answer of its own; None without it."""
        if self.totals is None:
            return None
        return replace(self, batches=[self.totals], totals=None)


@dataclass(frozen=True, slots=True)
class Done:
    """The answer of a statement without rows. `note` is for people, on standard error;
    `at_terminal` is shown only on a terminal.
    """

    note: str = ""
    at_terminal: str = ""


Result = Rows | Done


def rows_of(
    columns: Sequence[tuple[str, str]],
    rows: Iterable[Sequence[object]],
    format_name: str | None = None,
) -> Rows:
    """Return an answer from Python values. `columns` are names and types; a row has one value for
    each.
    """
    result = tuple(ResultColumn(name, parse_type(text)) for name, text in columns)
    arrays: list[list[object]] = [[] for _ in result]
    for row in rows:
        for values, value in zip(arrays, row, strict=True):
            values.append(value)
    return Rows(result, [record_batch(result, arrays)], format_name)


def record_batch(
    columns: Sequence[ResultColumn], values: Sequence[Sequence[object]]
) -> pa.RecordBatch:
    """Return Python values, given column by column, as Arrow. Raises pyarrow's errors for values
    that do not fit.
    """
    arrays = [
        pa.array(column_values, column.type.arrow)
        for column, column_values in zip(columns, values, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


def small_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of at most TEXT_ROWS_MAX rows."""
    for batch in batches:
        for start in range(0, batch.num_rows, TEXT_ROWS_MAX):
            yield batch.slice(start, TEXT_ROWS_MAX)
