"""Checks by reading a part's files that its manifest is right: that it has the rows whose hashes
are there, that no value is beyond the bounds there, and that all rows have expired if it says so.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rmt_pipeline.compute.merge.job import MergeJob
from rmt_pipeline.compute.merge.plan import unit_source
from rmt_pipeline.compute.read.parts import converted_rows
from rmt_pipeline.compute.rows.computed import compiled, ttl_rules
from rmt_pipeline.compute.rows.source import (
    is_compared_plainly,
    key_value,
    names_a_column,
    row_group_bounds,
)
from rmt_pipeline.compute.rows.ttl import RowTtl
from rmt_pipeline.compute.rows.write import FILE_POSITIONS
from rmt_pipeline.compute.stop import raise_if_stopped
from rmt_pipeline.compute.units import UnitSource
from rmt_pipeline.protocol.alter.history import stored_columns
from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.protocol.ttl import TtlRule
from rmt_pipeline.store.hashes.rows import RowHashes, hash_table
from rmt_pipeline.store.layout import data_file, data_file_number
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.store.parquet import read_batches


def rows_are_those_of(manifest: Manifest, paths: list[str]) -> bool:
    """Whether these files have exactly the rows whose hashes are in `manifest`, and no values
    beyond the bounds in their footers. False if a file can't be read or is gone.
    """
    names = [column.name for column in manifest.columns]
    found = RowHashes(0, 0, dict.fromkeys(names, 0), 0)
    try:
        for path in paths:
            position = data_file_number(path) * FILE_POSITIONS
            for batch in read_batches(path):
                if batch.schema.names != names:
                    return False
                found += hash_table(batch, start_position=position)
                position += batch.num_rows
            if _hides_values(path, _plain_columns(manifest)):
                return False
    except (Corruption, FileNotFoundError):
        return False
    claimed = manifest.rows, manifest.row_hash, manifest.content_hash
    return claimed == (found.rows, found.row_hash, found.content_hash)


def _hides_values(path: str, columns: Collection[str]) -> bool:
    """Whether a row group has values beyond its bounds in the footer, which readers would skip.
    Raises Corruption.
    """
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            for group in range(file.num_row_groups):
                for name in columns:
                    told = row_group_bounds(file.metadata, group, name)
                    if told is None:
                        continue
                    found = pc.min_max(file.read_row_group(group, [name]).column(name))
                    least, greatest = found["min"], found["max"]
                    if least.is_valid and (
                        told[0] > key_value(least) or told[1] < key_value(greatest)
                    ):
                        return True
    except (pa.ArrowException, OSError) as error:
        raise Corruption(f"{path} is not a readable Parquet file: {error}") from error
    return False


def _plain_columns(manifest: Manifest) -> set[str]:
    """The columns by whose bounds readers decide what to read."""
    return {column.name for column in manifest.columns if is_compared_plainly(column.type)}


def difference_from_bounds(manifest: Manifest, paths: Sequence[str]) -> str | None:
    """The first column whose values in the files are beyond its bounds in the manifest, in words;
    None if there is none. Checks only columns by whose bounds readers decide what to read.

    The values' bounds are in the files' footers; if they are not, the column is read. Raises
    Corruption for a file that can't be read.
    """
    plain = _plain_columns(manifest)
    for name, *claimed in manifest.key_bounds:
        kinds = {type(value) for value in claimed}
        if name not in plain or not names_a_column(name) or None in claimed:
            continue
        found = [end for path in paths for end in _ends(path, name)]
        is_wrong = found and (
            kinds != {type(value) for value in found}
            or claimed[0] > min(found)
            or claimed[1] < max(found)
        )
        if is_wrong:
            return (
                f"{name}: its manifest says {claimed[0]} to {claimed[1]}, its files have "
                f"{min(found)} to {max(found)}"
            )
    return None


def _ends(path: str, column: str) -> Iterator[Any]:
    """The least and greatest values of pieces of the column in a file; none if all are NULL."""
    try:
        with pq.ParquetFile(path) as file:
            metadata = file.metadata
            groups = range(metadata.num_row_groups)
            found = [row_group_bounds(metadata, group, column) for group in groups]
    except (pa.ArrowException, OSError) as error:
        raise Corruption(f"{path} is not a readable Parquet file: {error}") from error
    known = [one for one in found if one is not None]
    pieces = known if len(known) == len(found) else _read_ends(path, column)
    for end in (end for piece in pieces for end in piece):
        yield end.decode("utf-8", "replace") if isinstance(end, bytes) else end


def _read_ends(path: str, column: str) -> Iterator[tuple[Any, Any]]:
    for batch in read_batches(path, columns=[column]):
        if not batch.num_columns:
            return
        ends = pc.min_max(batch.column(0))
        if ends["min"].is_valid:
            yield key_value(ends["min"]), key_value(ends["max"])


def every_row_expired(job: MergeJob) -> bool:
    """Whether TTL removes all rows of the sources, as their manifests say. Only the columns that
    the rules need are read. Raises BrokenSource, BadValue, Conflict (the job was asked to stop).
    """
    columns = stored_columns(job.definition)
    rules = [rule for rule in ttl_rules(job.definition) if rule.removes_rows]
    sources = [unit_source(source, job.definition) for source in job.sources]
    needed = _columns_of(rules, columns, sources)
    ttl = RowTtl(rules, needed, job.create_time_s)
    for source in sources:
        for rows in converted_rows(source, needed):
            raise_if_stopped(f"{job.staging}/{data_file(0)}")
            if ttl.expire(rows).num_rows:
                return False
    return True


def _columns_of(
    rules: Sequence[TtlRule], columns: Sequence[Column], sources: Sequence[UnitSource]
) -> Sequence[Column]:
    """The columns that the rules need; all columns if a source lacks one of these, which then may
    be computed from any others.
    """
    texts = [text for rule in rules for text in (rule.expression, rule.where) if text]
    names = {name for text in texts for name in compiled(text, columns).columns_used}
    found = [column for column in columns if column.name in names]
    are_there = all(
        source.stored is None or names <= {one.column for one in source.stored}
        for source in sources
    )
    return found if found and are_there else columns
