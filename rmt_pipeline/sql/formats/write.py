"""Writes answers in all output formats: TSV, CSV, JSON and the like, tables for people, Parquet,
Arrow.

Each text format is a generator of pieces, so that an answer of any size is written in bounded
memory (JSONColumns and its variants, which need whole columns, are the exception). The formats are
the original's, byte for byte where possible; JSON lacks `statistics`, since this engine does not
count them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from typing import Any, BinaryIO

import pyarrow as pa

from rmt_pipeline.protocol.errors import UnknownFormat, UserError
from rmt_pipeline.protocol.text import escape
from rmt_pipeline.sql.formats.pretty import NULL_TEXT, pretty, pretty_compact, vertical
from rmt_pipeline.sql.formats.rows import ResultColumn, Rows, small_batches
from rmt_pipeline.sql.formats.xml import xml
from rmt_pipeline.types.data_type import DataType
from rmt_pipeline.types.to_text import (
    Formatter,
    Style,
    column_values,
    formatter,
    json_string,
    plain_values,
)

# A column as texts: common types by a fast way, all others value by value.

NULL = "\\N"
QUICK_ROWS = 100  # for fewer rows, Python is faster than loading Arrow's functions
_TSV_SPECIAL = r"[\x08\x0c\n\r\t\x00\\']"


def column_text(
    array: pa.Array, data_type: DataType, style: Style, null: str = NULL
) -> Iterable[str]:
    """Return the texts of an array's values, in order. `null` is the text of NULL in
    TSV and CSV.
    """
    quick = _quick(array, data_type.plain, style)
    if quick is not None:
        if array.null_count:
            quick = quick.fill_null(null if style in ("TSV", "CSV") else _NULLS[style])
        texts: list[str] = quick.to_pylist()
        return texts
    return map(value_text(data_type, style, null), column_values(array))


_NULLS: dict[Style, str] = {"JSON": "null", "nested": "NULL"}


def value_text(data_type: DataType, style: Style, null: str = NULL) -> Formatter:
    """Return a function from one value to its text; see `column_text`."""
    text = formatter(data_type, style)
    if data_type.plain.family == "Float64" and style != "JSON":
        text = _float64(text)
    if not data_type.nullable or null == NULL or style not in ("TSV", "CSV"):
        return text
    return lambda value: null if value is None else text(value)


def _float64(exact: Formatter) -> Formatter:
    """Return a faster function than `exact` for Float64. Where Python's text has no exponent, it is
    the original's except for a `.0` at the end.
    """

    def text(value: float | None) -> str:
        if value is None:
            return exact(value)
        plain = repr(value)
        if "e" in plain or "n" in plain:
            return exact(value)
        return plain.removesuffix(".0")

    return text


def _quick(array: pa.Array, plain: DataType, style: Style) -> pa.Array | None:
    if len(array) < QUICK_ROWS:
        return None
    from pyarrow import compute as pc  # noqa: PLC0415  start-up: short answers do without

    if plain.is_integer and not plain.wide_bytes and (style != "JSON" or plain.bits < 64):
        return array.cast(pa.string())
    if plain.family != "String":
        return None
    if style == "CSV":
        doubled = pc.replace_substring(array, '"', '""')
        return pc.binary_join_element_wise('"', doubled, '"', "")
    if style == "TSV" and not pc.any(pc.match_substring_regex(array, _TSV_SPECIAL)).as_py():
        return array
    return None


TextFormat = Callable[[Rows], Iterator[str]]
ColumnTexts = Callable[[pa.Array, ResultColumn], Iterable[str]]
"""Returns the texts of the values of one column of a batch."""


def write_rows(rows: Rows, format_name: str, out: BinaryIO) -> None:
    """Write an answer to `out`. Raises UnknownFormat."""
    name = canonical_format(format_name)
    if name in _BINARY_FORMATS:
        _BINARY_FORMATS[name](rows, out)
        return
    # Bytes of a FixedString that are not UTF-8 are surrogates in the text.
    out.writelines(
        piece.encode("utf-8", "surrogateescape") for piece in _TEXT_FORMATS[name](rows)
    )


def output_formats() -> list[str]:
    """All names of formats of answers."""
    return [*_TEXT_FORMATS, *_BINARY_FORMATS, *_OTHER_NAMES]


def canonical_format(name: str) -> str:
    """Return the name of a format in its own spelling. Raises UnknownFormat, which
    suggests names.
    """
    known = {each.lower(): each for each in (*_TEXT_FORMATS, *_BINARY_FORMATS)}
    found = known.get(_ALIASES.get(name.lower(), name).lower())
    if found is None:
        near = get_close_matches(name.lower(), known, n=1)
        hint = f"did you mean {known[near[0]]}?" if near else ", ".join(sorted(known.values()))
        raise UnknownFormat(f"there is no output format {name}; {hint}")
    return found


def _row_texts(rows: Rows, make: ColumnTexts) -> Iterator[tuple[str, ...]]:
    for batch in small_batches(rows.batches):
        texts = [
            make(array, column)
            for array, column in zip(batch.columns, rows.columns, strict=True)
        ]
        yield from zip(*texts, strict=True)


def _styled(style: Style, null: str = NULL) -> ColumnTexts:
    """Return the maker of texts in this style. `null` is the text of NULL where a setting chooses
    it.
    """
    return lambda array, column: column_text(array, column.type, style, null)


def _raw(array: pa.Array, column: ResultColumn) -> Iterable[str]:
    if column.type.plain.family != "String":
        return column_text(array, column.type, "TSV")
    return ("\\N" if value is None else value for value in array.to_pylist())


def _json_style(rows: Rows) -> ColumnTexts:
    if rows.options.quote_64bit_integers:
        return _styled("JSON")
    return lambda array, column: column_text(array, _short(column.type), "JSON")


def _short(data_type: DataType) -> DataType:
    """Return the type with 32 bits in place of 64 for integers, which JSON then writes without
    quotes.
    """
    families = {"Int64": "Int32", "UInt64": "UInt32"}
    return replace(
        data_type,
        family=families.get(data_type.family, data_type.family),
        elements=tuple(map(_short, data_type.elements)),
    )


def _lines(rows: Rows, make: ColumnTexts, separator: str) -> Iterator[str]:
    for texts in _row_texts(rows, make):
        yield separator.join(texts) + "\n"
    totals = rows.of_totals()
    if totals is not None:
        yield "\n"
        yield from _lines(totals, make, separator)


def _tsv(rows: Rows) -> Iterator[str]:
    return _lines(rows, _styled("TSV", rows.options.tsv_null), "\t")


def _tsv_raw(rows: Rows) -> Iterator[str]:
    return _lines(rows, _raw, "\t")


def _tsv_head(rows: Rows, *, types: bool = False) -> Iterator[str]:
    yield "\t".join(escape(column.name) for column in rows.columns) + "\n"
    if types:
        yield "\t".join(escape(column.type.text) for column in rows.columns) + "\n"


def _tsv_with_names(rows: Rows) -> Iterator[str]:
    yield from _tsv_head(rows)
    yield from _tsv(rows)


def _tsv_with_names_and_types(rows: Rows) -> Iterator[str]:
    yield from _tsv_head(rows, types=True)
    yield from _tsv(rows)


def _raw_with_names(rows: Rows) -> Iterator[str]:
    yield "\t".join(column.name for column in rows.columns) + "\n"
    yield from _tsv_raw(rows)


def _raw_with_names_and_types(rows: Rows) -> Iterator[str]:
    yield "\t".join(column.name for column in rows.columns) + "\n"
    yield "\t".join(column.type.text for column in rows.columns) + "\n"
    yield from _tsv_raw(rows)


def _tskv(rows: Rows) -> Iterator[str]:
    keys = [escape(column.name).replace("=", "\\=") + "=" for column in rows.columns]
    for texts in _row_texts(rows, _styled("TSV")):
        fields = (key + text for key, text in zip(keys, texts, strict=True))
        yield "\t".join(fields) + "\n"


def _markdown(rows: Rows) -> Iterator[str]:
    yield "".join(f"| {escape(column.name)} " for column in rows.columns) + "|\n"
    sides = ("-:|" if _is_to_the_right(column.type) else ":-|" for column in rows.columns)
    yield "|" + "".join(sides) + "\n"
    for texts in _row_texts(rows, _styled("TSV")):
        yield "| " + " | ".join(texts) + " |\n"


def _is_to_the_right(data_type: DataType) -> bool:
    """Whether Markdown aligns the column to the right: numbers and dates."""
    plain = data_type.plain
    numbers = plain.is_integer or plain.is_float or plain.is_decimal
    return numbers or plain.family.startswith("Date")


def _sql_insert(rows: Rows) -> Iterator[str]:
    names = ", ".join("`" + column.name.replace("`", "\\`") + "`" for column in rows.columns)
    separator = f"INSERT INTO table ({names}) VALUES "  # noqa: S608  an answer's text
    for texts in _row_texts(rows, _styled("nested")):
        yield separator + "(" + ", ".join(texts) + ")"
        separator = ", "
    yield ";\n"


def _raw_blob(rows: Rows) -> Iterator[str]:
    """Yield the values without separators. Raises UserError for columns that are no Strings, which
    the original writes in a binary form of its own.
    """
    for column in rows.columns:
        if column.type.plain.family != "String":
            raise UserError(
                f"RawBLOB writes Strings alone here: {column.name} is {column.type.text}; use "
                "toString"
            )
    for texts in _row_texts(rows, _raw):
        yield from texts


def _csv(rows: Rows) -> Iterator[str]:
    options = rows.options
    return _lines(rows, _styled("CSV", options.csv_null), options.csv_delimiter)


def _csv_with_names(rows: Rows) -> Iterator[str]:
    columns = [one for column in rows.columns for one in _csv_columns(column)]
    yield _csv_line(rows, (column.name for column in columns))
    yield from _csv(rows)


def _csv_with_names_and_types(rows: Rows) -> Iterator[str]:
    columns = [one for column in rows.columns for one in _csv_columns(column)]
    yield _csv_line(rows, (column.name for column in columns))
    yield _csv_line(rows, (column.type.text for column in columns))
    yield from _csv(rows)


def _csv_line(rows: Rows, texts: Iterable[str]) -> str:
    quoted = ('"' + text.replace('"', '""') + '"' for text in texts)
    return rows.options.csv_delimiter.join(quoted) + "\n"


def _csv_columns(column: ResultColumn) -> list[ResultColumn]:
    """Return the columns of CSV for a column: those of a tuple's elements, else the
    column itself.
    """
    plain = column.type.plain
    if plain.family != "Tuple":
        return [column]
    pairs = zip(plain.element_names, plain.elements, strict=True)
    columns = [ResultColumn(f"{column.name}.{name}", element) for name, element in pairs]
    return [one for each in columns for one in _csv_columns(each)]


def _as_strings(rows: Rows) -> ColumnTexts:
    """Return the maker of texts for the JSONStrings formats: each value is a string. NULL is
    written as in tables for people.
    """
    del rows

    def make(array: pa.Array, column: ResultColumn) -> Iterable[str]:
        is_null = array.is_null().to_pylist()
        texts = zip(_raw(array, column), is_null, strict=True)
        return (json_string(NULL_TEXT if null else text) for text, null in texts)

    return make


JsonTexts = Callable[[Rows], ColumnTexts]


def _json_objects(rows: Rows, make: JsonTexts) -> Iterator[str]:
    keys = [f"{json_string(column.name)}:" for column in rows.columns]
    for texts in _row_texts(rows, make(rows)):
        fields = (key + text for key, text in zip(keys, texts, strict=True))
        yield "{" + ",".join(fields) + "}"


def _json_each_row(make: JsonTexts) -> TextFormat:
    return lambda rows: (f"{row}\n" for row in _json_objects(rows, make))


def _json_object_each_row(rows: Rows) -> Iterator[str]:
    """Yield one object with all rows, each under a name such as `row_1`."""
    separator = "{\n"
    for number, row in enumerate(_json_objects(rows, _json_style), 1):
        yield f'{separator}\t"row_{number}": {row}'
        separator = ",\n"
    yield "\n}\n" if separator == ",\n" else "{\n\n}\n"


def _json_compact_each_row(
    make: JsonTexts, *, names: bool = False, types: bool = False
) -> TextFormat:
    def pieces(rows: Rows) -> Iterator[str]:
        if names:
            yield f"[{', '.join(json_string(column.name) for column in rows.columns)}]\n"
        if types:
            yield f"[{', '.join(json_string(column.type.text) for column in rows.columns)}]\n"
        for texts in _row_texts(rows, make(rows)):
            yield f"[{', '.join(texts)}]\n"

    return pieces


def _json(make: JsonTexts) -> TextFormat:
    def pieces(rows: Rows) -> Iterator[str]:
        keys = [f"\t\t\t{json_string(column.name)}: " for column in rows.columns]

        def row(texts: tuple[str, ...]) -> str:
            fields = (key + text for key, text in zip(keys, texts, strict=True))
            return "\t\t{\n" + ",\n".join(fields) + "\n\t\t}"

        return _json_document(rows, row, make)

    return pieces


def _json_compact(make: JsonTexts) -> TextFormat:
    return lambda rows: _json_document(
        rows, lambda texts: "\t\t[" + ", ".join(texts) + "]", make
    )


def _json_document(
    rows: Rows, row: Callable[[tuple[str, ...]], str], make: JsonTexts
) -> Iterator[str]:
    yield "{\n" + _json_meta(rows) + ',\n\n\t"data":\n\t[\n'
    count = 0
    for texts in _row_texts(rows, make(rows)):
        yield (",\n" if count else "") + row(texts)
        count += 1
    yield "\n\t],\n\n"
    totals = rows.of_totals()
    if totals is not None:
        for texts in _row_texts(totals, make(rows)):
            inner = row(texts).replace("\n\t", "\n")[1:]  # one tab less than a row of "data"
            shown = f"\n{inner}" if inner.startswith("\t{") else f" {inner.strip()}"
            yield f'\t"totals":{shown},\n\n'
    yield f'\t"rows": {count}\n}}\n'


def _json_meta(rows: Rows) -> str:
    columns = (
        f'\t\t{{\n\t\t\t"name": {json_string(column.name)},\n'
        f'\t\t\t"type": {json_string(column.type.text)}\n\t\t}}'
        for column in rows.columns
    )
    return '\t"meta":\n\t[\n' + ",\n".join(columns) + "\n\t]"


def _json_by_column(rows: Rows) -> tuple[list[list[str]], int]:
    """Return all texts of each column, and the number of rows."""
    found: list[list[str]] = [[] for _ in rows.columns]
    count = 0
    for texts in _row_texts(rows, _json_style(rows)):
        count += 1
        for column, text in zip(found, texts, strict=True):
            column.append(text)
    return found, count


def _json_columns(rows: Rows) -> Iterator[str]:
    yield "{\n" + _named_columns(rows, _json_by_column(rows)[0], "\t") + "\n}\n"


def _named_columns(rows: Rows, columns: Sequence[Sequence[str]], indent: str) -> str:
    return ",\n".join(
        f"{indent}{json_string(column.name)}: [{', '.join(texts)}]"
        for column, texts in zip(rows.columns, columns, strict=True)
    )


def _json_compact_columns(rows: Rows) -> Iterator[str]:
    columns, _ = _json_by_column(rows)
    lines = (f"\t[{', '.join(texts)}]" for texts in columns if texts)
    yield "[\n" + ",\n".join(lines) + "\n]\n"


def _json_columns_with_metadata(rows: Rows) -> Iterator[str]:
    columns, count = _json_by_column(rows)
    yield "{\n" + _json_meta(rows) + ',\n\n\t"data":\n\t{\n'
    named = _named_columns(rows, columns, "\t\t") if count else ""
    yield named + "\n\t},\n\n"
    totals = rows.of_totals()
    if totals is not None:
        columns, _ = _json_by_column(totals)
        pairs = zip(rows.columns, columns, strict=True)
        named = ",\n".join(f"\t\t{json_string(one.name)}: {text}" for one, (text,) in pairs)
        yield f'\t"totals":\n\t{{\n{named}\n\t}},\n\n'
    yield f'\t"rows": {count}\n}}\n'


def _values(rows: Rows) -> Iterator[str]:
    separator = ""
    for texts in _row_texts(rows, _styled("nested")):
        yield separator + "(" + ",".join(texts) + ")"
        separator = ","


def _null(rows: Rows) -> Iterator[str]:
    for _ in rows.batches:
        yield ""


_TEXT_FORMATS: dict[str, TextFormat] = {
    "TSV": _tsv,
    "TSVRaw": _tsv_raw,
    "TSVRawWithNames": _raw_with_names,
    "TSVRawWithNamesAndTypes": _raw_with_names_and_types,
    "TSVWithNames": _tsv_with_names,
    "TSVWithNamesAndTypes": _tsv_with_names_and_types,
    "TSKV": _tskv,
    "CSV": _csv,
    "CSVWithNames": _csv_with_names,
    "CSVWithNamesAndTypes": _csv_with_names_and_types,
    "JSON": _json(_json_style),
    "JSONStrings": _json(_as_strings),
    "JSONCompact": _json_compact(_json_style),
    "JSONCompactStrings": _json_compact(_as_strings),
    "JSONColumns": _json_columns,
    "JSONCompactColumns": _json_compact_columns,
    "JSONColumnsWithMetadata": _json_columns_with_metadata,
    "JSONCompactEachRow": _json_compact_each_row(_json_style),
    "JSONCompactEachRowWithNames": _json_compact_each_row(_json_style, names=True),
    "JSONCompactEachRowWithNamesAndTypes": _json_compact_each_row(
        _json_style, names=True, types=True
    ),
    "JSONCompactStringsEachRow": _json_compact_each_row(_as_strings),
    "JSONCompactStringsEachRowWithNames": _json_compact_each_row(_as_strings, names=True),
    "JSONCompactStringsEachRowWithNamesAndTypes": _json_compact_each_row(
        _as_strings, names=True, types=True
    ),
    "JSONEachRow": _json_each_row(_json_style),
    "JSONStringsEachRow": _json_each_row(_as_strings),
    "JSONObjectEachRow": _json_object_each_row,
    "Markdown": _markdown,
    "Null": _null,
    "Pretty": pretty,
    "PrettyCompact": pretty_compact,
    "RawBLOB": _raw_blob,
    "SQLInsert": _sql_insert,
    "Values": _values,
    "Vertical": vertical,
    "XML": xml,
}
_OTHER_NAMES = {
    "TabSeparated": "TSV",
    "TabSeparatedRaw": "TSVRaw",
    "Raw": "TSVRaw",
    "TabSeparatedRawWithNames": "TSVRawWithNames",
    "TabSeparatedRawWithNamesAndTypes": "TSVRawWithNamesAndTypes",
    "RawWithNames": "TSVRawWithNames",
    "RawWithNamesAndTypes": "TSVRawWithNamesAndTypes",
    "PrettyNoEscapes": "Pretty",
    "PrettyMonoBlock": "Pretty",
    "PrettyNoEscapesMonoBlock": "Pretty",
    "PrettyCompactNoEscapes": "PrettyCompact",
    "PrettyCompactMonoBlock": "PrettyCompact",
    "PrettyCompactNoEscapesMonoBlock": "PrettyCompact",
    "TabSeparatedWithNames": "TSVWithNames",
    "TabSeparatedWithNamesAndTypes": "TSVWithNamesAndTypes",
    "JSONLines": "JSONEachRow",
    "NDJSON": "JSONEachRow",
}
_ALIASES = {other.lower(): name for other, name in _OTHER_NAMES.items()}


def _write_parquet(rows: Rows, out: BinaryIO) -> None:
    from pyarrow import parquet  # noqa: PLC0415  start-up: only this format needs it

    from rmt_pipeline.store.parquet import columns_with_bounds  # noqa: PLC0415  start-up: as above

    schema = _schema(rows.columns, "Parquet")
    bounds = columns_with_bounds(schema)
    with parquet.ParquetWriter(
        out, schema, compression="zstd", write_statistics=bounds
    ) as writer:
        for batch in rows.batches:
            writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))


def _write_ipc(new: Callable[[BinaryIO, pa.Schema], Any], rows: Rows, out: BinaryIO) -> None:
    schema = _schema(rows.columns, "Arrow")
    with new(out, schema) as writer:
        for batch in rows.batches:
            writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))


def _schema(columns: Sequence[ResultColumn], format_name: str) -> pa.Schema:
    names = [column.name for column in columns]
    twins = sorted({name for name in names if names.count(name) > 1})
    if twins:
        raise UserError(
            f"{format_name} needs distinct names: {twins[0]!r} is there twice; use AS"
        )
    return pa.schema([(column.name, column.type.arrow) for column in columns])


def _write_row_binary(
    rows: Rows, out: BinaryIO, *, names: bool = False, types: bool = False
) -> None:
    """Write rows as the original's RowBinary, after a head of names and types if asked for. Raises
    NoBinaryForm before anything is written.
    """
    from rmt_pipeline.protocol.nodes.formats import varint  # noqa: PLC0415  start-up
    from rmt_pipeline.types.binary import binary_encoder, text_bytes  # noqa: PLC0415  start-up

    encoders = [binary_encoder(column.type) for column in rows.columns]
    head = bytearray()
    if names:
        head += varint(len(rows.columns))
        head += b"".join(text_bytes(column.name) for column in rows.columns)
    if types:
        head += b"".join(text_bytes(column.type.text) for column in rows.columns)
    out.write(head)
    for batch in small_batches(rows.batches):
        piece = bytearray()
        columns = [plain_values(array) for array in batch.columns]
        for row in zip(*columns, strict=True):
            for encode, value in zip(encoders, row, strict=True):
                encode(value, piece)
        out.write(piece)


_BINARY_FORMATS: dict[str, Callable[[Rows, BinaryIO], None]] = {
    "Arrow": partial(_write_ipc, pa.ipc.new_file),
    "ArrowStream": partial(_write_ipc, pa.ipc.new_stream),
    "Parquet": _write_parquet,
    "RowBinary": _write_row_binary,
    "RowBinaryWithNames": partial(_write_row_binary, names=True),
    "RowBinaryWithNamesAndTypes": partial(_write_row_binary, names=True, types=True),
}
