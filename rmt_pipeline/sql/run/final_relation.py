"""FINAL: a table of a query with the rows that merging all its parts would leave (spec §17).

The merge is made for this query alone, in a directory of its own, which is removed with the answer.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rmt_pipeline.compute.merge.job import SourcePart
from rmt_pipeline.compute.read.final import columns_for_final, final_rows
from rmt_pipeline.files import unwritable
from rmt_pipeline.protocol.alter.history import stored_columns
from rmt_pipeline.protocol.errors import NotImplementedStatement
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.reading import Snapshot
from rmt_pipeline.sql.run.table_relation import (
    TableFiles,
    relation_over,
    virtual_columns_in,
)
from rmt_pipeline.store.manifest import PartColumn
from rmt_pipeline.syntax.nodes import Query, names_columns_by_star, names_in
from rmt_pipeline.system import Clock
from rmt_pipeline.table import Table
from rmt_pipeline.translate.select.sources import Relation

_PREFIX = "final_"
ABANDONED_S = 86_400  # then its process must have died: no query takes a day


@contextmanager
def final_directory(parent: Path, clock: Clock) -> Iterator[Path]:
    """A new directory for merged rows, removed at the end. Directories that dead processes left are
    removed too. Raises DiskFull, BadConfiguration.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
        directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    except OSError as error:
        raise unwritable(parent, error) from error
    try:
        _remove_abandoned(parent, clock)
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _remove_abandoned(parent: Path, clock: Clock) -> None:
    for left in parent.glob(f"{_PREFIX}*"):
        try:
            age_s = clock.now_s() - left.stat().st_mtime
        except FileNotFoundError:
            continue  # its query has just ended
        if age_s > ABANDONED_S:
            shutil.rmtree(left, ignore_errors=True)


def final_relation(
    table: Table,
    snapshot: Snapshot,
    query: Query,
    directory: Path,
    clock: Clock,
    *,
    by_partition: bool,
) -> Relation:
    """The merged rows as a relation. `directory` is empty; `by_partition` keeps rows of different
    partitions apart.

    Raises NotImplementedStatement for `_part` and `_partition_id`, which a merged row does not
    have; IncorrectData for rows that the engine refuses, DiskFull, BrokenSource.
    """
    definition = table.definition
    virtual = virtual_columns_in(query)
    if virtual:
        raise NotImplementedStatement(
            f"{virtual[0]} with FINAL is not implemented: a merged row is of several parts; "
            f"leave FINAL out to see where the rows of {definition.full_name} are"
        )
    needed = columns_for_final(definition, _wanted(definition, query))
    sources = [
        SourcePart(str(part.name), table.store.directory(part.name), part.manifest)
        for part in snapshot.parts
    ]
    found = final_rows(
        sources,
        definition.with_columns(needed),
        str(directory),
        clock,
        by_partition=by_partition,
    )
    names = {source.name for source in found.untouched}
    files = [
        TableFiles.of_part(table, part) for part in snapshot.parts if str(part.name) in names
    ]
    if found.files:
        columns = tuple(PartColumn(column.name, column.type) for column in needed)
        files.append(TableFiles(columns, found.files, definition.metadata_version))
    names = {column.name for column in needed}
    others = {one.name for one in stored_columns(definition)} - names
    return relation_over(files, definition, unread=others)


def _wanted(definition: TableDefinition, query: Query) -> list[str]:
    """The columns that the query may use: those that it names anywhere, or all."""
    names = names_in(query)
    named = [
        column
        for column in definition.columns
        if not names.isdisjoint(_ways_to_name(column.name))
    ]
    if names_columns_by_star(query) or any(one.default_kind == "ALIAS" for one in named):
        named = list(definition.columns)
    return [column.name for column in named]


def _ways_to_name(column: str) -> Iterator[str]:
    """What a query may call the column, or the first part of that: the column `n.x` is "`n.x`",
    `n.x`, or, with its group of Nested, `n`.
    """
    parts = column.split(".")
    return (".".join(parts[:end]) for end in range(1, len(parts) + 1))
