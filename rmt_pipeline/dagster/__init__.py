"""What a Dagster project imports to have replicated tables beside its own assets.

    import rmt_pipeline.dagster as rmt

`rmt.rmt_table("CREATE TABLE …", servers=[…])` gives a table on its servers, `rmt.rmt_resources()`
gives the resources that it needs, and `rmt.RmtIOManager` stores assets in tables.

The modules: `location` puts everything together, and `component` offers the same in YAML. Their
pieces are `replicas` (assets), `checks`, `workers`, `clean_up` and `maintenance` (jobs; those of
checks and clean-up with their schedules), `sensors` (which use `watching`), and `runs` and
`presence` (which workers live). `ledger` records in Dagster what runs do to parts, by way of
`storage`; `untold` records what killed runs left out, and `unrecorded` what no run does. Then there
are `io_manager` (over `rows`), `reader` (files that assets return), `failures` (which of them are
tried again), `exports` (tables for other programs), `engine` and `spark` (resources), `names`, and
Dagster's own processes: `launcher`, `daemon` and `instance` (a new DAGSTER_HOME).

The engine knows nothing of this package: within rmt_pipeline only the command line may import it.
"""

import gc
import importlib
from typing import Any

gc.freeze()  # Dagster's 500,000 objects stay: scanning them takes a third of a load

_HOMES = {
    "EngineResource": "engine",
    "ReaderConfig": "reader",
    "ReplicatedTable": "component",
    "RmtIOManager": "io_manager",
    "SparkResource": "spark",
    "TableExport": "component",
    "replicated_tables": "location",
    "rmt_export": "exports",
    "rmt_resources": "location",
    "rmt_table": "location",
}


def __getattr__(name: str) -> Any:
    """Import the module of `name` when it is first used: `rmt` loads one module
    without the others.
    """
    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_HOMES)  # `dg` looks for components here
