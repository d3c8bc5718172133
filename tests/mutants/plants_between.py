"""How bugs are planted in what goes from one table to another."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rmt_pipeline.replica.partitions import from_table
from rmt_pipeline.replica.partitions.from_table import Between
from rmt_pipeline.replica.partitions.swap import Wanted
from tests.mutants.plants import Plant
from tests.support.sim_rows import stage_rows


def wanted_otherwise(change: Callable[[Wanted], Wanted]) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        right = from_table.swap
        patch.setattr(from_table, "swap", lambda living, wanted: right(living, change(wanted)))

    return plant


def stays_where_it_was(wanted: Wanted) -> Wanted:
    return replace(wanted, leaving=None)


def takes_whatever_is_there(patch: pytest.MonkeyPatch) -> None:
    """What came into the source since its parts were staged leaves with them."""
    right = from_table.swap

    class Anything(frozenset[Any]):
        def __eq__(self, other: object) -> bool:
            return True

        def __ne__(self, other: object) -> bool:
            return False

        __hash__ = frozenset.__hash__

    def wrong(living: Any, wanted: Wanted) -> Any:
        assert wanted.leaving is not None
        leaving = replace(wanted.leaving, parts=Anything(wanted.leaving.parts))
        return right(living, replace(wanted, leaving=leaving))

    patch.setattr(from_table, "swap", wrong)


def nobody_is_behind(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(from_table, "why_behind", lambda *_: "")


def no_ids(patch: pytest.MonkeyPatch) -> None:
    def wrong(_: Any, parts: Any) -> dict[str, str]:
        return {one.source: f"a_{one.staged.directory}" for one in parts}

    patch.setattr(Between, "_ids_of", wrong)


def a_stranger_comes_too(patch: pytest.MonkeyPatch) -> None:
    def wrong(here: Any, there: Any, part: Any) -> Any:
        rows = ["stranger"]
        return stage_rows(here.store, part.partition, rows, created_s=int(here.clock.now_s()))

    patch.setattr(from_table, "_clone", wrong)
