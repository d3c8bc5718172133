"""ZooKeeper is restored from an older copy: what it has forgotten is not thrown out of answers."""

import errno
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from unittest.mock import Mock

import pytest

from rmt_pipeline.protocol.nodes.formats import ReplicaAddress
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.life.start import Started, start
from rmt_pipeline.replica.replica import Memory, Replica
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.replica.upkeep.rewound import ZooKeeperIsOlder, remember_log
from rmt_pipeline.store.disk import LocalDisk
from rmt_pipeline.zookeeper.keeper import Create
from tests.support.fake_keeper import FakeZooKeeper, Node
from tests.support.local_replicas import Replicas
from tests.support.parts import clone
from tests.support.restoring import Disaster


@dataclass
class Copied:
    """A table of one replica, and what ZooKeeper was when it had two parts."""

    replicas: Replicas
    nodes: dict[str, Node]
    zxid: int

    def restored(self) -> Replica:
        """The replica in a ZooKeeper that is made of the copy."""
        zookeeper = FakeZooKeeper(self.replicas.clock)
        zookeeper.nodes.update(self.nodes)
        zookeeper.zxid = self.zxid
        return replace(self.replicas["r1"], keeper=zookeeper.connect(), memory=Memory())


def start_again(replica: Replica) -> Started:
    address = ReplicaAddress("r1", 9009, 9000, "default", "t")
    return start(replica, identity="r1", incarnation="2", address=address)


@pytest.fixture
def copied(tmp_path) -> Iterator[Copied]:
    with Replicas(tmp_path, ["r1"]) as opened:
        opened.insert("r1", 1)
        opened.insert("r1", 2)
        opened.step("r1", "fetch")
        remember_log(opened["r1"])
        opened.clock.passed_s += 1000
        yield Copied(opened, dict(opened.zookeeper.nodes), opened.zookeeper.zxid)


def test_parts_with_numbers_that_were_never_given_out_are_left_where_they_are(copied):
    part = copied.replicas.insert("r1", 3, 4, 5)
    copied.replicas.clock.passed_s += 1000
    replica = copied.restored()
    with pytest.raises(ZooKeeperIsOlder, match=r"3 rows in 1 parts.*unknown"):
        start_again(replica)
    assert replica.keeper.exists(replica.paths.is_active) is None, "nobody inserts"
    assert replica.store.has(part)
    assert replica.store.detached() == []


def test_a_log_that_is_shorter_than_it_was_is_told_though_all_parts_are_known(copied):
    copied.replicas.insert("r1", 3)
    remember_log(copied.replicas["r1"])
    for part in map(str, copied.replicas.stores["r1"].parts()[2:]):
        copied.replicas.stores["r1"].disk.remove_tree(part)
    with pytest.raises(
        ZooKeeperIsOlder, match=r"has 2 entries, and this disk has seen 3.* 0 rows in 0 parts"
    ):
        start_again(copied.restored())


def test_a_merge_that_it_has_forgotten_does_not_cost_the_merged_rows(copied):
    """Its sources are gone from the disk; without a look at the log they would be fetched from
    nobody, and the merged part set aside.
    """
    optimize_partition(copied.replicas["r1"], "all", final=True, skip_merged=False)
    copied.replicas.step("r1")
    copied.replicas.clock.passed_s += 1000
    remember_log(copied.replicas["r1"])
    store = copied.replicas.stores["r1"]
    merged = [part for part in store.parts() if part.level]
    for part in store.parts():
        if part not in merged:
            store.remove(part)
    with pytest.raises(ZooKeeperIsOlder, match="2 rows in 1 parts"):
        start_again(copied.restored())
    assert store.parts() == merged


def test_of_an_alter_that_it_has_forgotten_as_well_the_age_is_told(copied):
    """And not that the columns differ: then nobody would know what to do."""
    copied.replicas.insert("r1", 3)
    remember_log(copied.replicas["r1"])
    replica = copied.restored()
    known = replica.definition
    columns = (*known.columns, Column("m", "UInt64"))
    replica.definition = replace(known, columns=columns, metadata_version=1)
    with pytest.raises(
        ZooKeeperIsOlder, match=r"SYSTEM RESTORE REPLICA.*rmt force-restore-data default\.t$"
    ):
        start_again(replica)


def test_a_clean_up_sets_nothing_aside_either(copied):
    part = copied.replicas.insert("r1", 3)
    copied.replicas.clock.passed_s += 1000
    replica = copied.restored()
    assert plan_clean_up(replica).unexpected == ()
    carry_out(replica, plan_clean_up(replica))
    assert replica.store.has(part)
    assert replica.store.detached() == []


def test_a_person_may_decide_to_go_on_without_them(copied):
    part = copied.replicas.insert("r1", 3)
    copied.replicas.clock.passed_s += 1000
    replica = copied.restored()
    replica.keeper.multi([Create(replica.paths.force_restore_data)])
    found = start_again(replica)
    assert [name for name, _ in found.recovered.detached] == [f"detached/ignored_{part}"]
    assert replica.keeper.exists(replica.paths.force_restore_data) is None
    start_again(replica)


def test_what_was_never_announced_is_no_sign_of_it(copied):
    """An insert had its number and its part, and died."""
    replica = copied.replicas["r1"]
    lock = f"{replica.table.partition('all')}/block-"
    dying = copied.replicas.zookeeper.connect()
    dying.multi([Create(lock, ephemeral=True, sequence=True)])
    [first, *_] = replica.store.parts()
    staged = clone(replica.store, first, "attach", "x")
    number = first.__class__.parse("all_2_2_0")
    replica.store.publish(staged, number)
    dying.close()
    copied.replicas.clock.passed_s += 1000
    found = start_again(replica)
    assert [name for name, _ in found.recovered.detached] == [f"detached/ignored_{number}"]


@pytest.mark.parametrize("failing", ["r1", "r2"])
def test_a_disk_that_cannot_forget_the_log_of_before_stops_the_restore(
    tmp_path, monkeypatch, failing
):
    """Else the table is open, and that replica's server says that ZooKeeper is older than it."""
    with Disaster(tmp_path) as two:
        for value in range(4):
            two.insert("r1", value)
        two.step("r2", "fetch")
        two.wipe()
        for name in ("r1", "r2"):
            if name == failing:
                with monkeypatch.context() as broken:
                    error = OSError(errno.EIO, "Input/output error")
                    broken.setattr(LocalDisk, "replace", Mock(side_effect=error))
                    with pytest.raises(OSError, match="Input/output error"):
                        two.restore(name)
            two.restore(name)
        two.live_on()
        assert two.values("r1") == two.values("r2") == Counter(range(4))
