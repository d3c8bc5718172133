"""Parts whose directory is removed under a running server."""

import shutil
from collections.abc import Iterator

import pytest

from rmt_pipeline.protocol.errors import Corruption, DiskFull
from rmt_pipeline.server import checks
from rmt_pipeline.server.checks import PartChecks
from rmt_pipeline.store.disk import LocalDisk
from rmt_pipeline.store.marks import Marks
from rmt_pipeline.zookeeper.keeper import Create, Delete
from tests.support.fake_keeper import FakeKeeper
from tests.support.local_replicas import Replicas, two_parts
from tests.support.waiting import until


@pytest.fixture
def replicas(tmp_path) -> Iterator[Replicas]:
    with two_parts(tmp_path) as opened:
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


def test_a_whole_directory_that_goes_just_after_it_has_changed_is_noticed(replicas):
    """Its listing is not settled yet, and then there is none: that is not the same."""
    store = replicas.stores["r2"]
    changed_s = store.names_changed_s()
    replicas.clock.passed_s += changed_s - replicas.clock.now_s()
    found = PartChecks({}.get, lambda: [replicas["r2"]])
    found.look_at_disks()
    parts = store.parts()
    shutil.rmtree(store.disk.local_path(""))
    found.look_at_disks()
    assert sorted(part for _, part in found._waiting) == parts


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


def test_more_than_can_wait_are_reported_when_others_have_been_checked(replicas, monkeypatch):
    """Somebody has emptied the directory."""
    monkeypatch.setattr(checks, "WAITING_MAX", 1)
    replica = replicas["r2"]
    found = PartChecks({replica.paths.root: replica}.get, lambda: [replica])
    found.look_at_disks()
    parts = replica.store.parts()
    for part in parts:
        shutil.rmtree(replica.store.directory(part))
    reported = []
    for _ in parts:
        found.look_at_disks()
        [(_, part)] = found._waiting
        reported.append(part)
        found._waiting.clear()  # it was checked
        replica.keeper.multi([Delete(replica.paths.part(part))])
    assert reported == parts
    found.look_at_disks()
    assert not found._waiting


def test_what_is_noted_is_read_again_only_when_something_else_is_promised(
    replicas, monkeypatch
):
    """A table that is written to is looked at each second, however many parts it has."""
    replica, looks = replicas["r2"], []
    seen = Marks.active_seen
    monkeypatch.setattr(Marks, "active_seen", lambda marks: looks.append(marks) or seen(marks))
    found = PartChecks({}.get, lambda: [replica])
    for _ in range(3):
        found.look_at_disks()
    assert len(looks) == 1
    replicas.insert("r2", 7)
    found.look_at_disks()
    assert len(looks) == 2


def test_what_a_full_disk_did_not_take_is_noted_at_the_next_look(replicas, monkeypatch):
    replica = replicas["r2"]
    found = PartChecks({}.get, lambda: [replica])
    with monkeypatch.context() as full:

        def refuse(*_: object) -> None:
            raise DiskFull("no space left")

        full.setattr(LocalDisk, "replace", refuse)
        found.look_at_disks()
    assert replica.store.marks.active_seen() is None
    found.look_at_disks()
    assert replica.store.marks.active_seen().parts == tuple(replica.store.parts())


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


def test_the_parts_of_a_table_that_is_gone_take_no_room_from_others(replicas, monkeypatch):
    """They would wait for ever, and each time hold up all others for a while."""
    monkeypatch.setattr(checks, "RETRY_S", 3600.0)
    monkeypatch.setattr(checks, "LOOK_EVERY_S", 0.01)
    replica = replicas["r2"]
    part = replica.store.parts()[0]
    found = PartChecks({replica.paths.root: replica}.get, lambda: [replica])
    found.report("/tables/dropped/replicas/r2", part, Corruption("broken"))
    found.look_at_disks()
    shutil.rmtree(replica.store.directory(part))
    found.start()
    try:
        until(lambda: str(part) not in replicas.parts("r2"), lambda: str(found._waiting))
    finally:
        found.stop()
