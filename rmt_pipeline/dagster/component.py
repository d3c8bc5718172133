"""A replicated table and its exports as Dagster components: written in YAML, scaffolded by `dg`."""

from collections.abc import Mapping
from typing import Annotated, Any

import dagster as dg
from pydantic import Field

from rmt_pipeline.dagster.engine import CONFIG_PATH_HELP
from rmt_pipeline.dagster.exports import rmt_export
from rmt_pipeline.dagster.location import (
    LAPTOP,
    assets_of,
    checking,
    definition_of,
    machinery,
    rmt_resources,
)
from rmt_pipeline.export.refresh import FORMATS, LEASE_S, Format
from rmt_pipeline.types.escapes import in_backticks

# Descriptions of fields with a default stand in their Resolver: Dagster drops those of their Field.
_ConfigPath = Annotated[
    str | None,
    dg.Resolver.default(
        description=f"{CONFIG_PATH_HELP} null: the project itself has the resources `engine` and "
        "`spark`."
    ),
]


def _given(config_path: str | None) -> Mapping[str, object]:
    return {} if config_path is None else rmt_resources(config_path)


_TABLE_YAML = """\
attributes:
  # {create}
  create: >-
    CREATE TABLE {table} (day Date, id UInt64)
    ENGINE = ReplicatedMergeTree('/clickhouse/tables/{{shard}}/{name}', '{{replica}}')
    PARTITION BY toYYYYMM(day) ORDER BY id
  # {servers}
  servers: [{given_servers}]
  # {ingest}
  ingest: []
"""
_EXPORT_YAML = """\
attributes:
  # {table}
  table: {name}
  # {server}
  server: {given_server}
  # {formats}
  # formats: [delta, iceberg]
"""


def _scaffold(
    request: dg.ScaffoldRequest[Any], component: type[dg.Resolvable], text: str, **given: str
) -> None:
    """Write `text` as the component's YAML, each field below its description. If Python is asked
    for, Dagster scaffolds it.
    """
    if request.scaffold_format != "yaml":
        dg.scaffold_component(request)
        return
    fields = component.model().model_fields
    said = {name: field.description for name, field in fields.items()}
    file = request.target_path if request.append else request.target_path / "defs.yaml"
    with file.open("a" if request.append else "w", encoding="utf-8") as out:
        out.write("---\n" if request.append else "")
        out.write(f"type: {request.type_name}\n\n{text.format_map({**said, **given})}")


class TableScaffolder(dg.Scaffolder[Any]):
    """`dg scaffold defs rmt_pipeline.dagster.ReplicatedTable orders` writes a component for a table
    that is named like its folder, on the servers of the embedded default, with example columns to
    replace.
    """

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        name = request.target_path.name
        _scaffold(
            request,
            ReplicatedTable,
            _TABLE_YAML,
            name=name,
            table=name if name.isidentifier() else in_backticks(name),
            given_servers=", ".join(LAPTOP),
        )


@dg.scaffold_with(TableScaffolder)
class ReplicatedTable(dg.Component, dg.Model, dg.Resolvable):
    """A replicated table: its replicas, parts, partitions and checks as assets, with the jobs,
    schedules and sensors that work its servers' queues.
    """

    create: str = Field(
        description="The CREATE TABLE statement, with an engine of the Replicated…MergeTree family."
    )
    servers: list[str] = Field(
        description="The servers, by their names in rmt.toml. Each holds a replica.",
        min_length=1,
    )
    ingest: Annotated[
        list[str],
        dg.Resolver.default(
            description="Your assets that insert into the table, by their keys."
        ),
    ] = Field(default_factory=list)
    jobs: Annotated[
        bool,
        dg.Resolver.default(
            description="Whether this project has the servers' jobs and sensors, which serve all "
            "their tables. false: another code location has them."
        ),
    ] = True
    config_path: _ConfigPath = ""

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        given = machinery if self.jobs else checking
        return dg.Definitions.merge(
            assets_of(definition_of(self.create), self.servers, self.ingest),
            *(given(server) for server in self.servers if self._gives(server, context)),
            dg.Definitions(resources=_given(self.config_path)),
        )

    def _gives(self, server: str, context: dg.ComponentLoadContext) -> bool:
        """Whether this is the one of the project's tables that gives what a server has only once:
        the first on the server, or the first there with jobs. The project's loader copies the
        definitions of each component, so two tables would define it twice.
        """
        tables = context.component_tree.get_all_components(ReplicatedTable)
        there = [table for table in tables if server in table.servers] or [self]
        return next((table for table in there if table.jobs), there[0]) is self


class ExportScaffolder(dg.Scaffolder[Any]):
    """`dg scaffold defs rmt_pipeline.dagster.TableExport orders_export` writes a component that
    exports the table `orders` from the first server of the embedded default.
    """

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        name = request.target_path.name.removesuffix("_export")
        _scaffold(request, TableExport, _EXPORT_YAML, name=name, given_server=LAPTOP[0])


@dg.scaffold_with(ExportScaffolder)
class TableExport(dg.Component, dg.Model, dg.Resolvable):
    """A table for readers outside: a Delta and an Iceberg table over the files of its parts,
    brought up to date after each flush. Needs rmt-pipeline with its extra `export`.
    """

    table: str = Field(
        description="The table, as database.table. Without a database: a table of `default`."
    )
    server: str = Field(description="The server of rmt.toml whose parts are exported.")
    formats: Annotated[
        list[Format], dg.Resolver.default(description="delta, iceberg. Default: both.")
    ] = Field(default_factory=lambda: list(FORMATS), min_length=1)
    columns: Annotated[
        list[str], dg.Resolver.default(description="The columns to export. Empty: all columns.")
    ] = Field(default_factory=list)
    lease_s: Annotated[
        float,
        dg.Resolver.default(
            description="For how many seconds the files of a version are kept after the next "
            "version replaced it. No reader may take longer."
        ),
    ] = Field(default=LEASE_S, ge=0)
    config_path: _ConfigPath = ""

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
