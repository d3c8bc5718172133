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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import dagster as dg
from dagster._core.definitions.data_version import DATA_VERSION_TAG
from pydantic import Field, PrivateAttr

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
from rmt_pipeline.dagster.reader import ReadFile
from rmt_pipeline.dagster.record.ledger import EventMetadata, Recorder, first_of, inserted
from rmt_pipeline.dagster.rows.partitions import partition_keys, requested_rows, stored_rows
from rmt_pipeline.dagster.rows.read import HeldSnapshots, loader_of, read_rows, row_hash
from rmt_pipeline.dagster.rows.write import QUORUM_METADATA, StoredRows, way_of_writing
from rmt_pipeline.protocol.errors import (
    RmtError,
    TableDetached,
    UnknownDatabase,
    UnknownTable,
    UserError,
)
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.table import Table

TABLE_METADATA = "rmt/table"
FAILED_SHOWN_MAX = 10


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

    _held: HeldSnapshots = PrivateAttr(default_factory=HeldSnapshots)

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
            stored, failed = self._stored(context, table, obj)
            if failed:
                version_of = cache(partial(row_hash, server, table))  # some of the whole table
                for keys, one in stored:
                    version = version_of(tuple(stored_rows(context, table, keys)))
                    figures = _metadata(table, [one], self.server, version)
                    _materialize(context, keys[0], figures, version)
                raise _of_some_partitions(failed, len(stored))
            version = row_hash(
                server, table, stored_rows(context, table, partition_keys(context))
            )
            each = [one for _, one in stored]
            context.add_output_metadata(_metadata(table, each, self.server, version))
            if not context.step_context.has_data_version(context.asset_key):
                # What `context.set_data_version` of the asset would do, which gave no version.
                context.step_context.set_data_version(
                    context.asset_key, dg.DataVersion(version)
                )

    def _stored(
        self, context: dg.OutputContext, table: Table, obj: Any
    ) -> tuple[list[tuple[Sequence[str], StoredRows]], dict[str, UserError]]:
        """Store the rows of each partition. Returns what became of them, and the errors of those
        partitions whose rows are wrong, by key. Raises the error if there is one partition alone.
        """
        quorum = str((context.definition_metadata or {}).get(QUORUM_METADATA, self.quorum))
        write = way_of_writing(context, table, quorum)
        settings = QuerySettings.of({"insert_quorum": quorum})
        by_partition = _by_partition(context, obj)
        stored: list[tuple[Sequence[str], StoredRows]] = []
        failed: dict[str, UserError] = {}
        with Recorder(_Log(context), table, self.server).recording() as done:
            for keys, rows in by_partition:
                one = _written(rows, partial(write, context, table, keys, settings))
                if isinstance(one, UserError):
                    if len(by_partition) == 1 or is_of_the_system(one.__cause__):
                        raise one
                    failed[keys[0]] = one
                    continue
                # The next write may replace them.
                done.extend(inserted(table, one.parts, one.kind))
                stored.append((keys, one))
                if len(by_partition) > 1:  # each partition's event has its own figures
                    context.step_context.add_asset_metadata(
                        _figures([one]), context.asset_key, keys[0]
                    )
        return stored, failed

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
        load = loader_of(context)
        with self._opened() as server:
            table = _table_of(upstream, server)
            wanted = requested_rows(context, table)
            rows = read_rows(server, table, wanted, self._held.of(table))
        return load(rows)

    def _opened(self) -> Any:
        return EngineResource(config_path=self.config_path).server(self.server, "io manager")


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


def _written(rows: Any, write: Callable[[Any], StoredRows]) -> StoredRows | UserError:
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


def _by_partition(context: dg.OutputContext, obj: Any) -> list[tuple[list[str], Any]]:
    """What is to be stored, each with its partition keys. If the asset did not return a dict, that
    is one object for all partitions of the run. Raises UserError for rows of a partition that the
    run does not have.
    """
    keys = partition_keys(context)
    if not isinstance(obj, dict):
        return [(keys, obj)]
    strangers = obj.keys() - set(keys)
    if strangers:
        raise WrongAsset(
            f"{context.asset_key.to_user_string()} returned rows of partition {min(strangers)}, "
            f"which this run is not for: {', '.join(keys) or 'it has no partitions'}"
        )
    return [([key], obj[key]) for key in keys if key in obj]


def _metadata(
    table: Table, stored: Sequence[StoredRows], server: str, version: str
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


def _figures(stored: Sequence[StoredRows]) -> EventMetadata:
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
