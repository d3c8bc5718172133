"""Small merges in a process beside the worker: the same results, whatever becomes of it."""

import os
import signal
import struct
from collections.abc import Iterator
from multiprocessing import Pipe
from pathlib import Path

import pytest

from rmt_pipeline.compute.jobs import aside as asides
from rmt_pipeline.compute.jobs.aside import Aside
from rmt_pipeline.compute.jobs.merge import LocalMerger, SparkMerger
from rmt_pipeline.compute.jobs.spark import SparkSessions
from rmt_pipeline.compute.merge.job import MergeDone, MergeJob
from rmt_pipeline.compute.merge.plan import plan_merge
from rmt_pipeline.compute.units import Unit, UnitDone
from rmt_pipeline.system import RandomIds, SystemClock
from tests.support.local_replicas import StillClock
from tests.support.merging import definition, job_of, sorted_table, write_part
from tests.support.waiting import LIMIT_S

TABLE = definition([("id", "Int64"), ("city", "String")], ("id",))


@pytest.fixture
def aside() -> Iterator[Aside]:
    made = Aside(StillClock())
    yield made
    made.close()


def job(root: Path) -> MergeJob:
    root.mkdir(parents=True)
    sources = [
        write_part(
            root,
            f"all_{number}_{number}_0",
            sorted_table([{"id": n, "city": f"c{n % 7}"} for n in range(100)], TABLE),
        )
        for number in range(3)
    ]
    (root / "tmp").mkdir()
    return job_of(TABLE, sources, root / "tmp")


def units(root: Path) -> list[Unit]:
    return plan_merge(job(root), 0)


def running(aside: Aside, root: Path) -> int:
    """Has its process started, and waits until it is ready; its process id."""
    for number in range(2):
        aside.run(units(root / f"before {number}"))
    assert aside._child is not None
    assert aside._connection.poll(LIMIT_S)
    return aside._child.pid


def test_a_merge_beside_makes_the_same_bytes(tmp_path, aside, monkeypatch):
    [right] = LocalMerger(SystemClock()).merge([job(tmp_path / "here")])
    running(aside, tmp_path)
    monkeypatch.setattr(asides, "try_unit", None)  # nothing is computed here
    [made] = SparkMerger(SparkSessions(remote="sc://nobody:1"), RandomIds(), aside).merge(
        [job(tmp_path / "there")]
    )
    assert isinstance(right, MergeDone)
    assert isinstance(made, MergeDone)
    assert made.manifest == right.manifest  # with the hash of each file


def test_it_has_a_lower_priority(tmp_path, aside):
    pid = running(aside, tmp_path)
    assert os.getpriority(os.PRIO_PROCESS, pid) > os.getpriority(os.PRIO_PROCESS, 0)


def test_what_a_process_that_died_has_left_is_done_here(tmp_path, aside):
    os.kill(running(aside, tmp_path), signal.SIGKILL)
    done = aside.run(units(tmp_path / "after"))
    assert [type(one) for one in done] == [UnitDone]
    assert aside._child is None
    running(aside, tmp_path / "again")


def test_what_a_frozen_process_does_not_do_is_done_here(tmp_path, aside, monkeypatch):
    monkeypatch.setattr(asides, "PATIENCE_S", 0.1)
    os.kill(running(aside, tmp_path), signal.SIGSTOP)
    done = aside.run(units(tmp_path / "after"))
    assert [type(one) for one in done] == [UnitDone]
    assert aside._child is None


def test_it_is_not_given_much_time_nor_soon_followed_by_another(tmp_path, aside, monkeypatch):
    """Else each merge of a host that is too busy for it would wait, and then be made here."""
    assert asides.PATIENCE_S <= 5
    monkeypatch.setattr(asides, "PATIENCE_S", 0.1)
    os.kill(running(aside, tmp_path), signal.SIGSTOP)
    for number in range(4):
        [done] = aside.run(units(tmp_path / f"after {number}"))
        assert isinstance(done, UnitDone)
        assert aside._child is None
    monkeypatch.undo()
    aside._clock.passed_s += asides.REST_S
    running(aside, tmp_path / "again")


def test_a_frozen_process_does_not_take_more_than_fits_into_a_pipe(
    tmp_path, aside, monkeypatch
):
    """Who sends it so many units does not wait for ever."""
    monkeypatch.setattr(asides, "PATIENCE_S", 0.1)
    os.kill(running(aside, tmp_path), signal.SIGSTOP)
    after = units(tmp_path / "after")
    with monkeypatch.context() as many:
        many.setattr(asides.pickle, "dumps", lambda _: bytes(8 << 20))
        done = aside.run(after)
    assert [type(one) for one in done] == [UnitDone]
    assert aside._child is None


def test_a_process_that_freezes_within_an_answer_is_not_waited_for(
    tmp_path, aside, monkeypatch
):
    """Of a table with many columns an answer is larger than what is written at once."""
    monkeypatch.setattr(asides, "PATIENCE_S", 0.1)
    its_ends = []

    def pipe():
        ours, theirs = Pipe()
        its_ends.append(os.dup(theirs.fileno()))
        return ours, theirs

    monkeypatch.setattr(asides, "Pipe", pipe)
    os.kill(running(aside, tmp_path), signal.SIGSTOP)
    os.write(its_ends[0], struct.pack("!i", 1000) + b"half of it")
    done = aside.run(units(tmp_path / "after"))
    os.close(its_ends[0])
    assert [type(one) for one in done] == [UnitDone]
    assert aside._child is None


def test_a_merge_now_and_then_starts_no_process(tmp_path, aside):
    for number in range(3):
        aside._clock.passed_s += asides.BUSY_S
        [done] = aside.run(units(tmp_path / str(number)))
        assert isinstance(done, UnitDone)
        assert aside._child is None


def test_it_ends_when_it_has_nothing_to_do(tmp_path):
    aside = Aside(StillClock(), idle_s=0.0)
    running(aside, tmp_path)
    assert aside._child is not None
    assert aside._child.wait(LIMIT_S)
    [done] = aside.run(units(tmp_path / "after"))
    assert isinstance(done, UnitDone)


def test_what_a_process_was_killed_in_the_middle_of_is_done_again(tmp_path, aside):
    """Its file is there already, in part."""
    os.kill(running(aside, tmp_path), signal.SIGKILL)
    [unit] = units(tmp_path / "after")
    Path(unit.output).write_bytes(b"half of it")
    [done] = aside.run([unit])
    assert isinstance(done, UnitDone)


def test_an_answer_that_nobody_took_is_not_taken_for_that_of_the_next_merge(
    tmp_path, aside, monkeypatch
):
    running(aside, tmp_path)

    def no_memory():
        raise MemoryError

    with monkeypatch.context() as once:
        once.setattr(aside, "_received", no_memory)
        with pytest.raises(MemoryError):
            aside.run(units(tmp_path / "lost"))
    [unit] = plan_merge(job(tmp_path / "after"), 1)
    [done] = aside.run([unit])
    assert (done.merge, Path(unit.output).exists()) == (1, True)
