"""The ways in which the rows of an asset's partitions are stored: appended, replaced, upserted."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dagster as dg
import pyarrow as pa

from rmt_pipeline.dagster.failures import WrongAsset
from rmt_pipeline.dagster.reader import Content
from rmt_pipeline.dagster.rows.given import is_spark, read_given
from rmt_pipeline.dagster.rows.partitions import PARTITION_METADATA, stored_rows
from rmt_pipeline.dagster.rows.tokens import insert_name, insert_token, row_digests
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.table import Table

QUORUM_METADATA = "rmt/quorum"
WRITE_METADATA = "rmt/write"
UPSERTS = "ReplacingMergeTree"


@dataclass(frozen=True, slots=True)
class StoredRows:
    """What became of the rows of one partition: how many are new, how many were there already, and
    how many were removed for the new ones.
    """

    kind: str
    parts: tuple[PartName, ...]
    words: str
    rows: int
    rows_duplicate: int = 0
    rows_replaced: int = 0
    insert_id: str = ""


Way = Callable[[dg.OutputContext, Table, Sequence[str], QuerySettings, Any], StoredRows]
"""Stores rows as those of the partitions with these keys."""


def way_of_writing(context: dg.OutputContext, table: Table, quorum: str) -> Way:
    """How the asset's metadata says that its rows are stored. Raises WrongAsset when the table, or
    other metadata, does not allow that.
    """
    metadata = context.definition_metadata or {}
    asset = context.asset_key.to_user_string()
    write = str(metadata.get(WRITE_METADATA, "append"))
    if write not in _WAYS:
        raise WrongAsset(
            f"{WRITE_METADATA} of {asset} is one of {', '.join(_WAYS)}, not {write}"
        )
    kind = table.definition.engine.kind
    if write == "upsert" and kind != UPSERTS:
        raise WrongAsset(
            f"{asset} has {WRITE_METADATA} = upsert, but {table.definition.full_name} is a {kind}, "
            f"which keeps every row: use Replicated{UPSERTS}, or replace for whole partitions"
        )
    if write == "replace":
        _require_replaceable(context, quorum)
    return _WAYS[write]


def _require_replaceable(context: dg.OutputContext, quorum: str) -> None:
    asset = context.asset_key.to_user_string()
    expression = (context.definition_metadata or {}).get(PARTITION_METADATA)
    if context.has_asset_partitions and not expression:
        raise WrongAsset(
            f"{asset} replaces the rows of its partitions, but which these are is not known: its "
            f"metadata needs {PARTITION_METADATA}, the table's column or expression of the key"
        )
    if quorum != "0":
        raise WrongAsset(
            f"{asset} has {WRITE_METADATA} = replace, which knows no quorum ({quorum}): set "
            f"{QUORUM_METADATA} to 0 for it"
        )


def _append(
    context: dg.OutputContext,
    table: Table,
    keys: Sequence[str],
    settings: QuerySettings,
    rows: Any,
) -> StoredRows:
    """Insert rows, with a token made of the asset, the partition and the rows. Only its tasks see
    the rows of a Spark DataFrame: there the token has the run instead of the rows, or, in a retry,
    the run that is retried.
    """
    run = context.step_context.dagster_run
    given = _twice_readable(rows)
    if is_spark(given):
        which: tuple[str, ...] = (f"run/{run.root_run_id or run.run_id}",)
    else:
        which = row_digests(_rows_of(given, table))
    token = insert_token(context, table, keys, *which)
    return _inserted(table, given, token, settings, run.run_id)


def _upsert(
    context: dg.OutputContext,
    table: Table,
    keys: Sequence[str],
    settings: QuerySettings,
    rows: Any,
) -> StoredRows:
    """Insert rows, with a token made of the asset, the partition, the run and the attempt. A token
    of the rows, or of the first run, would be wrong:

    1. A run stores A, and another run stores B in its place. Then A turns out to be right, and a
       third run stores it again. By its rows that would be the first insert, and B would stay.
    2. A run stores A, and is executed again with rows B. By the run that it retries, that would be
       the first insert, and A would stay.
    3. An attempt loses the answer to its insert, and the next attempt inserts the same rows again.
       That does no harm: the rows replace themselves.
    """
    step = context.step_context
    attempt = f"{step.dagster_run.run_id}/{step.previous_attempt_count}"
    token = insert_name(context.asset_key, keys, f"run/{attempt}")
    return _inserted(table, _twice_readable(rows), token, settings, step.dagster_run.run_id)


def _inserted(
    table: Table, given: Any, token: str, settings: QuerySettings, run_id: str
) -> StoredRows:
    if is_spark(given):
        result = table.insert_spark(given, token=token, settings=settings, run_id=run_id)
    else:
        data, settings = _as_inserted(given, settings)
        result = table.insert(data, token=token, settings=settings, run_id=run_id)
    return StoredRows(
        kind="insert",
        parts=result.parts,
        words=result.words(),
        rows=result.rows,
        rows_duplicate=result.rows_duplicate,
        insert_id=result.insert_id,
    )


def _replace(
    context: dg.OutputContext,
    table: Table,
    keys: Sequence[str],
    settings: QuerySettings,
    rows: Any,
) -> StoredRows:
    """Replace the rows of the partitions; for an asset without partitions, all rows of the table.
    There is no token: storing the same rows again changes nothing, and storing them after other
    rows has to replace those.
    """
    if is_spark(rows):
        raise WrongAsset(
            f"{context.asset_key.to_user_string()} returned a Spark DataFrame; with "
            f"{WRITE_METADATA} = replace return its toArrow()"
        )
    given = _twice_readable(rows)
    data, settings = _as_inserted(given, settings)
    where = " OR ".join(stored_rows(context, table, keys))
    run_id = context.step_context.dagster_run.run_id
    result = table.replace(data, where=where, whole=not where, settings=settings, run_id=run_id)
    return StoredRows(
        kind="replace",
        parts=result.parts,
        words=result.words(),
        rows=result.rows_added,
        rows_duplicate=_count(_rows_of(given, table)) if result.is_duplicate else 0,
        rows_replaced=result.rows_replaced,
    )


_WAYS: Mapping[str, Way] = {"append": _append, "replace": _replace, "upsert": _upsert}


def _twice_readable(rows: Any) -> Any:
    """What `read_given` returns. Files that are read, and a Spark DataFrame, are so already."""
    return rows if isinstance(rows, Content) or is_spark(rows) else read_given(rows)


def _as_inserted(given: Any, settings: QuerySettings) -> tuple[Any, QuerySettings]:
    """What a table inserts, and the settings for it: those of files are their reader's."""
    if isinstance(given, Content):
        return given.files, replace(given.settings, insert_quorum=settings.insert_quorum)
    return given, settings


def _rows_of(given: Any, table: Table) -> Any:
    return given.given(table) if isinstance(given, Content) else given


def _count(rows: Any) -> int:
    return rows.num_rows if isinstance(rows, pa.Table) else len(rows)
