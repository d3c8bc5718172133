"""What a Dagster project imports to have replicated tables beside its own assets.

    import rmt_pipeline.dagster as rmt

`rmt.rmt_table("CREATE TABLE …", servers=[…])` is a table on its servers, `rmt.rmt_resources()`
what it needs, `rmt.RmtIOManager` stores assets in tables. One module each for what is in them:
`location` puts all together; `component` is the same in YAML; `replicas` (assets), `checks`,
`workers`, `clean_up` and `maintenance` (jobs; checks and clean-up with their schedules), `runs` and
`presence` (which workers live), `sensors` (with `watching`), `ledger` (what runs write down about
parts, by `storage`; `untold`, what killed ones did not), `io_manager`, `exports` (for other
programs), `engine` and `spark` (resources), `instance` (a new DAGSTER_HOME).

The engine knows nothing of this: of rmt_pipeline only the command line may import it.
"""

import gc
import importlib
from typing import Any

gc.freeze()  # Dagster's half a million objects stay: looking through them is a third of a load

_HOMES = {
    "EngineResource": "engine",
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
    """Each from its module when it is asked for: `rmt` imports one of them without the others."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_HOMES)  # `dg` looks for components here
