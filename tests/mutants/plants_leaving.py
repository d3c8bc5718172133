"""How bugs are planted in what takes rows out of a table: undo, OPTIMIZE … DEDUPLICATE, TTL."""

from typing import Any

import pytest

from rmt_pipeline.compute.rows.ttl import RowTtl
from rmt_pipeline.replica.work import merge
from rmt_pipeline.sql.define import materialize
from tests.mutants.plants import Plant

HOUR_S = 3600


def it_is_made_with(**wrong: Any) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        right = merge.MergeJob
        patch.setattr(merge, "MergeJob", lambda **job: right(**{**job, **wrong}))

    return plant


def rows_expire_an_hour_early(patch: pytest.MonkeyPatch) -> None:
    right = merge.MergeJob

    def wrong(**job: Any) -> Any:
        return right(**{**job, "create_time_s": job["create_time_s"] + HOUR_S})

    patch.setattr(merge, "MergeJob", wrong)


def what_expires_within_an_hour_is_taken(patch: pytest.MonkeyPatch) -> None:
    right = materialize._moment
    patch.setattr(
        materialize, "_moment", lambda family, at_s: right(family, at_s + HOUR_S * bool(at_s))
    )


def values_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RowTtl, "_emptied", lambda _, table, *rest: table)
