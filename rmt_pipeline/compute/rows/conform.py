"""Conforms batches of a source to the result's columns: older parts may lack some, or have them
with another type.
"""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa

from rmt_pipeline.compute.rows.computed import compiled, evaluated
from rmt_pipeline.compute.rows.defaults import DefaultExpressions
from rmt_pipeline.compute.rows.keys import KeyColumns
from rmt_pipeline.compute.rows.nested import of_equal_length, sibling_of
from rmt_pipeline.compute.units import Shape
from rmt_pipeline.protocol.alter.history import NamesAndTypes, stored_as, stored_columns
from rmt_pipeline.protocol.errors import BadValue, Corruption, UserError
from rmt_pipeline.protocol.table import Column, TableDefinition
from rmt_pipeline.syntax.types import arrow_schema, parse_type
from rmt_pipeline.types.escapes import quote_name
from rmt_pipeline.types.key_safe import is_key_safe


def is_read_as_it_is(stored: str, wanted: str) -> bool:
    """Whether values that are stored with one type are values of the other as they are: it is the
    same type, or an Enum that got further elements, after which no part is rewritten (spec §8.1).
    """
    return stored == wanted or (
        "Enum" in stored and is_key_safe(parse_type(stored), parse_type(wanted), "expression")
    )


def is_current(definition: TableDefinition, part: NamesAndTypes, version: int) -> bool:
    """Whether the part's files are read as the table's current columns as they are: they have just
    these, with their names, types and order.
    """
    wanted, found = stored_columns(definition), stored_as(definition, part, version)
    return len(part) == len(wanted) == len(found) and all(
        one.name == column.name and is_read_as_it_is(one.type, column.type)
        for one, column in zip(found, wanted, strict=True)
    )


class Conform:
    """Turns batches of a source into tables of the result's columns, followed by the computed keys.

    `dictionaries` are the columns that stay dictionary-encoded. Raises UnknownType.
    """

    def __init__(self, shape: Shape, dictionaries: Collection[str]) -> None:
        self._columns = shape.columns
        self._plain = arrow_schema(shape.columns)
        self._defaults = DefaultExpressions(shape.columns)
        self._computed = [part for part in shape.key if part.is_computed]
        texts = [part.text for part in self._computed]
        self._key = KeyColumns(texts, shape.columns) if texts else None
        fields = []
        for field in self._plain:
            coded = field.name in dictionaries and pa.types.is_string(field.type)
            kind = pa.dictionary(pa.int32(), field.type) if coded else field.type
            fields.append(field.with_type(kind))
        self.schema = pa.schema(fields)

    def table(
        self, batch: pa.RecordBatch, part: str, types: Mapping[str, str] = MappingProxyType({})
    ) -> pa.Table:
        """The batch with the result's columns; those that the part lacks have their default.

        `types` are the types of the part's columns, by their current names, as far as they are
        known: values of another type than the result's are converted. Raises Corruption for values
        that don't fit, BadValue for values that can't be converted and defaults that can't be
        computed.
        """
        names = frozenset(batch.schema.names)
        arrays = []
        for field, column in zip(self.schema, self._columns, strict=True):
            if column.name not in names:
                arrays.append(self._lacking(column, field, batch))
                continue
            array = batch.column(field.name)
            known = types.get(column.name, column.type)
            if not is_read_as_it_is(known, column.type):
                array = converted(array, Column(column.name, known), column.type, part)
            if array.type != field.type:
                array = _cast(array, field, part)
            arrays.append(array)
        table = pa.Table.from_arrays(arrays, schema=self.schema)
        lacking = [name for name in self.schema.names if name not in names]
        table = self._with_default_expressions(table, lacking)
        if self._key is not None:
            keys = self._key.ordered(self._decoded(table))
            for computed, values in zip(self._computed, keys, strict=True):
                table = table.append_column(computed.name, values)
        return table

    def _lacking(self, column: Column, field: pa.Field, batch: pa.RecordBatch) -> pa.Array:
        """The values of a column that the part lacks, without its default expression: the default
        of the type, or for a column of Nested arrays of the lengths that another column of the
        group has.
        """
        kind = parse_type(column.type)
        sibling = sibling_of(column.name, frozenset(batch.schema.names), self._columns)
        if sibling is not None and pa.types.is_list(batch.schema.field(sibling).type):
            return of_equal_length(batch.column(sibling), kind)
        return _constant(kind.default, field, batch.num_rows)

    def _with_default_expressions(self, table: pa.Table, lacking: Sequence[str]) -> pa.Table:
        for name in self._defaults.in_order(
            [name for name in lacking if name in self._defaults]
        ):
            values = self._defaults.evaluate(name, self._decoded(table))
            at = table.schema.get_field_index(name)
            table = table.set_column(
                at, self.schema.field(at), values.cast(self.schema.field(at).type)
            )
        return table

    def _decoded(self, table: pa.Table) -> pa.Table:
        """The table without dictionaries, as expressions need it."""
        return table.cast(self._plain)


def _constant(value: object, field: pa.Field, rows: int) -> pa.Array:
    plain = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    return pa.repeat(pa.scalar(value, plain), rows).cast(field.type)


def converted(array: pa.Array, stored: Column, kind: str, part: str) -> pa.Array:
    """The values of a part's column, converted to another type by CAST.

    Raises BadValue, which names the part, the column, the types and a value.
    """
    plain = parse_type(stored.type).arrow
    table = pa.table({stored.name: array.cast(plain)})
    expression = compiled(f"CAST({quote_name(stored.name)} AS {kind})", (stored,))
    try:
        [values] = evaluated([expression], table)
    except UserError as error:
        raise BadValue(
            f"part {part}: column {stored.name} is {stored.type} and can't become {kind}: {error}"
        ) from error
    return values


def _cast(array: pa.Array, field: pa.Field, part: str) -> pa.Array:
    try:
        return array.cast(field.type)
    except pa.ArrowInvalid as error:
        raise Corruption(
            f"part {part}: column {field.name} has values of type {array.type} that are not "
            f"{field.type}: {error}"
        ) from error
