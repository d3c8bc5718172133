"""What the processes of a host count together: nothing twice, nothing lost, and nobody waits."""

import fcntl
import os
import subprocess
import sys
import threading

from rmt_pipeline.protocol.events import ProfileEvent
from rmt_pipeline.store.disk import LocalDisk
from rmt_pipeline.store.tally import (
    ErrorCount,
    ErrorCounts,
    EventCounts,
    Postponed,
    PostponedEntries,
)
from tests.support.fake_disk import FakeDisk

COUNT = """
import sys
from rmt_pipeline.protocol.events import ProfileEvent
from rmt_pipeline.store.disk import LocalDisk
from rmt_pipeline.store.tally import EventCounts
counts = EventCounts(LocalDisk(sys.argv[1]), "")
for _ in range(200):
    counts.add({ProfileEvent.FETCHES: 1})
done = ProfileEvent[sys.argv[2]]
while not counts.read()[done]:  # what waited for the lock is counted with this
    counts.add({done: 1})
"""


def test_several_processes_and_threads_count_to_one_number(tmp_path):
    children = [
        subprocess.Popen([sys.executable, "-c", COUNT, str(tmp_path), done])
        for done in ("INSERTED_PARTS", "INSERTED_ROWS")
    ]
    counts = EventCounts(LocalDisk(tmp_path), "")

    def count() -> None:
        for _ in range(100):
            counts.add(
                {ProfileEvent.FETCHES: 1, ProfileEvent.MERGES: 2, ProfileEvent.CHECKS: 0}
            )

    threads = [threading.Thread(target=count) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [child.wait() for child in children] == [0, 0]
    counts.add({ProfileEvent.MERGES: 1})
    found = counts.read()
    assert (found[ProfileEvent.FETCHES], found[ProfileEvent.MERGES]) == (700, 601)


def test_who_is_frozen_while_he_counts_holds_up_nobody(tmp_path):
    counts = EventCounts(LocalDisk(tmp_path), "")
    counts.add({ProfileEvent.MERGES: 1})
    descriptor = os.open(tmp_path / "events", os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    counts.add({ProfileEvent.MERGES: 1})
    assert counts.read()[ProfileEvent.MERGES] == 1
    os.close(descriptor)
    counts.add({ProfileEvent.MERGES: 1})
    assert counts.read()[ProfileEvent.MERGES] == 3, "it is counted with the next"


def test_what_a_crash_has_torn_counts_as_none(tmp_path):
    counts = EventCounts(LocalDisk(tmp_path), "")
    for text in (b'{"ReplicatedPartMer', b"[1]", b"\xff", b'{"ReplicatedPartMerges": "x"}'):
        (tmp_path / "events").write_bytes(text)
        assert set(counts.read().values()) == {0}
        counts.add({ProfileEvent.MERGES: 1})
        assert counts.read()[ProfileEvent.MERGES] == 1


def test_on_a_disk_of_this_process_alone_nothing_is_noted():
    counts = EventCounts(FakeDisk(lambda: 0.0), "")
    counts.add({ProfileEvent.MERGES: 1})
    assert set(counts.read().values()) == {0}


def test_of_errors_the_last_one_is_shown(tmp_path):
    errors = ErrorCounts(LocalDisk(tmp_path), "")
    errors.add("NO_ZOOKEEPER", "none answered", 10.5)
    errors.add("NO_ZOOKEEPER", "again", 20.0)
    errors.add("TIMEOUT_EXCEEDED", "x" * 1000, 5.0)
    assert errors.read() == {
        "NO_ZOOKEEPER": ErrorCount(2, 20, "again"),
        "TIMEOUT_EXCEEDED": ErrorCount(1, 5, "x" * 500),
    }


def test_what_is_no_longer_queued_is_forgotten(tmp_path):
    postponed = PostponedEntries(LocalDisk(tmp_path), "")
    postponed.add({"queue-1": 3, "queue-2": 1}, {"queue-1", "queue-2"}, 10)
    postponed.add({"queue-1": 1}, {"queue-1"}, 20)
    assert postponed.read() == {"queue-1": Postponed(4, 20)}


def test_what_is_noted_in_a_directory_that_is_being_removed_goes_with_it(tmp_path, monkeypatch):
    disk = LocalDisk(tmp_path)
    (tmp_path / "t").mkdir()
    counts = EventCounts(disk, "t")
    rmdir, late = os.rmdir, [ProfileEvent.FETCHES]

    def with_a_late_count(path, **more) -> None:
        if late:
            counts.add({late.pop(): 1})
        rmdir(path, **more)

    monkeypatch.setattr(os, "rmdir", with_a_late_count)
    disk.remove_tree("t")
    assert not (tmp_path / "t").exists()
    counts.add({ProfileEvent.FETCHES: 1})
    assert not list(tmp_path.iterdir())
