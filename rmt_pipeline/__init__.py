"""ReplicatedMergeTree's protocol as a data pipeline.

The public names are `Table` (rmt_pipeline.table) and the errors (rmt_pipeline.protocol.errors).
"""

__version__ = "0.1.0"

if not __debug__:
    raise RuntimeError(
        "rmt_pipeline checks its invariants with assert and does not run under python -O; "
        "start Python without -O and unset PYTHONOPTIMIZE"
    )
