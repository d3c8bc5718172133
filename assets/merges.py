"""Why something merges next, or does not, as metadata of a run: what `rmt explain merges` says."""

import dagster as dg

from rmt_pipeline.replica.explain import Explained, ExplainedRange

RANGES_SHOWN_MAX = 50

_SCHEMA = dg.TableSchema(
    columns=[
        dg.TableColumn("partition", "string"),
        dg.TableColumn("parts", "string"),
        dg.TableColumn("bytes", "int"),
        dg.TableColumn("score", "float", description="The smallest that may be merged is next"),
        dg.TableColumn("verdict", "string", description="Or the rule that forbids it now"),
    ]
)


def explained_metadata(explained: Explained) -> dict[str, str | dg.TableMetadataValue]:
    """`merge ranges` are the best ones; `merge limit` is there when nothing may be assigned."""
    records = [dg.TableRecord(_row(one)) for one in explained.ranges[:RANGES_SHOWN_MAX]]
    ranges = dg.MetadataValue.table(records, schema=_SCHEMA)
    if explained.limit:
        return {"merge limit": explained.limit, "merge ranges": ranges}
    return {"merge ranges": ranges}


def _row(one: ExplainedRange) -> dict[str, str | int | float]:
    first, last = one.parts[0], one.parts[-1]
    few = " ".join(one.parts)
    return {
        "partition": one.partition,
        "parts": few if len(one.parts) <= 3 else f"{len(one.parts)} parts {first} … {last}",
        "bytes": one.size_bytes,
        "score": 0.0 if one.score is None else round(one.score, 1),
        "verdict": one.reason or "may be merged",
    }
