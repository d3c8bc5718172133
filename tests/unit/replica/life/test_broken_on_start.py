"""Broken parts at start: a few are set aside and fetched again; many are somebody's business. And
when ZooKeeper has lost the table.
"""

import errno
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from rmt_pipeline.protocol.nodes.formats import ReplicaAddress
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.life.start import start
from rmt_pipeline.replica.upkeep.check import TooManyUnexpectedParts, recover_parts
from rmt_pipeline.store.disk import LocalDisk
from rmt_pipeline.zookeeper.keeper import Create, Delete
from tests.support.local_replicas import Replicas
from tests.support.restoring import Disaster


@pytest.fixture
def replicas(tmp_path):
    """One replica with three parts, two of which have lost their manifest's text."""
    with Replicas(tmp_path, ["r1"]) as opened:
        for value in range(3):
            part = opened.insert("r1", value)
            if value:
                (Path(opened.stores["r1"].directory(part)) / "part.json").write_text("{}")
        opened.clock.passed_s += 1000  # nobody is writing them now
        yield opened


def test_a_few_are_set_aside_and_queued_for_a_fetch(replicas):
    recovered = recover_parts(replicas["r1"])
    assert sorted(map(str, recovered.refetched)) == ["all_1_1_0", "all_2_2_0"]
    assert replicas.stores["r1"].detached() == [
        "broken-on-start_all_1_1_0",
        "broken-on-start_all_2_2_0",
    ]
    assert replicas.parts("r1") == ["all_0_0_0"]
    told = dict(recovered.detached)
    assert list(told) == [f"detached/{one}" for one in replicas.stores["r1"].detached()]
    assert all("part.json" in problem for problem in told.values()), told


@pytest.mark.parametrize(
    ("setting", "limit", "words"),
    [
        ("max_suspicious_broken_parts", 1, "2 parts are broken, for instance all_1_1_0"),
        ("max_suspicious_broken_parts_bytes", 100, r"2 parts of \d{3} bytes are broken"),
    ],
)
def test_too_many_are_left_alone_until_somebody_decides(replicas, setting, limit, words):
    replicas.set(**{setting: limit})
    replica = replicas["r1"]
    with pytest.raises(
        TooManyUnexpectedParts, match=f"{words}.*{setting} is {limit}.*rmt force-restore-data"
    ):
        recover_parts(replica)
    assert replicas.stores["r1"].detached() == []
    assert len(replicas.parts("r1")) == 3

    replica.keeper.multi([Create(f"{replica.paths.flags}/force_restore_data")])
    assert len(recover_parts(replica).refetched) == 2


def test_one_that_was_dropped_does_not_count_and_is_left_to_the_clean_up(replicas):
    """Whoever dropped it died before its directory was gone."""
    replicas.set(max_suspicious_broken_parts=1)
    replica, dropped = replicas["r1"], PartName("all", 2, 2, 0)
    replica.keeper.multi([Delete(replica.paths.part(dropped))])
    replica.store.drops.note(dropped)
    recover_parts(replica)
    assert replica.store.detached() == ["broken-on-start_all_1_1_0"]


def test_who_leaves_that_to_somebody_is_not_active(replicas):
    """No insert is taken until then."""
    replicas.set(max_suspicious_broken_parts=1)
    replicas.stop("r1")
    starting = replace(replicas["r1"], keeper=replicas.zookeeper.connect())
    address = ReplicaAddress("r1", 9009, 9000, "default", "t")
    with pytest.raises(TooManyUnexpectedParts):
        start(starting, identity="r1", incarnation="2", address=address)
    assert starting.keeper.exists(starting.paths.is_active) is None


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_a_part_that_could_not_be_read_for_a_moment_is_not_left_out(
    tmp_path, monkeypatch, failures
):
    """Seed 9700031. The only copy of these rows: what is left out is set aside at the start."""
    with Disaster(tmp_path, names=("r1",)) as one:
        part = one.insert("r1", 5)
        one.wipe()
        read, left = LocalDisk.read, [failures]

        def failing(disk, path):
            if path == f"{part}/part.json" and left[0]:
                left[0] -= 1
                raise OSError(errno.EIO, "input/output error", path)
            return read(disk, path)

        monkeypatch.setattr(LocalDisk, "read", failing)
        restored = one.restore("r1")
        assert left == [0]
        if failures < 3:
            assert restored.left_out == ()
            one.live_on()
            assert one.values("r1") == Counter([5])
        else:
            [(name, why)] = restored.left_out
            assert name == str(part)
            assert why.startswith(f"it is broken: {part} can't be read: [Errno 5]")
