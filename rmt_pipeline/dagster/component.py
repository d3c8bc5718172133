"""A replicated table as a Dagster component: declared in YAML, scaffolded by `dg`."""

import dagster as dg
from pydantic import Field

from rmt_pipeline.dagster.location import rmt_resources, rmt_table


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

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:  # noqa: ARG002
        table = rmt_table(self.create, servers=self.servers, ingest=self.ingest)
        if self.config_path is None:
            return table
        return dg.Definitions.merge(
            table, dg.Definitions(resources=rmt_resources(self.config_path))
        )
