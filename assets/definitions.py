"""The code location: all definitions merged. `workspace.yaml` points here.

Copy it, together with `resources`, as a start for your own location: put your assets into the
second Definitions, and into `tables` which of them insert into which table. `examples/flights` is a
location that does so.
"""

from collections.abc import Sequence

import dagster as dg

from resources.engine import engine, spark
from rmt_pipeline.dagster.location import (
    replicated_tables,
    servers_of_location,
    tables_of_location,
)


def build_definitions(servers: Sequence[str], tables: Sequence[str]) -> dg.Definitions:
    """The tables of `servers`; those named in `tables` have assets and checks of their own."""
    return dg.Definitions.merge(
        replicated_tables(servers, {table: [] for table in tables}),
        dg.Definitions(
            resources={"engine": engine, "spark": spark}, executor=dg.in_process_executor
        ),
    )


defs = build_definitions(servers_of_location(), tables_of_location())
