"""Keys of large sources, where Parquet's statistics do not tell enough to cut a merge by.

Statistics know the least and greatest value of a column in a row group. That is enough for
numbers that lie about evenly. It is not for strings, for keys that are computed, and where the
key's first column has few values, so that the cut must be by its second.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from rmt_pipeline.compute.rows.keys import KeyColumns
from rmt_pipeline.compute.rows.source import SortKey, key_value, naming_the_part, open_parquet
from rmt_pipeline.compute.units import Sample, Shape, UnitFile, UnitSource
from rmt_pipeline.syntax.types import arrow_schema

SAMPLED_ROW_GROUPS_MAX = 64
SAMPLES_PER_ROW_GROUP = 16


class KeyReader:
    """The keys of rows here and there."""

    def __init__(self, shape: Shape) -> None:
        self._key = KeyColumns([part.text for part in shape.key], shape.columns)
        self._inputs = list(self._key.inputs)
        columns = {column.name: column for column in shape.columns}
        self._schema = arrow_schema([columns[name] for name in self._inputs])

    def samples(self, sources: Sequence[UnitSource]) -> list[Sample]:
        """Keys at even distances in row groups at even distances. None of a source that lacks a
        column of the key. Raises BrokenSource.
        """
        groups = [
            (source.part, file, metadata, group)
            for source in sources
            for file in source.files
            for metadata in [open_parquet(source.part, file.path).metadata]
            for group in range(metadata.num_row_groups)
        ]
        step = -(-len(groups) // SAMPLED_ROW_GROUPS_MAX)
        found: list[Sample] = []
        for part, file, metadata, group in groups[step // 2 :: step]:
            rows = metadata.row_group(group).num_rows
            count = min(SAMPLES_PER_ROW_GROUP, rows)
            places = np.linspace(0, rows, count, endpoint=False, dtype=np.int64)
            weight = metadata.row_group(group).total_byte_size / max(count, 1)
            table = self._read(part, file, group, metadata.row_group(group).num_rows)
            if table is not None:
                keys = self._keys(table.take(pa.array(places)))
                found += [Sample(key, weight) for key in keys]
        return found

    def with_firsts(self, source: UnitSource) -> UnitSource:
        """The source, knowing the leading key value at the beginning of each row group."""
        files = []
        for file in source.files:
            metadata = open_parquet(source.part, file.path).metadata
            tables = [
                self._read(source.part, file, group, 1)
                for group in range(metadata.num_row_groups)
            ]
            if any(table is None for table in tables):
                return source
            firsts = [self._keys(table)[0][0] for table in tables]
            files.append(replace(file, firsts=tuple(firsts)))
        return replace(source, files=tuple(files))

    def _read(self, part: str, file: UnitFile, group: int, rows: int) -> pa.Table | None:
        """The first rows of a row group, the key's columns alone; None when it lacks one."""
        with open_parquet(part, file.path) as opened, naming_the_part(part, file.path):
            if not set(self._inputs) <= set(opened.schema_arrow.names):
                return None
            batches: Iterator[Any] = opened.iter_batches(
                rows, row_groups=[group], columns=self._inputs, use_threads=False
            )
            table = pa.Table.from_batches([next(batches)])
            return table.select(self._inputs).cast(self._schema)

    def _keys(self, table: pa.Table) -> list[SortKey]:
        columns = self._key.ordered(table.combine_chunks())
        return [
            tuple(key_value(column[row]) for column in columns) for row in range(len(table))
        ]
