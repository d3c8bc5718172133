"""The IO manager: inserts what an asset returns into its table, and reads what an asset's inputs
ask for.

A table is named like its asset: `orders` is `default.orders`, `sales/orders` is `sales.orders`. The
asset's metadata may say otherwise: `rmt/table` names the table, and `rmt/quorum` says how many
replicas must have the rows before the asset counts as materialized. Each partition is one insert
whose token is made of the asset, the partition and the rows: a retry, a re-run and an overlapping
backfill insert it once. When `rmt/write` is `replace`, the rows take the place of all rows that the
table has of the partition, in one commit. When it is `upsert`, each row takes the place of the one
with the same key, by a ReplacingMergeTree.

A materialization has the data version of what a downstream asset would read: the sum of the hashes
of those rows. So Dagster's staleness goes by content: the same rows, stored again, in another order
or by another run, are the same version.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain
from typing import Any, get_origin

import dagster as dg
import pyarrow as pa
from dagster._core.definitions.data_version import DATA_VERSION_TAG
from pydantic import Field, PrivateAttr

from rmt_pipeline.compute.inputs.memory import require_dicts, require_own_names, with_index
from rmt_pipeline.context import ServerContext
from rmt_pipeline.dagster import names
from rmt_pipeline.dagster.engine import CONFIG_PATH_HELP, EngineResource, table_named
from rmt_pipeline.dagster.failures import (
    WRONG_ROWS,
    NoTable,
    WrongAsset,
    comes_again,
    is_of_the_system,
    log_failure,
    try_again,
    try_no_more,
)
from rmt_pipeline.dagster.partition_rows import PARTITION_METADATA, rows_of_partitions
from rmt_pipeline.dagster.reader import Content, ReadFile
from rmt_pipeline.dagster.record.ledger import EventMetadata, Recorder, first_of, inserted
from rmt_pipeline.protocol.errors import (
    RmtError,
    TableDetached,
    UnknownDatabase,
    UnknownTable,
    UnknownType,
    UserError,
)
from rmt_pipeline.protocol.inserts.ids import insert_id_of_token
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.insert.result import InsertResult
from rmt_pipeline.sql.formats.rows import Rows, record_batch
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.store.hashes.rows import hash_table
from rmt_pipeline.table import Snapshot, Table
from rmt_pipeline.types.escapes import quote_name

TABLE_METADATA = "rmt/table"
QUORUM_METADATA = "rmt/quorum"
WRITE_METADATA = "rmt/write"
WRITES = ("append", "replace", "upsert")
UPSERTS = "ReplacingMergeTree"
PLAIN = "MergeTree"
"""The engine that keeps every row."""

FAILED_SHOWN_MAX = 10


class _HeldSnapshots:
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


class RmtIOManager(dg.ConfigurableIOManager):
    """Stores assets in replicated tables and loads them from there.

    It stores pyarrow Tables and RecordBatchReaders, pandas and Polars DataFrames, DuckDB relations,
    Spark DataFrames, lists of dicts and files (`ReaderConfig.file`); and, in a run of several
    partitions, a dict with one of these for each partition key.

    It loads the type that the input's annotation names, or a pyarrow Table when there is no
    annotation. Spark DataFrames are not loaded: an op that has a session reads
    `table.spark(session)`. When the upstream asset's metadata has a `partition_expr`, only rows of
    the requested partitions are loaded. Engines that combine rows are read with FINAL.

    All that a run loads from a table is of one moment: the parts of its first input stay until the
    run ends (with Dagster's multiprocess executor: the step), or until it stores rows in that table
    itself, which later inputs of the run then see.

    The table must exist: `rmt_table` declares it.
    """

    server: str = Field(description="The server that rows are inserted into and read from.")
    config_path: str = Field(default="", description=CONFIG_PATH_HELP)
    quorum: str = Field(
        default="0",
        description="How many replicas must have an asset's rows before it counts as materialized, "
        "or auto: the majority. The asset's metadata rmt/quorum takes precedence.",
    )

    _held: _HeldSnapshots = PrivateAttr(default_factory=_HeldSnapshots)

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        try_again(context)

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        del context
        self._held.close()

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Store what an asset returned. Raises UnknownTable, UserError when the object can't be
        stored, and what `Table.insert` raises. A run that is retried stores its rows once. A run
        whose rows are wrong is not retried: they would be wrong again. A disk error may pass. When
        the rows of some partitions are wrong, those of the others are stored, and materialized.
        """
        if obj is None:
            return
        try:
            self._store(context, obj)
        except RmtError as error:
            _failed(context, _table_name(context), error)
            raise

    def _store(self, context: dg.OutputContext, obj: Any) -> None:
        with self._opened() as server:
            table = _table_of(context, server)
            self._held.let_go(table)
            quorum = str((context.definition_metadata or {}).get(QUORUM_METADATA, self.quorum))
            write = _WRITERS[_way_of_writing(context, table, quorum)]
            settings = QuerySettings.of({"insert_quorum": quorum})
            by_partition = _by_partition(context, obj)
            stored: list[_Stored] = []
            failed: dict[str, UserError] = {}
            with Recorder(_Log(context), table, self.server).recording() as done:
                for keys, rows in by_partition:
                    storing = partial(write, context, table, keys, settings=settings)
                    one = _written(rows, storing)
                    if isinstance(one, UserError):
                        if len(by_partition) == 1 or is_of_the_system(one.__cause__):
                            raise one
                        failed[keys[0]] = one
                        continue
                    # The next write may replace them.
                    done.extend(inserted(table, one.parts, one.kind))
                    stored.append(one)
                    if len(by_partition) > 1:  # each partition's event has its own figures
                        context.step_context.add_asset_metadata(
                            _figures([one]), context.asset_key, keys[0]
                        )
            if failed:
                there = [keys for keys, _ in by_partition if keys[0] not in failed]
                row_hash = cache(
                    partial(_row_hash, server, table)
                )  # some are of the whole table
                for keys, one in zip(there, stored, strict=True):
                    version = row_hash(tuple(_stored_rows(context, table, keys)))
                    figures = _metadata(table, [one], self.server, version)
                    _materialize(context, keys[0], figures, version)
                raise _of_some_partitions(failed, len(there))
            version = _row_hash(server, table, _stored_rows(context, table, _keys_of(context)))
            context.add_output_metadata(_metadata(table, stored, self.server, version))
            if not context.step_context.has_data_version(context.asset_key):
                # What `context.set_data_version` of the asset would do, which gave no version.
                context.step_context.set_data_version(
                    context.asset_key, dg.DataVersion(version)
                )

    def load_input(self, context: dg.InputContext) -> Any:
        """Read an input from its table. Raises UnknownTable, and UserError when the annotation
        names a type that can't be loaded.
        """
        upstream = context.upstream_output
        assert upstream is not None, "an asset's input has the output that it is of"
        try:
            return self._load(context, upstream)
        except RmtError as error:
            _failed(context, _table_name(upstream), error)
            raise

    def _load(self, context: dg.InputContext, upstream: dg.OutputContext) -> Any:
        wanted = _type_name(context.dagster_type.typing_type)
        if wanted not in _LOADERS:
            raise WrongAsset(
                f"input {context.name} is annotated as {wanted}; what is read from a table is one "
                f"of {', '.join(_LOADERS)}"
            )
        with self._opened() as server:
            table = _table_of(upstream, server)
            rows = _arrow_of(
                _select(server, table, _conditions(context, table), self._held.of(table))
            )
        return _LOADERS[wanted](rows)

    def _opened(self) -> Any:
        return EngineResource(config_path=self.config_path).server(self.server, "io manager")


@dataclass(frozen=True, slots=True)
class _Stored:
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


@dataclass(frozen=True, slots=True)
class _Log:
    """Gives the ledger's recorder what it needs of an output's context."""

    context: dg.OutputContext

    @property
    def instance(self) -> dg.DagsterInstance:
        return self.context.step_context.instance

    def log_event(self, event: dg.AssetMaterialization | dg.AssetObservation) -> None:
        self.context.log_event(event)


def _failed(context: dg.OutputContext | dg.InputContext, table: str, error: RmtError) -> None:
    """Say what is wrong. A run is not tried again for what would come again; a table that is not
    there yet may be if the run is to create it, too.
    """
    log_failure(context.log, table, error)
    try:
        step = context.step_context
    except dg.DagsterInvariantViolationError:
        return  # an asset is loaded, and by no run
    if isinstance(error, NoTable):
        is_over = error.replica not in step.job_def.asset_layer.selected_asset_keys
    else:
        is_over = comes_again(error)
    if is_over:
        try_no_more(step.instance, step.run_id)


def _table_of(asset: dg.OutputContext, server: ServerContext) -> Table:
    """The table of an asset. Raises NoTable with what may have been meant, and TableDetached."""
    name = _table_name(asset)
    try:
        return table_named(server, name)
    except TableDetached:
        raise
    except (UnknownTable, UnknownDatabase) as error:
        at = server.server.name
        replica = names.replica_key(name, at)
        why = str(error)
        raise NoTable(
            f"{why}{'' if why.endswith('?') else '.'} Asset {asset.asset_key.to_user_string()} is "
            f"stored in it on {at}: materialize {replica.to_user_string()}, which rmt_table "
            "declares, or CREATE TABLE. If another table is meant, the asset's metadata "
            f"{TABLE_METADATA} names it. If none is, give the asset an io_manager_key of its own, "
            "or let it return a MaterializeResult in place of a value",
            replica,
        ) from None


def _written(rows: Any, write: Callable[[Any], _Stored]) -> _Stored | UserError:
    """Store the rows of one partition. Returns the error if they, or their file, are wrong."""
    try:
        content = rows.read() if isinstance(rows, ReadFile) else rows
    except UserError as error:
        return error
    try:
        return write(content)
    except WRONG_ROWS as error:
        return error


def _materialize(
    context: dg.OutputContext, key: str, figures: EventMetadata, version: str
) -> None:
    """Tell Dagster that a partition is materialized, in a run that will fail for others."""
    context.log_event(
        dg.AssetMaterialization(
            context.asset_key,
            partition=key,
            metadata=figures,
            tags={DATA_VERSION_TAG: version},
        )
    )


def _of_some_partitions(failed: Mapping[str, UserError], others: int) -> UserError:
    """The error of the first partition, with a note on which partitions have failed."""
    key, error = next(iter(failed.items()))
    error.add_note(
        f"This is of partition {key}. {len(failed)} partitions have failed: "
        f"{first_of(list(failed), FAILED_SHOWN_MAX, between=', ')}. The rows of the other {others} "
        "partitions are in the table"
    )
    return error


def _table_name(context: dg.OutputContext) -> str:
    named = (context.definition_metadata or {}).get(TABLE_METADATA)
    return str(named) if named else ".".join(context.asset_key.path)


def _way_of_writing(context: dg.OutputContext, table: Table, quorum: str) -> str:
    """One of WRITES. Raises UserError when the table or the asset's metadata does not allow it."""
    metadata = context.definition_metadata or {}
    asset = context.asset_key.to_user_string()
    write = str(metadata.get(WRITE_METADATA, "append"))
    if write not in WRITES:
        raise WrongAsset(
            f"{WRITE_METADATA} of {asset} is one of {', '.join(WRITES)}, not {write}"
        )
    kind = table.definition.engine.kind
    if write == "upsert" and kind != UPSERTS:
        raise WrongAsset(
            f"{asset} has {WRITE_METADATA} = upsert, but {table.definition.full_name} is a {kind}, "
            f"which keeps every row: use Replicated{UPSERTS}, or replace for whole partitions"
        )
    if write != "replace":
        return write
    if context.has_asset_partitions and not metadata.get(PARTITION_METADATA):
        raise WrongAsset(
            f"{asset} replaces the rows of its partitions, but which these are is not known: its "
            f"metadata needs {PARTITION_METADATA}, the table's column or expression of the key"
        )
    if quorum != "0":
        raise WrongAsset(
            f"{asset} has {WRITE_METADATA} = replace, which knows no quorum ({quorum}): set "
            f"{QUORUM_METADATA} to 0 for it"
        )
    return write


def _by_partition(context: dg.OutputContext, obj: Any) -> Sequence[tuple[list[str], Any]]:
    """What is to be stored, each with its partition keys. If the asset did not return a dict, that
    is one object for all partitions of the run. Raises UserError for rows of a partition that the
    run does not have.
    """
    keys = _keys_of(context)
    if not isinstance(obj, dict):
        return [(keys, obj)]
    strangers = obj.keys() - set(keys)
    if strangers:
        raise WrongAsset(
            f"{context.asset_key.to_user_string()} returned rows of partition {min(strangers)}, "
            f"which this run is not for: {', '.join(keys) or 'it has no partitions'}"
        )
    return [([key], obj[key]) for key in keys if key in obj]


def _keys_of(context: dg.OutputContext) -> list[str]:
    return list(context.asset_partition_keys) if context.has_asset_partitions else []


def _stored_rows(context: dg.OutputContext, table: Table, keys: Sequence[str]) -> list[str]:
    """Conditions for the rows of these partitions; none when that is all rows of the table."""
    return rows_of_partitions(context, table, keys, context.definition_metadata or {})


def _insert(
    context: dg.OutputContext,
    table: Table,
    keys: Sequence[str],
    rows: Any,
    settings: QuerySettings,
) -> _Stored:
    """Insert rows, with a token made of the asset, the partition and the rows. Only its tasks see
    the rows of a Spark DataFrame: there the token has the run instead of the rows, or, in a retry,
    the run that is retried.
    """
    if _is_spark(rows):
        run = context.step_context.dagster_run
        token = _token(context, table, keys, f"run/{run.root_run_id or run.run_id}")
        return _insert_named(table, rows, token, settings, run.run_id)
    data = rows if isinstance(rows, Content) else _read(rows)
    token = _token(context, table, keys, *_digests(_given(data, table)))
    run_id = context.step_context.dagster_run.run_id
    return _insert_named(table, data, token, settings, run_id)


def _upsert(
    context: dg.OutputContext,
    table: Table,
    keys: Sequence[str],
    rows: Any,
    settings: QuerySettings,
) -> _Stored:
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
    token = _name(context.asset_key, keys, f"run/{attempt}")
    return _insert_named(table, rows, token, settings, step.dagster_run.run_id)


def _insert_named(
    table: Table, rows: Any, token: str, settings: QuerySettings, run_id: str
) -> _Stored:
    if _is_spark(rows):
        result = table.insert_spark(rows, token=token, settings=settings, run_id=run_id)
    else:
        data, settings = _data(rows, settings)
        result = table.insert(data, token=token, settings=settings, run_id=run_id)
    return _stored(result)


def _token(
    context: dg.OutputContext, table: Table, keys: Sequence[str], which: str, *before: str
) -> str:
    """The insert's name, or the one that earlier builds gave it if the table knows it by that: so a
    run that began with such a build and is retried stores its rows once. `which` tells the insert
    from others of these partitions, and `before` is what did in earlier builds.

    The oldest of these names is another insert's if the run that stored under it was for another
    partition.
    """
    asset = context.asset_key
    names = [_name(asset, keys, one) for one in (which, *before)]
    oldest = f"{asset.to_user_string()}/{_ends(keys)}/{(which, *before)[-1]}"
    if {*names, oldest} == {names[0]}:
        return names[0]
    ids = {one: insert_id_of_token(one) for one in (*names, oldest)}
    known = {one.insert_id: one.record for one in table.inserts(list(ids.values()))}
    for name in names:
        if ids[name] in known:
            return name
    if ids[oldest] not in known:
        return names[0]
    run = context.step_context.instance.get_run_by_id(known[ids[oldest]].run_id)
    of = None if run is None else run.tags.get("dagster/partition")
    return oldest if of in (None, *keys) else names[0]


def _name(asset: dg.AssetKey, keys: Sequence[str], which: str) -> str:
    """The name of an insert of these partitions; `which` tells it from their others. Where a slash
    is no delimiter, the number of the partition's characters is added: else partition `b/c` of
    asset `a` would have the name of partition `c` of asset `a/b`, and of equal rows those of one
    of them would be taken for the other's, and not stored.
    """
    partition, escaped = _ends(keys), asset.to_escaped_user_string()
    name = f"{escaped}/{partition}/{which}"
    is_plain = "/" not in partition and escaped == asset.to_user_string()
    return name if is_plain else f"{name}/{len(partition)}"


def _ends(keys: Sequence[str]) -> str:
    return "…".join(dict.fromkeys([keys[0], keys[-1]])) if keys else ""


def _stored(result: InsertResult) -> _Stored:
    return _Stored(
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
    rows: Any,
    settings: QuerySettings,
) -> _Stored:
    """Replace the rows of the partitions; for an asset without partitions, all rows of the table.
    There is no token: storing the same rows again changes nothing, and storing them after other
    rows has to replace those.
    """
    if _is_spark(rows):
        raise WrongAsset(
            f"{context.asset_key.to_user_string()} returned a Spark DataFrame; with "
            f"{WRITE_METADATA} = replace return its toArrow()"
        )
    rows = rows if isinstance(rows, Content) else _read(rows)
    data, settings = _data(rows, settings)
    where = " OR ".join(_stored_rows(context, table, keys))
    run_id = context.step_context.dagster_run.run_id
    result = table.replace(data, where=where, whole=not where, settings=settings, run_id=run_id)
    return _Stored(
        kind="replace",
        parts=result.parts,
        words=result.words(),
        rows=result.rows_added,
        rows_duplicate=_count(_given(rows, table)) if result.is_duplicate else 0,
        rows_replaced=result.rows_replaced,
    )


_WRITERS = {"append": _insert, "replace": _replace, "upsert": _upsert}


def _is_spark(rows: Any) -> bool:
    return type(rows).__module__.startswith("pyspark.sql")


def _given(rows: Any, table: Table) -> Any:
    return rows.given(table) if isinstance(rows, Content) else rows


def _count(rows: Any) -> int:
    return rows.num_rows if isinstance(rows, pa.Table) else len(rows)


def _data(rows: Any, settings: QuerySettings) -> tuple[Any, QuerySettings]:
    """What a table inserts, and the settings for it."""
    if isinstance(rows, Content):
        return rows.files, replace(rows.settings, insert_quorum=settings.insert_quorum)
    return _read(rows), settings


def _read(rows: Any) -> Any:
    """The rows in a form that can be read twice, for their token and for the table: in Arrow; but a
    pandas DataFrame, and a list of dicts of which some lack values, as they are. Of these a table
    knows what Arrow can't tell: which values are NaN, and which rows get a column's default.
    """
    if isinstance(rows, pa.Table) or _is_pandas(rows):
        return rows
    if isinstance(rows, pa.RecordBatchReader):
        return rows.read_all()
    if isinstance(rows, list):
        require_dicts(rows)
        found = _arrow(rows)
        return rows if found is None else found
    for method in ("to_arrow_table", "to_arrow"):  # DuckDB's, Polars'
        if hasattr(rows, method):
            return getattr(rows, method)()
    raise WrongAsset(
        f"an asset returned {type(rows).__name__}; what a table stores is a pyarrow Table or "
        "RecordBatchReader, a pandas or Polars DataFrame, a DuckDB relation, a Spark DataFrame, "
        "a list of dicts, or a file of a ReaderConfig"
    )


def _is_pandas(rows: Any) -> bool:
    """Whether it is a DataFrame: a Series, as a sum by groups gives it, has no columns."""
    return type(rows).__module__.partition(".")[0] == "pandas" and hasattr(rows, "columns")


def _arrow(rows: Any) -> pa.Table | None:
    """The rows in Arrow; None for a list or DataFrame whose rows can't be columns of Arrow's types,
    or of which some lack values that others have.
    """
    try:
        if isinstance(rows, list):
            alike = all(row.keys() == rows[0].keys() for row in rows)
            return pa.Table.from_pylist(rows) if alike else None
        if _is_pandas(rows):
            return pa.Table.from_pandas(with_index(rows), preserve_index=False)
    except (pa.ArrowException, OverflowError, ValueError):  # as for two columns of one name
        return None
    return rows


def _digests(given: Any) -> tuple[str, ...]:
    """32 hexadecimal digits of a hash over columns and values, however they are chunked and in
    whatever order the rows and columns come: a query without ORDER BY gives the same rows in
    another one when its run is repeated. And those of earlier builds, by the order of rows.
    """
    rows = _arrow(given)
    if rows is None:
        return _digests_of_texts(given)
    require_own_names(rows.column_names)
    try:
        found = hash_table(rows)
    except UnknownType:  # a type that the table will convert, such as decimals of 256 bits
        names, texts = rows.column_names, list(map(repr, rows.to_pylist()))
        whole = repr((sorted(names), sorted(texts)))
        return _digits(whole), _digits(repr((names, rows.to_pylist())))
    count, names = str(found.rows), rows.column_names
    return (
        _digits("\n".join(["rows", *sorted(names), count, f"{found.row_hash:032x}"])),
        _digits("\n".join([*names, count, f"{found.content_hash:032x}"])),
    )


def _digests_of_texts(rows: Any) -> tuple[str, ...]:
    """`_digests` of rows that are no columns of Arrow's types. Earlier builds took a value that a
    row lacks for NULL, and left out what the first row lacks.
    """
    dicts = _dicts_of(with_index(rows)) if _is_pandas(rows) else rows
    whole = _digits(repr(sorted(map(_text, dicts))))
    if isinstance(rows, list) and all(row.keys() <= rows[0].keys() for row in rows):
        with suppress(pa.ArrowException, OverflowError):
            return whole, *_digests(pa.Table.from_pylist(rows))
    return (whole,)


def _dicts_of(frame: Any) -> list[dict[Any, Any]]:
    rows = frame.itertuples(index=False, name=None)
    return [dict(zip(frame.columns, row, strict=True)) for row in rows]


def _text(value: Any) -> str:
    """A text that every other value has another of: those of numpy's arrays leave out digits, and
    elements of long ones.
    """
    if hasattr(value, "tolist"):
        return f"{getattr(value, 'dtype', '')}{_text(value.tolist())}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(sorted(f'{key!r}: {_text(value[key])}' for key in value))}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    return repr(value)


def _digits(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _metadata(
    table: Table, stored: Sequence[_Stored], server: str, version: str
) -> EventMetadata:
    """Metadata of a materialization, under the names that Dagster's catalog knows."""
    definition = table.definition
    columns = [
        dg.TableColumn(column.name, str(column.type), description=column.comment or None)
        for column in definition.columns
    ]
    return {
        **_figures(stored),
        "dagster/column_schema": dg.TableSchema(columns=columns),
        "dagster/relation_identifier": definition.full_name,
        "dagster/uri": f"rmt://{server}{definition.engine.zookeeper_path}",
        "server": server,
        "row hash": version,
    }


def _figures(stored: Sequence[_Stored]) -> EventMetadata:
    """The numbers of a materialization. `dagster/row_count` counts the rows that the asset
    returned, whether they were new or there already, so it does not fall when an asset is
    materialized again.
    """
    inserted_rows = sum(one.rows for one in stored)
    duplicate_rows = sum(one.rows_duplicate for one in stored)
    figures: EventMetadata = {
        "dagster/row_count": inserted_rows + duplicate_rows,
        "rows inserted": inserted_rows,
        "rows duplicate": duplicate_rows,
        "rows replaced": sum(one.rows_replaced for one in stored),
        "parts": sum(len(one.parts) for one in stored),
        "in words": "; ".join(dict.fromkeys(one.words for one in stored)),
    }
    if insert_ids := " ".join(one.insert_id for one in stored if one.insert_id):
        figures["insert id"] = insert_ids
    return figures


# --- loading ---


def _conditions(context: dg.InputContext, table: Table) -> list[str]:
    """Conditions for the rows of the requested partitions; none when that is all rows."""
    upstream = context.upstream_output
    if upstream is None or not context.has_asset_partitions:
        return []
    metadata = upstream.definition_metadata or {}
    return rows_of_partitions(context, table, context.asset_partition_keys, metadata)


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


def _arrow_of(rows: Rows) -> pa.Table:
    batches = list(rows.batches) or [record_batch(rows.columns, [[] for _ in rows.columns])]
    names = [column.name for column in rows.columns]
    return pa.Table.from_batches(batches).rename_columns(names)


def _row_hash(server: ServerContext, table: Table, conditions: Sequence[str]) -> str:
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


_LOADERS: Mapping[str, Any] = {
    "pyarrow.Table": lambda rows: rows,
    "pyarrow.RecordBatchReader": lambda rows: rows.to_reader(),
    "pandas.DataFrame": lambda rows: rows.to_pandas(),
    "polars.DataFrame": _to_polars,
    "duckdb.DuckDBPyRelation": _to_duckdb,
    "builtins.list": lambda rows: rows.to_pylist(),
}
