"""A replicated table as a Dagster component: declared in YAML, scaffolded by `dg`."""

from typing import Any

import dagster as dg
from pydantic import Field

from rmt_pipeline.dagster.location import (
    LAPTOP,
    assets_of,
    definition_of,
    machinery,
    rmt_resources,
)


class TableScaffolder(dg.Scaffolder[Any]):
    """`dg scaffold defs rmt_pipeline.dagster.ReplicatedTable orders`: a table named as its folder,
    on the servers of the embedded default, to be given its own columns.
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
    """A replicated table: its replicas, parts, partitions and checks as assets, and what works
    its servers' queues.
    """

    create: str = Field(description="The CREATE TABLE statement, with an engine Replicated….")
    servers: list[str] = Field(
        description="The servers of rmt.toml that hold a replica each.", min_length=1
    )
    ingest: list[str] = Field(
        default_factory=list, description="Keys of the assets that insert into the table."
    )

    config_path: str | None = Field(
        default="",
        description="The rmt.toml; empty: what RMT_CONFIG names, else the default. null: the "
        "project gives the resources `engine` and `spark` itself.",
    )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        given = {} if self.config_path is None else rmt_resources(self.config_path)
        return dg.Definitions.merge(
            assets_of(definition_of(self.create), self.servers, self.ingest),
            *(machinery(server) for server in self.servers if self._is_first(server, context)),
            dg.Definitions(resources=given),
        )

    def _is_first(self, server: str, context: dg.ComponentLoadContext) -> bool:
        """Whether no table before this one is on the server: a project's loader copies what each
        component gives, and then what a server has once would be there twice.
        """
        tables = context.component_tree.get_all_components(ReplicatedTable)
        first = next((table for table in tables if server in table.servers), self)
        return first is self
