"""Reads the sources of a merge: the sorted rows of one part, in batches of bounded size."""

import contextlib
import errno
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rmt_pipeline.compute.rows.order import nested_key
from rmt_pipeline.compute.units import (
    KeyPrefix,
    LeadingKey,
    RowGroupStatistics,
    UnitFile,
    UnitSource,
)
from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.syntax.types import parse_type
from rmt_pipeline.types.escapes import quote_name

# A string column whose chunks take no more than this per value was written with a dictionary that
# did not overflow. It is read as a dictionary: then codes are sorted, hashed and written, not text.
DICTIONARY_BYTES_PER_VALUE_MAX = 4.0

READ_WHOLE_BYTES_MAX = 16 << 10  # of a file; a merge may have thousands of them

SortKey = tuple[Any, ...]


class BrokenSource(Corruption):
    """The files of a source part are not what its manifest says, or can't be read."""

    def __init__(self, part: str, message: str) -> None:
        super().__init__(message, part=PartName.parse(part))


@contextlib.contextmanager
def naming_the_part(part: str, path: str) -> Iterator[None]:
    """Turn errors that say that this file of the part is missing or damaged into BrokenSource."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if not _means_corruption(error):
            raise
        raise BrokenSource(
            part, f"part {part}: {path} cannot be read: {error}. Fetch the part again"
        ) from error


def _means_corruption(error: Exception) -> bool:
    """Whether the file is missing, too short or damaged, not just impossible to open now."""
    if isinstance(error, MemoryError):
        return False
    number = getattr(error, "errno", None)  # Arrow sets none for bytes that make no sense
    return number in (None, errno.ENOENT, errno.EIO)


def open_parquet(
    part: str, path: str, dictionaries: Sequence[str] = (), metadata: Any = None
) -> pq.ParquetFile:
    """Open a part's file and read its footer. When pages are read, their checksums are checked.

    `dictionaries` are columns to read as Arrow dictionaries; `metadata` is the file's footer, if it
    was read before. Raises BrokenSource, naming the part.
    """
    with naming_the_part(part, path):
        return pq.ParquetFile(
            path,
            metadata=metadata,
            read_dictionary=list(dictionaries),
            pre_buffer=False,
            page_checksum_verification=True,
        )


def _read_whole(part: str, file: UnitFile) -> pq.ParquetFile | None:
    """A small file, read into memory, so that it need not be opened a second time for its rows,
    which takes longer than to read them; None for a larger one. Raises BrokenSource.
    """
    if file.size > READ_WHOLE_BYTES_MAX:
        return None
    with naming_the_part(part, file.path):
        with open(file.path, "rb", buffering=0) as opened:  # noqa: PTH123  a plain path
            content = pa.BufferReader(opened.read())
        return pq.ParquetFile(content, pre_buffer=False, page_checksum_verification=True)


def stretches(sources: Sequence[UnitSource], column: str) -> list[RowGroupStatistics]:
    """The bounds of `column` and the bytes of every row group of the sources. Raises
    BrokenSource.
    """
    found = []
    for source in sources:
        for file in source.files:
            metadata = open_parquet(source.part, file.path).metadata
            for group in range(metadata.num_row_groups):
                size = metadata.row_group(group).total_byte_size
                bounds = row_group_bounds(metadata, group, column) or (None, None)
                found.append(RowGroupStatistics(*bounds, size))
    return found


def row_group_bounds(
    metadata: Any, group: int, column: str
) -> tuple[LeadingKey, LeadingKey] | None:
    """The least and greatest value of a column in a row group; None if they are not known."""
    row_group = metadata.row_group(group)
    for at in range(row_group.num_columns):
        chunk = row_group.column(at)
        if chunk.path_in_schema != column:
            continue
        statistics = chunk.statistics
        if statistics is None or not statistics.has_min_max:
            return None
        kind = metadata.schema.to_arrow_schema().field(column).type
        if pa.types.is_decimal(kind) or pa.types.is_floating(kind):
            return statistics.min, statistics.max
        return _stored(statistics.min_raw, kind), _stored(statistics.max_raw, kind)
    return None


def is_compared_plainly(text: str) -> bool:
    """Whether values of this type compare as they are stored, as integers or as text. By the bounds
    of such columns it can be told that a condition holds for no row.
    """
    kind = parse_type(text)
    return kind.plain.family == "String" or (
        kind.is_integer and pa.types.is_integer(kind.arrow)
    )


def names_a_column(bound: str) -> bool:
    """Whether a manifest's bound with this name is that of the column of this name. Bounds of keys
    are named by the keys' texts, in which a column called `negate(n)` is in backticks, while the
    expression negate(n) is not.
    """
    return quote_name(bound) == bound


def _stored(value: bytes | int | bool, kind: pa.DataType) -> LeadingKey:
    if isinstance(value, bytes):
        return value
    if pa.types.is_unsigned_integer(kind):
        return int(value) % (1 << int(kind.bit_width))  # Parquet keeps them as signed
    return int(value)


def key_value(scalar: pa.Scalar) -> Any:
    """A value of a key column, in a form that compares in the column's order; see `LeadingKey`."""
    kind = scalar.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return scalar.as_buffer().to_pybytes()
    if pa.types.is_dictionary(kind):
        return key_value(scalar.value)
    if pa.types.is_temporal(kind):
        return scalar.value
    if pa.types.is_boolean(kind):
        return int(scalar.as_py())
    if pa.types.is_nested(kind):
        return nested_key(scalar.as_py())
    return scalar.as_py()


class PartReader:
    """Reads the row groups of one source that may have rows with keys in [lower, upper), as sorted
    batches.

    Every batch has those of `columns` that the source has, under their current names; the caller
    conforms them to the result's. `types` are the types that they have in the source, as texts, if
    these are known.
    """

    def __init__(
        self,
        source: UnitSource,
        columns: Sequence[str],
        leading_key: Sequence[str],
        lower: KeyPrefix | None,
        upper: KeyPrefix | None,
    ) -> None:
        """`leading_key` has the name of the key's first column, or is empty if there is no key."""
        self.part = source.part
        self._files = []
        self.rows = 0
        self.bytes = 0
        wanted = frozenset(columns)
        stored = {one.column: one for one in source.stored or () if one.column in wanted}
        self.types = {name: one.type for name, one in stored.items()}
        self._stored_names = {name: one.name for name, one in stored.items()}
        if source.stored is None:
            self._stored_names = {name: name for name in columns}
        of_file = {stored: name for name, stored in self._stored_names.items()}
        for file in source.files:
            in_memory = _read_whole(source.part, file)
            opened = in_memory or open_parquet(source.part, file.path)
            metadata = opened.metadata
            groups = []
            for group in range(metadata.num_row_groups):
                bounds = _leading_bounds(file, metadata, group, leading_key)
                if bounds is None or _overlaps(bounds, lower, upper):
                    groups.append(group)
                    self.rows += metadata.row_group(group).num_rows
                    self.bytes += metadata.row_group(group).total_byte_size
            names = {
                name: of_file[name] for name in opened.schema_arrow.names if name in of_file
            }
            if groups:
                self._files.append((file.path, metadata, groups, names, in_memory))
            if in_memory is None:
                opened.close()

    def dictionary_columns(self) -> frozenset[str]:
        """The string columns that have a small dictionary in every row group of this source."""
        found: frozenset[str] | None = None
        for _, metadata, groups, _, _ in self._files:
            for group in groups:
                small = _small_dictionaries(metadata, group)
                found = small if found is None else found & small
        names = found or frozenset()
        return frozenset(name for name, stored in self._stored_names.items() if stored in names)

    def batches(self, rows: int, dictionaries: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Batches of at most `rows` rows. Raises BrokenSource."""
        coded = [
            self._stored_names[name] for name in dictionaries if name in self._stored_names
        ]
        for path, metadata, groups, names, in_memory in self._files:
            opened = None if coded else in_memory
            with (
                opened or open_parquet(self.part, path, coded, metadata) as file,
                naming_the_part(self.part, path),
            ):
                for batch in file.iter_batches(
                    rows, row_groups=groups, columns=list(names), use_threads=False
                ):
                    yield batch.rename_columns([names[name] for name in batch.schema.names])


def _leading_bounds(
    file: UnitFile, metadata: Any, group: int, leading_key: Sequence[str]
) -> tuple[Any, Any] | None:
    """The bounds of the leading key in a row group; None if they are not known."""
    if not leading_key:
        return None
    if not file.firsts:
        return row_group_bounds(metadata, group, leading_key[0])
    if group + 1 == len(file.firsts):
        return None
    return file.firsts[group], file.firsts[group + 1]  # files are sorted


def _overlaps(
    bounds: tuple[Any, Any], lower: KeyPrefix | None, upper: KeyPrefix | None
) -> bool:
    least, greatest = bounds
    if lower is not None and greatest < lower[0]:
        return False
    if upper is None or least < upper[0]:
        return True
    return len(upper) > 1 and bool(least == upper[0])


def _small_dictionaries(metadata: Any, group: int) -> frozenset[str]:
    row_group = metadata.row_group(group)
    found = set()
    for at in range(row_group.num_columns):
        chunk = row_group.column(at)
        text = chunk.physical_type == "BYTE_ARRAY" and "." not in chunk.path_in_schema
        size = chunk.total_uncompressed_size / max(chunk.num_values, 1)
        if text and chunk.has_dictionary_page and size <= DICTIONARY_BYTES_PER_VALUE_MAX:
            found.add(chunk.path_in_schema)
    return frozenset(found)
