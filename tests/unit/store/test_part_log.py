"""system.part_log: what happened to parts, in a bounded file that survives restarts."""

import pytest

from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.jobs.mutate import LocalMutator
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.replica.work.carry import Tools
from rmt_pipeline.replica.work.loop import work
from rmt_pipeline.store import part_log
from rmt_pipeline.store.disk import LocalDisk
from rmt_pipeline.store.part_log import PartEvent, PartLog
from tests.support.local_replicas import ClockWaker, DirectPeers, Replicas
from tests.support.local_session import create, local_session, rows

MADE = "CREATE TABLE t (n UInt64) ENGINE = ReplicatedMergeTree('/tables/t', 'r1') ORDER BY n"


@pytest.fixture
def log(tmp_path) -> PartLog:
    return PartLog(LocalDisk(tmp_path), "")


def event(number: int, error: str = "") -> PartEvent:
    return PartEvent(
        "MergeParts", f"all_0_{number}_1", 1.5, 0.25, 3, 100, ("a", "b"), error=error
    )


def test_another_process_reads_what_was_noted_in_order(tmp_path, log):
    log.note([event(1), event(2, "no space")])
    PartLog(LocalDisk(tmp_path), "").note([event(3)])
    assert list(log.events()) == [event(1), event(2, "no space"), event(3)]


@pytest.mark.parametrize("torn", [b'{"event_type": "Merge', b'{"eve', b"{", b'{"a": 1}\n'])
def test_a_torn_line_is_left_out_and_the_next_ones_are_not(tmp_path, log, torn):
    log.note([event(1)])
    file = tmp_path / "part_log"
    file.write_bytes(file.read_bytes() + torn)
    log.note([event(2, '{"event_type": "a quotation"}'), event(3)])
    assert list(log.events()) == [
        event(1),
        event(2, '{"event_type": "a quotation"}'),
        event(3),
    ]


def test_it_is_bounded_and_the_newest_stay(tmp_path, log, monkeypatch):
    monkeypatch.setattr(part_log, "FILE_BYTES_MAX", 2000)
    for number in range(100):
        log.note([event(number)])
    kept = list(log.events())
    assert kept == [event(number) for number in range(100 - len(kept), 100)]
    assert 5 < len(kept) < 50
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 5000


def test_two_that_find_it_full_lose_no_file_between_them(tmp_path, log, monkeypatch):
    monkeypatch.setattr(part_log, "FILE_BYTES_MAX", 200)
    log.note([event(1)])
    log.note([event(2)])  # full: 1 is in the older file now
    other = PartLog(LocalDisk(tmp_path), "")
    lock = LocalDisk(tmp_path).lock("part_log", shared=False)
    assert lock is not None
    other.note([event(3)])  # somebody else is making room
    lock.release()
    assert list(log.events())[-2:] == [event(2), event(3)]


def worked(replicas: Replicas, name: str, pool) -> None:
    """For a minute of the clock."""
    until_s = replicas.clock.passed_s + 60
    tools = Tools(
        DirectPeers(replicas.stores),
        LocalMerger(replicas.clock),
        LocalMutator(replicas.clock),
        spawn=lambda action: action(),
    )
    work(
        lambda: replicas[name],
        tools,
        pool,
        waker=ClockWaker(replicas.clock),
        linger_s=None,
        on_flush=lambda _: None,
        should_stop=lambda: replicas.clock.passed_s > until_s,
    )


def told(replicas: Replicas, name: str) -> list[tuple[str, str, int]]:
    events = replicas.stores[name].part_log.events()
    return [(one.event_type, one.part, one.rows) for one in events]


def test_what_happens_to_parts_is_noted_on_the_host_where_it_happens(tmp_path):
    with Replicas(tmp_path) as replicas:
        replicas.insert("r1", 1, 2)
        replicas.insert("r1", 3)
        worked(replicas, "r2", "fetch")
        optimize_partition(replicas["r1"], "all", final=True, skip_merged=False)
        worked(replicas, "r1", "fetch")
        worked(replicas, "r1", "merge")
        replicas.clock.passed_s += 10_000
        carry_out(replicas["r1"], plan_clean_up(replicas["r1"]))
        assert told(replicas, "r1") == [
            ("NewPart", "all_0_0_0", 2),
            ("NewPart", "all_1_1_0", 1),
            ("MergeParts", "all_0_1_1", 3),
            ("RemovePart", "all_0_0_0", 0),
            ("RemovePart", "all_1_1_0", 0),
        ]
        assert sorted(told(replicas, "r2")) == [
            ("DownloadPart", "all_0_0_0", 2),
            ("DownloadPart", "all_1_1_0", 1),
        ]
        merged = [one for one in replicas.stores["r1"].part_log.events() if one.sources]
        assert merged[0].sources == ("all_0_0_0", "all_1_1_0")
        [fetched, _] = replicas.stores["r2"].part_log.events()
        assert fetched.source_replica == "r1"


def test_what_failed_is_there_with_its_reason(tmp_path):
    with Replicas(tmp_path) as replicas:
        part = replicas.insert("r1", 1)
        replicas.stores["r1"].disk.remove_tree(str(part))
        worked(replicas, "r2", "fetch")
        failed = [one for one in replicas.stores["r2"].part_log.events() if one.error]
        assert {(one.event_type, one.part) for one in failed} == {("DownloadPart", str(part))}


def test_system_part_log(tmp_path):
    with local_session(tmp_path) as session:
        create(session, MADE)
        session.execute("INSERT INTO t VALUES (1), (2)")
        [found] = rows(
            session,
            "SELECT event_type, table, part_name, partition_id, rows, size_in_bytes > 0,"
            " merged_from, exception FROM system.part_log",
        )
        assert found == ("NewPart", "t", "all_0_0_0", "all", 2, True, [], "")


def test_who_was_told_up_to_a_mark_is_told_the_rest(tmp_path, log):
    log.note([event(1), event(2)])
    [(_, first), (_, second)] = log.since("")
    assert list(log.since(second)) == []
    assert [one for one, _ in log.since(first)] == [event(2)]
    log.note([event(3)])
    assert [one for one, _ in PartLog(LocalDisk(tmp_path), "").since(second)] == [event(3)]


def test_a_mark_stays_true_when_the_log_begins_a_new_file(log, monkeypatch):
    monkeypatch.setattr(part_log, "FILE_BYTES_MAX", 2000)
    mark, told = "", []
    for number in range(100):
        log.note([event(number)])
        if number % 3 == 0:  # sometimes in the older file by then
            new = list(log.since(mark))
            told += [one for one, _ in new]
            mark = new[-1][1]
    assert told == [event(number) for number in range(100)]


def test_a_mark_that_was_forgotten_gives_all_that_there_is(log, monkeypatch):
    log.note([event(1)])
    [(_, mark)] = log.since("")
    monkeypatch.setattr(part_log, "FILE_BYTES_MAX", 500)
    for number in range(2, 50):
        log.note([event(number)])
    assert [one for one, _ in log.since(mark)] == list(log.events())


def test_a_line_that_is_being_written_is_told_when_it_is_whole(tmp_path, log):
    log.note([event(1)])
    [(_, mark)] = log.since("")
    log.note([event(2)])
    file = tmp_path / "part_log"
    whole = file.read_bytes()
    file.write_bytes(whole[:-5])
    assert list(log.since(mark)) == []
    file.write_bytes(whole)
    assert [one for one, _ in log.since(mark)] == [event(2)]


def test_a_log_that_moves_on_between_two_reads_gives_nothing_twice(tmp_path, log, monkeypatch):
    log.note([event(1), event(2)])
    read = LocalDisk.read

    def move_after(disk, path):
        data = read(disk, path)
        if path == "part_log" and not disk.size("part_log.before"):
            disk.rename("part_log", "part_log.before")
        return data

    monkeypatch.setattr(LocalDisk, "read", move_after)
    assert list(log.events()) == [event(1), event(2)]
