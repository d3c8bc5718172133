"""What an asset returned, as rows that can be read twice: for their token and for the table."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from rmt_pipeline.compute.inputs.memory import require_dicts, with_index
from rmt_pipeline.dagster.failures import WrongAsset


def read_given(rows: Any) -> Any:
    """The rows in a form that can be read twice: in Arrow; but a pandas DataFrame, and a list of
    dicts of which some lack values, as they are. Of these a table knows what Arrow can't tell:
    which values are NaN, and which rows get a column's default. Raises WrongAsset for what is no
    rows.
    """
    if isinstance(rows, pa.Table) or is_pandas(rows):
        return rows
    if isinstance(rows, pa.RecordBatchReader):
        return rows.read_all()
    if isinstance(rows, list):
        require_dicts(rows)
        found = in_arrow(rows)
        return rows if found is None else found
    for method in ("to_arrow_table", "to_arrow"):  # DuckDB's, Polars'
        if hasattr(rows, method):
            return getattr(rows, method)()
    raise WrongAsset(
        f"an asset returned {type(rows).__name__}; what a table stores is a pyarrow Table or "
        "RecordBatchReader, a pandas or Polars DataFrame, a DuckDB relation, a Spark DataFrame, "
        "a list of dicts, or a file of a ReaderConfig"
    )


def is_spark(rows: Any) -> bool:
    """Whether it is a DataFrame of Spark, whose rows only its tasks see."""
    return type(rows).__module__.startswith("pyspark.sql")


def is_pandas(rows: Any) -> bool:
    """Whether it is a DataFrame: a Series, as a sum by groups gives it, has no columns."""
    return type(rows).__module__.partition(".")[0] == "pandas" and hasattr(rows, "columns")


def in_arrow(rows: Any) -> pa.Table | None:
    """What `read_given` returned, in Arrow; None for a list or DataFrame whose rows can't be
    columns of Arrow's types, or of which some lack values that others have.
    """
    try:
        if isinstance(rows, list):
            alike = all(row.keys() == rows[0].keys() for row in rows)
            return pa.Table.from_pylist(rows) if alike else None
        if is_pandas(rows):
            return pa.Table.from_pandas(with_index(rows), preserve_index=False)
    except (pa.ArrowException, OverflowError, ValueError):  # as for two columns of one name
        return None
    return rows


def in_dicts(rows: Any) -> list[Mapping[Any, Any]]:
    """A list of dicts, or a pandas DataFrame, as a dict for each row."""
    if not is_pandas(rows):
        return list(rows)
    frame = with_index(rows)
    values = frame.itertuples(index=False, name=None)
    return [dict(zip(frame.columns, row, strict=True)) for row in values]
