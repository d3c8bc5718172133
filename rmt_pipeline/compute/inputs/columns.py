"""Makes a table's stored columns from the values that an insert gives: checks names, converts
values and fills in defaults.
"""

import contextlib
import difflib
from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from rmt_pipeline.compute.inputs.rows import ABSENT, InputRows, InputValues
from rmt_pipeline.compute.inputs.stored_array import Misfit, stored_array, stored_list
from rmt_pipeline.compute.inputs.stored_value import is_null
from rmt_pipeline.compute.rows.defaults import DefaultExpressions, at_moment
from rmt_pipeline.compute.rows.nested import of_equal_length, sibling_of, unequal
from rmt_pipeline.protocol.errors import (
    BadValue,
    DuplicateColumn,
    IllegalColumn,
    NoSuchColumn,
    UnequalArrays,
    UnknownColumn,
)
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import Column, nested_group
from rmt_pipeline.syntax.types import arrow_schema, parse_type
from rmt_pipeline.types.data_type import DataType
from rmt_pipeline.types.time_text import best_effort_text

_COMPUTED = frozenset({"MATERIALIZED", "ALIAS"})


class InsertColumns:
    """The columns of one insert. `accepted` are those that data without names has, in this order;
    it is the statement's list of columns, if there is one.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        given: Sequence[str] | None,
        settings: QuerySettings,
        key_columns: Collection[str],
        now_s: float | None = None,
    ) -> None:
        """`given` is the statement's list of columns. `now_s` is the value of `now()` in defaults,
        for all rows; without it each batch has its own. Raises UnknownColumn, UserError.
        """
        if now_s is not None:
            columns = at_moment(columns, now_s)
        self._columns = {column.name: column for column in columns}
        self._types = {
            column.name: parse_type(column.type)
            for column in columns
            if column.default_kind != "ALIAS"
        }
        self._settings = settings
        self._key_columns = frozenset(key_columns)
        self._defaults = DefaultExpressions(columns, inserted=True)
        stored = [column for column in columns if column.is_stored]
        self.schema: pa.Schema = arrow_schema(stored)
        if given is not None:
            self._check_given(given)
        self.accepted: tuple[str, ...] = tuple(
            given
            if given is not None
            else (c.name for c in columns if c.default_kind not in {*_COMPUTED, "EPHEMERAL"})
        )
        self._insertable = frozenset(
            self.accepted
            if given is not None
            else (c.name for c in columns if c.default_kind not in _COMPUTED)
        )

    @property
    def names(self) -> list[str]:
        """Every column that the data may name. These are the `accepted` ones; if the statement has
        no list of columns, also the EPHEMERAL ones.
        """
        return [name for name in self._columns if name in self._insertable]

    def type_of(self, name: str) -> DataType:
        """The type of a column that is not an ALIAS."""
        return self._types[name]

    def table(self, rows: InputRows, *, nulls_become_defaults: bool) -> pa.Table:
        """The stored columns of these rows. Raises UnknownColumn, UserError; BadValue, which names
        the row, column, value and type.
        """
        formatted = nulls_become_defaults and self._settings.input_format_null_as_default
        if rows.again is None:
            return self._table(rows, formatted)
        if not self._is_ambiguous(rows, formatted):
            with contextlib.suppress(BadValue):
                return self._table(rows, formatted)
        return self._table(rows.again(), formatted)

    def _is_ambiguous(self, rows: InputRows, formatted: bool) -> bool:
        """Whether these Arrow columns have a NULL for which it matters whether it was given as NULL
        or the value was absent.
        """
        return any(
            values.null_count
            and (
                name in self._defaults
                or not (self._types[name].nullable or self._null_is_default(name, formatted))
            )
            for name, values in rows.columns.items()
            if name in self._insertable
        )

    def _table(self, rows: InputRows, formatted: bool) -> pa.Table:
        self.check_names(rows)
        found: dict[str, pa.Array] = {}
        absent: dict[str, pa.Array | None] = {}
        for name in self._types:
            values = rows.columns.get(name) if name in self._insertable else None
            if values is None:
                absent[name] = None
                continue
            try:
                found[name], mask = self._stored(name, values, rows, formatted)
            except Misfit as misfit:
                raise BadValue(
                    f"{rows.where(misfit.row)}, column {name}: {misfit}. Nothing was inserted"
                ) from None
            if mask is not None:
                absent[name] = mask
        self._fill(found, absent, rows.count)
        stored = [found[name] for name in self.schema.names]
        table = pa.Table.from_arrays(stored, schema=self.schema)
        self._check_lengths(table, rows)
        return table

    def _check_lengths(self, table: pa.Table, rows: InputRows) -> None:
        found = unequal(table, tuple(self._columns.values()))
        if found is not None:
            one, other, row = found
            raise UnequalArrays(
                f"{rows.where(row)}: columns {one} and {other} of Nested {nested_group(one)} have "
                f"arrays of {len(table.column(one)[row])} and {len(table.column(other)[row])} "
                "elements. Nothing was inserted"
            )

    def _null_is_default(self, name: str, formatted: bool) -> bool:
        """Whether NULL in a column that is not Nullable means the column's default. Never in a key:
        the row would silently get a key, or go to a partition, that the data does not name.
        """
        return formatted and name not in self._key_columns

    def _stored(
        self, name: str, values: InputValues, rows: InputRows, formatted: bool
    ) -> tuple[pa.Array, pa.Array | None]:
        """The values in the stored form, and a mask of those that are to be the default instead, or
        None for none.
        """
        kind = self._types[name]
        filled = not kind.nullable and self._null_is_default(name, formatted)
        optional = DataType("Nullable", elements=(kind,))
        if kind.is_time and self._settings.date_time_input_format == "best_effort":
            values = _best_effort(values)
        if not isinstance(values, pa.Array | pa.ChunkedArray):
            array = stored_list(values, optional if filled else kind, absent=ABSENT)
            mask = [value is ABSENT or (filled and is_null(value)) for value in values]
            return array, pa.array(mask, pa.bool_()) if any(mask) else None
        if rows.nan_may_be_null and pa.types.is_floating(values.type):
            values = _nan_to_null(values, kind)
        if rows.empty_is_absent:
            empty = pc.fill_null(pc.equal(pc.binary_length(values), 0), fill_value=False)
            if pc.any(empty).as_py():
                return self._stored_but_empty(values, empty, kind, filled)
        array = stored_array(values, optional if filled else kind)
        return array, array.is_null() if filled and array.null_count else None

    def _stored_but_empty(
        self, values: pa.Array, empty: pa.Array, kind: DataType, filled: bool
    ) -> tuple[pa.Array, pa.Array]:
        if values.null_count and not kind.nullable and not filled:
            row = pc.index(values.is_null(), pa.scalar(value=True)).as_py()
            raise Misfit(row, f"NULL does not fit {kind.text}, which is not Nullable")
        given = pc.if_else(empty, pa.scalar(None, values.type), values)
        array = stored_array(given, DataType("Nullable", elements=(kind,)))
        return array, array.is_null() if filled else empty

    def _fill(
        self, found: dict[str, pa.Array], absent: dict[str, pa.Array | None], count: int
    ) -> None:
        """Put defaults into `found` where there are no values. `absent` has for each column a mask
        of such rows, or None for all rows.
        """
        given, columns = frozenset(found), tuple(self._columns.values())
        for name in [name for name in absent if name not in self._defaults]:
            kind = self._types[name]
            sibling = sibling_of(name, given, columns)
            if sibling is not None and absent[name] is None:
                del absent[name]
                found[name] = of_equal_length(found[sibling], kind)
                continue
            default = pa.scalar(kind.default, kind.arrow)
            found[name] = _choose(absent.pop(name), pa.repeat(default, count), found.get(name))
        for name in self._defaults.in_order(absent):
            computed = self._defaults.evaluate(name, pa.table(found))
            found[name] = _choose(absent[name], computed, found.get(name))

    def _check_given(self, given: Sequence[str]) -> None:
        for name in given:
            column = self._columns.get(name)
            if column is None:
                raise self._unknown(name, "the list of columns")
            if column.default_kind in _COMPUTED:
                refused = NoSuchColumn if column.default_kind == "ALIAS" else IllegalColumn
                raise refused(
                    f"column {name} is {column.default_kind}: its values are computed; "
                    "leave it out"
                )
            if list(given).count(name) > 1:
                raise DuplicateColumn(f"column {name} is in the list of columns twice")

    def check_names(self, rows: InputRows) -> None:
        """Raises UnknownColumn or IllegalColumn for one that the data may not have."""
        if self._settings.input_format_skip_unknown_fields:
            return
        for name in rows.columns:
            if name in self._insertable:
                continue
            if name in self._columns:
                kind = self._columns[name].default_kind
                reason = (
                    f"it is {kind}" if kind in _COMPUTED else "the list of columns lacks it"
                )
                raise IllegalColumn(f"the data has values for column {name}, but {reason}")
            raise self._unknown(name, rows.where(0))

    def _unknown(self, name: str, where: str) -> UnknownColumn:
        known = [each for each in self._columns if self._columns[each].default_kind != "ALIAS"]
        near = difflib.get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        if any(mark in name for mark in ";|\t"):
            hint += " format_csv_delimiter says what is between the values of CSV."
        return UnknownColumn(
            f"{where}: the table has no column {name!r}{hint} It has {', '.join(known)}; "
            "input_format_skip_unknown_fields leaves others out. Nothing was inserted"
        )


def _best_effort(values: InputValues) -> InputValues:
    """The values with texts of times in any usual form rewritten to the form that the
    type reads.
    """
    is_arrow = isinstance(values, pa.Array | pa.ChunkedArray)
    if is_arrow and not pa.types.is_string(values.type):
        return values
    found = [
        best_effort_text(each) if isinstance(each, str) else each
        for each in (values.to_pylist() if is_arrow else values)
    ]
    return pa.array(found, pa.string()) if is_arrow else found


def _nan_to_null(values: InputValues, kind: DataType) -> InputValues:
    if kind.is_float and not kind.nullable:
        return values
    return pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)


def _choose(where: pa.Array | None, default: pa.Array, otherwise: pa.Array | None) -> pa.Array:
    return default if where is None else pc.if_else(where, default, otherwise)
