"""A table that ZooKeeper has lost gets the newest structure that a disk knows, and no other."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmt_pipeline.protocol.alter.commands import AddColumn
from rmt_pipeline.protocol.errors import Conflict
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.replica.alter.request import request_alter
from rmt_pipeline.replica.life.restore import restore
from rmt_pipeline.system import EventWaker
from rmt_pipeline.zookeeper.keeper import Op, SetData
from tests.support.lost_answers import before
from tests.support.restoring import Disaster

NO_WAIT = QuerySettings(alter_sync=0)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Disaster]:
    with Disaster(tmp_path) as disaster:
        yield disaster


def altered(disaster: Disaster) -> None:
    """The table gets a column, which nobody has taken up yet."""
    added = AddColumn(Column("x", "Int64", "DEFAULT", "n * 2"))
    disaster.connect("r1")
    request_alter(lambda: disaster["r1"], lambda _: [added], NO_WAIT, EventWaker)


def structure(disaster: Disaster, name: str) -> tuple[bytes, bool]:
    """The version of what the replica has taken up, and whether it has the new column."""
    keeper, paths = disaster[name].keeper, disaster[name].paths
    return keeper.get(paths.metadata_version)[0], b"`x`" in keeper.get(paths.columns)[0]


@pytest.mark.parametrize("taken_up", [("r1", "r2"), ("r1",), ("r2",)])
def test_the_structure_is_the_newest_that_a_disk_knows(two, taken_up):
    for name in ("r1", "r2"):
        two.connect(name)
    two.insert("r1", 1)
    altered(two)
    for name in taken_up:
        two.step(name, "fetch")
    two.wipe()
    for name in ("r1", "r2"):
        two.restore(name)
    two.live_on()
    table = two["r1"].table
    for name in ("r1", "r2"):
        assert structure(two, name) == (b"1", True), name
        assert two.values(name) == Counter([1])
    stat = two["r1"].keeper.exists(table.metadata)
    assert stat is not None
    assert stat.version == 1


def test_a_structure_that_somebody_writes_while_it_is_brought_is_looked_at_again(two):
    """Each part says with which version it was written: the table's must not be another one."""
    for name in ("r1", "r2"):
        two.connect(name)
    altered(two)
    for name in ("r1", "r2"):
        two.step(name, "fetch")
    two.wipe()
    two.restore("r1")
    last, table = two.connect("r2"), two["r1"].table
    text, _ = last.session.get(table.metadata)

    def brings(op: Op) -> bool:
        return isinstance(op, SetData) and op.path == table.metadata

    written = [SetData(table.metadata, text)]
    with (
        before(last.session, brings, lambda: two["r1"].session.multi(written)),
        pytest.raises(Conflict),
    ):
        restore(last, b"r2")
    two.stop("r2")
    two.restore("r2")
    two.live_on()
    assert two["r1"].session.get(table.metadata)[1].version == 1
    for name in ("r1", "r2"):
        assert structure(two, name) == (b"1", True), name


def test_a_structure_that_only_zookeeper_knows_stays(two):
    """An older copy has an ALTER that nobody had taken up then, nor since."""
    for name in ("r1", "r2"):
        two.connect(name)
    two.insert("r1", 1)
    altered(two)
    older = two.copy_of_zookeeper()
    two.insert("r1", 2)
    two.note()
    two.go_back_to(older)
    two.restore("r1")
    two.restore("r2")
    two.live_on()
    for name in ("r1", "r2"):
        assert structure(two, name) == (b"1", True), name
        assert two.values(name) == Counter([1, 2])
