"""REPLACE PARTITION … FROM a table that was altered: what a part's columns are in the other one."""

from dataclasses import replace

import pytest

from rmt_pipeline.protocol.table import Column, ColumnChange
from rmt_pipeline.replica.partitions import from_table
from rmt_pipeline.replica.partitions.from_table import CannotReplace
from tests.support.lost_answers import allocates, before
from tests.support.partitioned import work
from tests.support.two_tables import filled


def by_p(two):
    """`n` is no key of the tables: it may get another name."""
    for replica in (two.s["r1"], two.s["r2"], two.t["r1"], two.t["r2"]):
        replica.definition = replace(replica.definition, order_by=("p",))
    filled(two)


def renamed(replicas, name):
    """ALTER TABLE … RENAME COLUMN n TO m has been applied to this replica."""
    was = replicas[name].definition
    replicas[name].definition = replace(
        was,
        columns=(Column("p", "UInt8"), Column("m", "UInt64")),
        metadata_version=was.metadata_version + 1,
        history=(*was.history, ColumnChange(was.metadata_version + 1, "n", "m")),
    )


def altered(replicas, *columns, history=()):
    """An ALTER has been applied to all replicas. After it the table has these columns beside `p`;
    `history`: the changes of names.
    """
    for name in ("r1", "r2"):
        was = replicas[name].definition
        replicas[name].definition = replace(
            was,
            columns=(Column("p", "UInt8"), *columns),
            metadata_version=was.metadata_version + 1,
            history=tuple(replace(one, version=was.metadata_version + 1) for one in history),
        )


def added(default):
    return Column("n", "UInt64"), Column("w", "UInt64", "DEFAULT", default)


def test_a_part_of_before_a_column_was_added_reads_as_the_default_of_both_tables(two):
    filled(two)
    altered(two.s, *added("n * 2"))
    altered(two.t, *added("n * 2"))
    assert two.replace().rows == 2
    work(two.t)
    for name in ("r1", "r2"):
        found = two.t.table(name).dataset().to_table().to_pylist()
        assert sorted((row["n"], row["w"]) for row in found) == [(2, 4), (10, 20), (11, 22)]


ALTERED = "has its columns as they were before an ALTER"


@pytest.mark.parametrize(
    ("columns", "here", "history", "told"),
    [
        (
            added("7"),
            added("8"),
            (),
            "column w has DEFAULT 7 there and DEFAULT 8 here; .*FINAL",
        ),
        ((Column("n", "UInt64"),), (Column("n", "UInt64"),), (ColumnChange(1, "n"),), ALTERED),
        ((Column("n", "Int64"),), (Column("n", "Int64"),), (), ALTERED),
        (
            (Column("m", "UInt64"), Column("n", "UInt64")),
            (Column("m", "UInt64"), Column("n", "UInt64")),
            (ColumnChange(1, "n", "m"),),
            ALTERED,
        ),
    ],
    ids=["other default", "dropped and added", "other type", "renamed and added"],
)
def test_a_part_that_only_its_own_table_can_read_is_refused(two, columns, here, history, told):
    by_p(two)
    altered(two.s, *columns, history=history)
    altered(two.t, *here)
    with pytest.raises(CannotReplace, match=told):
        two.replace()
    assert two.s.table("r1").dataset().count_rows() == 2


def test_a_table_that_is_altered_while_the_source_is_waited_for_is_compared_again(
    two, monkeypatch
):
    """Else parts would come that say that they are of the new columns, and have the old ones."""
    by_p(two)
    waits = from_table.wait_until_here

    def late(*asked):
        parts = waits(*asked)
        renamed(two.t, "r1")
        return parts

    monkeypatch.setattr(from_table, "wait_until_here", late)
    with pytest.raises(CannotReplace, match="columns"):
        two.replace()


def test_others_give_a_part_the_columns_that_it_was_linked_with(two):
    """An ALTER between the links and the commit: the log says the version of the links."""
    by_p(two)
    with before(two.t["r1"].keeper, allocates, lambda: renamed(two.t, "r1")):
        two.replace()
    renamed(two.t, "r2")
    work(two.t)
    for name in ("r1", "r2"):
        found = two.t.table(name).dataset().to_table().to_pylist()
        assert sorted((row["p"], row["m"]) for row in found) == [(1, 10), (1, 11), (2, 2)]
