"""The rows of a table as an asset's input gets them."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from typing import Any, get_origin

import dagster as dg
import pyarrow as pa

from rmt_pipeline.context import ServerContext
from rmt_pipeline.dagster.failures import WrongAsset
from rmt_pipeline.replica.reading import Snapshot
from rmt_pipeline.sql.formats.rows import Rows, record_batch
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.store.hashes.rows import hash_table
from rmt_pipeline.table import Table
from rmt_pipeline.types.escapes import quote_name

PLAIN = "MergeTree"
"""The engine that keeps every row."""


class HeldSnapshots:
    """Tables as they were when a run first read them. A snapshot keeps its parts from being
    removed.
    """

    def __init__(self) -> None:
        self._held: dict[str, tuple[Snapshot, ExitStack]] = {}

    def of(self, table: Table) -> Snapshot:
        """The run's snapshot of the table, taken at the first call. Raises
        MissingPart, Corruption.
        """
        name = table.definition.full_name
        if name not in self._held:
            pinned = ExitStack()
            self._held[name] = pinned.enter_context(table.snapshot()), pinned
        return self._held[name][0]

    def let_go(self, table: Table) -> None:
        """Forget the table's snapshot, because this run is about to change the table's rows."""
        name = table.definition.full_name
        if name in self._held:
            _, pinned = self._held.pop(name)
            pinned.close()

    def close(self) -> None:
        for _, pinned in self._held.values():
            pinned.close()
        self._held.clear()


def read_rows(
    server: ServerContext, table: Table, conditions: Sequence[str], snapshot: Snapshot
) -> pa.Table:
    """The rows of the snapshot that fulfil one of the conditions; all of them if there is none."""
    rows = _select(server, table, conditions, snapshot)
    batches = list(rows.batches) or [record_batch(rows.columns, [[] for _ in rows.columns])]
    names = [column.name for column in rows.columns]
    return pa.Table.from_batches(batches).rename_columns(names)


def row_hash(server: ServerContext, table: Table, conditions: Sequence[str]) -> str:
    """The sum of the hashes of the rows that would be read, which does not depend on
    their order.
    """
    if not conditions and table.definition.engine.kind == PLAIN:
        hashes = [part.manifest.row_hash for part in table.parts()]
    else:
        rows = _select(server, table, conditions)
        names = [column.name for column in rows.columns]
        hashes = [hash_table(batch.rename_columns(names)).row_hash for batch in rows.batches]
    return f"{sum(hashes) % 2**128:032x}"


def _select(
    server: ServerContext,
    table: Table,
    conditions: Sequence[str],
    snapshot: Snapshot | None = None,
) -> Rows:
    """The rows that fulfil one of the conditions, all rows if there is none; of the snapshot, or of
    the table as it is now if there is none.
    """
    definition = table.definition
    name = f"{quote_name(definition.database)}.{quote_name(definition.name)}"
    final = "" if definition.engine.kind == PLAIN else " FINAL"
    session = Session(server)
    if snapshot is not None:
        session.context.held[definition.full_name] = snapshot

    def of(where: str) -> Rows:
        rows = session.execute(f"SELECT * FROM {name}{final}{where}")  # noqa: S608  quoted
        assert isinstance(rows, Rows)
        return rows

    first, *others = [f" WHERE {condition}" for condition in conditions] or [""]
    rows = of(first)
    return replace(
        rows,
        batches=chain(rows.batches, chain.from_iterable(of(one).batches for one in others)),
    )


Loader = Callable[[pa.Table], Any]


def loader_of(context: dg.InputContext) -> Loader:
    """What makes of rows the type that the input's annotation names. Raises WrongAsset for one that
    can't be loaded.
    """
    wanted = _type_name(context.dagster_type.typing_type)
    if wanted not in _LOADERS:
        raise WrongAsset(
            f"input {context.name} is annotated as {wanted}; what is read from a table is one "
            f"of {', '.join(_LOADERS)}"
        )
    return _LOADERS[wanted]


def _type_name(wanted: Any) -> str:
    """The annotation as package and class, such as `pandas.DataFrame`, whichever module has the
    class.
    """
    wanted = get_origin(wanted) or wanted
    if wanted is Any or not isinstance(wanted, type):  # Dagster says Any of no annotation, too
        return "pyarrow.Table"
    return f"{wanted.__module__.partition('.')[0]}.{wanted.__name__}"


def _to_polars(rows: pa.Table) -> Any:
    import polars as pl  # noqa: PLC0415  for start-up time, and it need not be installed

    return pl.from_arrow(rows)


def _to_duckdb(rows: pa.Table) -> Any:
    import duckdb  # noqa: PLC0415  for start-up time

    return duckdb.from_arrow(rows)


_LOADERS: Mapping[str, Loader] = {
    "pyarrow.Table": lambda rows: rows,
    "pyarrow.RecordBatchReader": lambda rows: rows.to_reader(),
    "pandas.DataFrame": lambda rows: rows.to_pandas(),
    "polars.DataFrame": _to_polars,
    "duckdb.DuckDBPyRelation": _to_duckdb,
    "builtins.list": lambda rows: rows.to_pylist(),
}
