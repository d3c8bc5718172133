"""A replicated table and its exports as Dagster components: written in YAML, scaffolded by `dg`."""

from collections.abc import Mapping
from typing import Any

import dagster as dg
from pydantic import Field

from rmt_pipeline.dagster.exports import rmt_export
from rmt_pipeline.dagster.location import (
    LAPTOP,
    assets_of,
    definition_of,
    machinery,
    rmt_resources,
)
from rmt_pipeline.export.refresh import FORMATS, LEASE_S, Format

_CONFIG_PATH = Field(
    default="",
    description="The rmt.toml; empty: RMT_CONFIG's, else ./rmt.toml, else the default. null: the "
    "project gives the resources `engine` and `spark` itself.",
)


def _given(config_path: str | None) -> Mapping[str, object]:
    return {} if config_path is None else rmt_resources(config_path)


class TableScaffolder(dg.Scaffolder[Any]):
    """`dg scaffold defs rmt_pipeline.dagster.ReplicatedTable orders` writes a component for a table
    that is named like its folder, on the servers of the embedded default, with example columns to
    replace.
    """

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        name = request.target_path.name
        dg.scaffold_component(
            request,
            {
                "create": (
                    f"CREATE TABLE {name} (day Date, id UInt64) ENGINE = "
                    f"ReplicatedMergeTree('/clickhouse/tables/{{shard}}/{name}', '{{replica}}') "
                    "PARTITION BY toYYYYMM(day) ORDER BY id"
                ),
                "servers": list(LAPTOP),
                "ingest": [],
            },
        )


@dg.scaffold_with(TableScaffolder)
class ReplicatedTable(dg.Component, dg.Model, dg.Resolvable):
    """A replicated table: its replicas, parts, partitions and checks as assets, with the jobs,
    schedules and sensors that work its servers' queues.
    """

    create: str = Field(description="The CREATE TABLE statement, with an engine Replicated….")
    servers: list[str] = Field(
        description="The servers of rmt.toml that hold a replica each.", min_length=1
    )
    ingest: list[str] = Field(
        default_factory=list, description="Keys of the assets that insert into the table."
    )

    config_path: str | None = _CONFIG_PATH

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        return dg.Definitions.merge(
            assets_of(definition_of(self.create), self.servers, self.ingest),
            *(machinery(server) for server in self.servers if self._is_first(server, context)),
            dg.Definitions(resources=_given(self.config_path)),
        )

    def _is_first(self, server: str, context: dg.ComponentLoadContext) -> bool:
        """Whether no table before this one is on the server. The project's loader copies the
        definitions of each component, so what a server has only once would be defined twice if two
        tables gave it.
        """
        tables = context.component_tree.get_all_components(ReplicatedTable)
        first = next((table for table in tables if server in table.servers), self)
        return first is self


class ExportScaffolder(dg.Scaffolder[Any]):
    """`dg scaffold defs rmt_pipeline.dagster.TableExport orders_export` writes a component that
    exports the table `orders` from the first server of the embedded default.
    """

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        table = request.target_path.name.removesuffix("_export")
        dg.scaffold_component(request, {"table": table, "server": LAPTOP[0]})


@dg.scaffold_with(ExportScaffolder)
class TableExport(dg.Component, dg.Model, dg.Resolvable):
    """A table for readers outside: a Delta and an Iceberg table over the files of its parts,
    brought up to date after each flush. Needs rmt-pipeline[export].
    """

    table: str = Field(
        description="The table, as database.table; without a database, the one of `default`."
    )
    server: str = Field(description="The server of rmt.toml whose parts are exported.")
    formats: list[Format] = Field(
        default_factory=lambda: list(FORMATS),
        description="delta, iceberg; both unless it is said.",
        min_length=1,
    )
    columns: list[str] = Field(
        default_factory=list, description="Those to export. Empty: all of them."
    )
    lease_s: float = Field(
        default=LEASE_S,
        ge=0,
        description="For so many seconds the files of a version stay after the next one took its "
        "place: no reader may take longer.",
    )

    config_path: str | None = _CONFIG_PATH

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        del context
        exported = rmt_export(
            self.table,
            server=self.server,
            formats=self.formats,
            columns=self.columns,
            lease_s=self.lease_s,
        )
        return dg.Definitions.merge(
            exported, dg.Definitions(resources=_given(self.config_path))
        )
