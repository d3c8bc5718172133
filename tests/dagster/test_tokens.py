"""The tokens of what assets store, whose keys and partitions have slashes."""

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from rmt_pipeline.dagster import RmtIOManager
from rmt_pipeline.dagster.rows import tokens, write
from tests.support.site import Site

pytestmark = [pytest.mark.dagster, pytest.mark.zookeeper]


@pytest.fixture
def io_manager(site: Site) -> Iterator[RmtIOManager]:
    create = (
        "CREATE TABLE stored (id UInt64) "
        "ENGINE = ReplicatedMergeTree('/t/stored', '{replica}') ORDER BY id"
    )
    with site.having("stored", create):
        yield site.io_manager()


def _of_earlier_builds(rows: pa.Table) -> tuple[str, ...]:
    return tokens.row_digests(rows)[1:]


def of_key(path: Sequence[str], partition: str) -> dg.AssetsDefinition:
    """An asset that stores the same three rows whatever its key and partition are."""

    @dg.asset(
        key=list(path),
        partitions_def=dg.StaticPartitionsDefinition([partition]),
        metadata={"rmt/table": "default.stored"},
    )
    def asset() -> pa.Table:
        return pa.table({"id": pa.array(range(3), pa.uint64())})

    return asset


def store_of_key(
    io_manager: RmtIOManager, instance: dg.DagsterInstance, path: Sequence[str], partition: str
) -> None:
    dg.materialize(
        [of_key(path, partition)],
        resources={"io_manager": io_manager},
        instance=instance,
        partition_key=partition,
    )


@pytest.mark.parametrize("is_turned", [False, True])
def test_a_slash_in_a_partition_is_none_between_names_of_the_asset(
    site: Site, io_manager: RmtIOManager, is_turned: bool
) -> None:
    """Equal rows of both are stored, each of them once."""
    pairs = [(["a", "b"], "c"), (["a"], "b/c")]
    with dg.instance_for_test() as instance:
        for path, partition in 2 * (pairs[::-1] if is_turned else pairs):
            store_of_key(io_manager, instance, path, partition)
    assert site.r1.table("stored").dataset().count_rows() == 2 * 3


def test_what_an_earlier_build_stored_of_a_partition_with_a_slash_is_stored_once(
    site: Site, io_manager: RmtIOManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name was made without regard to the slash. The rows of other partitions that would have
    had that name are stored all the same.
    """

    def earlier(asset: dg.AssetKey, keys: Sequence[str], which: str) -> str:
        return f"{asset.to_user_string()}/{keys[0]}/{which}"

    with dg.instance_for_test() as instance:
        with monkeypatch.context() as patched:
            patched.setattr(tokens, "insert_name", earlier)
            patched.setattr(write, "row_digests", _of_earlier_builds)
            store_of_key(io_manager, instance, ["a"], "b/c/d")
        store_of_key(io_manager, instance, ["a"], "b/c/d")
        assert site.r1.table("stored").dataset().count_rows() == 3
        store_of_key(io_manager, instance, ["a", "b"], "c/d")
    assert site.r1.table("stored").dataset().count_rows() == 6


def unordered(table: str, orders: Iterator[Sequence[int]]) -> dg.AssetsDefinition:
    """An asset that stores the same rows each time, in the next of these orders."""

    @dg.asset(metadata={"rmt/table": table})
    def asset() -> pa.Table:
        return pa.table({"id": pa.array(next(orders), pa.uint64())})

    return asset


def test_the_same_rows_in_another_order_are_stored_once(
    site: Site, io_manager: RmtIOManager
) -> None:
    """A run that is repeated gets them so from a query without ORDER BY. More of one row are other
    rows.
    """
    orders = iter([(0, 1, 2), (2, 0, 1), (0, 1, 2), (0, 1, 2, 2), (2, 1, 2, 0)])
    counts = []
    with dg.instance_for_test() as instance:
        for _ in range(5):
            dg.materialize(
                [unordered("default.stored", orders)],
                resources={"io_manager": io_manager},
                instance=instance,
            )
            counts.append(site.r1.table("stored").dataset().count_rows())
    assert counts == [3, 3, 3, 7, 7]


def test_what_an_earlier_build_named_by_the_order_of_rows_is_stored_once(
    site: Site, io_manager: RmtIOManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = iter([(0, 1, 2), (0, 1, 2)])
    asset = unordered("default.stored", orders)
    counts = []
    with dg.instance_for_test() as instance:
        for is_earlier in (True, False):
            with monkeypatch.context() as patched:
                if is_earlier:
                    patched.setattr(write, "row_digests", _of_earlier_builds)
                dg.materialize([asset], resources={"io_manager": io_manager}, instance=instance)
            counts.append(site.r1.table("stored").dataset().count_rows())
    assert counts == [3, 3]


VECTOR = np.linspace(0, 1, 1500)


@pytest.mark.parametrize(
    ("vector", "corrected"),
    [
        (VECTOR, np.where(np.arange(1500) == 700, 0.5, VECTOR)),
        (np.array([0.1234567891]), np.array([0.1234567892])),
        ([np.array([1.0, 2.0])], [np.array([1.0, 2.000000001])]),
        ({"a": np.array([0.1234567891])}, {"a": np.array([0.1234567892])}),
    ],
)
@pytest.mark.parametrize("is_frame", [False, True])
def test_arrays_that_were_corrected_are_other_rows(
    vector: Any, corrected: Any, is_frame: bool
) -> None:
    """The texts of numpy's arrays leave out digits, and what is in the middle of long ones."""

    def given(value: Any) -> Any:
        if is_frame:  # of two kinds of values, which no column of Arrow has
            return pd.DataFrame({"id": [1, "2"], "vector": [value, value]}, dtype=object)
        return [{"id": 1}, {"vector": value, "id": 2}]

    again = given(copy.deepcopy(vector))[::-1]
    first, other = (tokens.row_digests(one)[0] for one in (given(vector), given(corrected)))
    assert first != other
    assert first == tokens.row_digests(again)[0]
