"""Lists of dicts and pandas DataFrames that assets return, which can say what Arrow can't."""

from collections.abc import Iterator
from typing import Any

import dagster as dg
import pandas as pd
import pytest

from rmt_pipeline.dagster import RmtIOManager
from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.sql.run.session import Session
from tests.support.local_session import rows
from tests.support.site import Site

pytestmark = [pytest.mark.dagster, pytest.mark.zookeeper]

NOTES = (
    "CREATE TABLE notes (id UInt64, note String DEFAULT concat('of ', toString(id)), "
    "value Float64) ENGINE = ReplicatedMergeTree('/t/notes', '{replica}') ORDER BY id"
)


@pytest.fixture
def io_manager(site: Site) -> RmtIOManager:
    return site.io_manager()


@pytest.fixture
def notes(site: Site) -> Iterator[Session]:
    with site.having("notes", NOTES) as session:
        yield session


def store_notes(io_manager: RmtIOManager, instance: dg.DagsterInstance, given: Any) -> Any:
    @dg.asset(name="stored", metadata={"rmt/table": "default.notes"})
    def asset() -> Any:
        return given

    result = dg.materialize([asset], resources={"io_manager": io_manager}, instance=instance)
    [event] = [
        each.materialization
        for each in result.get_asset_materialization_events()
        if each.asset_key == dg.AssetKey("stored")
    ]
    return {name: value.value for name, value in event.metadata.items()}


RAGGED = [{"id": 1}, {"id": 2, "note": "x"}, {"value": 0.5, "id": 3}]


@pytest.mark.parametrize(
    ("given", "stored_rows"),
    [
        (RAGGED, [(1, "of 1", 0.0), (2, "x", 0.0), (3, "of 3", 0.5)]),
        (
            [{"id": 1, "value": 2.5}, {"id": "2", "value": 1}],
            [(1, "of 1", 2.5), (2, "of 2", 1.0)],
        ),
        (
            pd.DataFrame({"id": [2, 2, 3], "value": [1.0, 2.0, 4.0]}).groupby("id").sum(),
            [(2, "of 2", 3.0), (3, "of 3", 4.0)],
        ),
        (pd.DataFrame({"id": [1, "2"]}, dtype=object), [(1, "of 1", 0.0), (2, "of 2", 0.0)]),
    ],
)
def test_what_rows_of_an_asset_lack_gets_defaults_and_what_they_have_is_stored(
    io_manager: RmtIOManager, notes: Session, given: Any, stored_rows: list[tuple[Any, ...]]
) -> None:
    """Columns that the first dict of a list lacks were left out, and so was what pandas has grouped
    by. In another order they are the same rows.
    """
    in_turn = given[::-1] if isinstance(given, list) else given.iloc[::-1]
    with dg.instance_for_test() as instance:
        first, again = (store_notes(io_manager, instance, one) for one in (given, in_turn))
    assert (first["rows inserted"], again["rows inserted"]) == (len(given), 0)
    assert rows(notes, "SELECT id, note, value FROM notes ORDER BY id") == stored_rows


def test_a_nan_of_pandas_is_stored_as_one(io_manager: RmtIOManager, notes: Session) -> None:
    frame = pd.DataFrame({"id": [1, 2], "value": [float("nan"), 1.0]})
    with dg.instance_for_test() as instance:
        store_notes(io_manager, instance, frame)
    assert rows(notes, "SELECT id, isNaN(value) FROM notes ORDER BY id") == [
        (1, 1),
        (2, 0),
    ]


def test_a_list_of_something_else_is_refused(io_manager: RmtIOManager, notes: Session) -> None:
    with dg.instance_for_test() as instance:
        for given, words in ([{"id": 1}, 2], "row 2 is a int"), ([[1]], "row 1 is a list"):
            with pytest.raises(UserError, match=words):
                store_notes(io_manager, instance, given)
