"""Parts whose directory is removed under a running server."""

import shutil
from collections.abc import Iterator

import pytest

from rmt_pipeline.server import checks
from rmt_pipeline.server.checks import PartChecks
from rmt_pipeline.zookeeper.keeper import Create, Delete
from tests.support.fake_keeper import FakeKeeper
from tests.support.local_replicas import Replicas
from tests.support.waiting import until


@pytest.fixture
def replicas(tmp_path) -> Iterator[Replicas]:
    with Replicas(tmp_path) as opened:
        opened.insert("r1", 1, 2, 3)
        opened.insert("r1", 4, 5, 6)
        opened.step("r1", "fetch")
        opened.step("r2", "fetch")
        yield opened


@pytest.fixture
def running(replicas, monkeypatch) -> Iterator[PartChecks]:
    """Of r2, looking all the time."""
    monkeypatch.setattr(checks, "LOOK_EVERY_S", 0.01)
    replica = replicas["r2"]
    opened = PartChecks({replica.paths.root: replica}.get, lambda: [replica])
    opened.look_at_disks()
    opened.start()
    yield opened
    opened.stop()


def test_it_is_given_up_and_fetched_again_though_nobody_reads_it(replicas, running):
    store = replicas.stores["r2"]
    part = store.parts()[0]
    shutil.rmtree(store.directory(part))
    until(lambda: str(part) not in replicas.parts("r2"), lambda: str(replicas.parts("r2")))
    assert store.marks.given_up() == [part]
    replicas.step("r2", "fetch")
    assert str(part) in replicas.parts("r2")
    store.verify(part)


def test_what_is_merged_away_is_no_loss(replicas):
    """Its promise goes before its directory does."""
    replica = replicas["r2"]
    found = PartChecks({}.get, lambda: [replica])
    found.look_at_disks()
    part = replica.store.parts()[0]
    replica.keeper.multi([Delete(replica.paths.part(part))])
    replica.store.remove(part)
    found.look_at_disks()
    assert found._waiting == {}


def test_while_nothing_changes_nobody_is_asked(replicas, monkeypatch):
    found = PartChecks({}.get, lambda: [replicas["r2"]])
    found.look_at_disks()  # leaves notes in the directory
    changed_s = replicas.stores["r2"].names_changed_s()
    replicas.clock.passed_s += changed_s + 2 * checks.SETTLED_S - replicas.clock.now_s()
    found.look_at_disks()

    def fail(*_: object) -> None:
        pytest.fail("ZooKeeper was asked")

    for name in ("exists", "exists_many", "children", "children_stat"):
        monkeypatch.setattr(FakeKeeper, name, fail)
    found.look_at_disks()


def test_a_part_that_is_promised_a_moment_after_it_got_its_name_is_noted(replicas):
    """1. It gets its name. 2. The server looks. 3. It is promised: nothing changes on the disk."""
    replica = replicas["r2"]
    part = replica.store.parts()[0]
    header = replica.keeper.get(replica.paths.part(part))[0]
    replica.keeper.multi([Delete(replica.paths.part(part))])
    found = PartChecks({}.get, lambda: [replica])
    found.look_at_disks()
    assert part not in replica.store.marks.active_seen().parts
    replica.keeper.multi([Create(replica.paths.part(part), header)])
    found.look_at_disks()
    assert part in replica.store.marks.active_seen().parts
