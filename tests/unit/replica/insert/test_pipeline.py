"""Inserts that overlap."""

import threading

import pytest

from rmt_pipeline.replica.insert.pipeline import InsertPipeline
from rmt_pipeline.replica.insert.result import InsertResult, Outcome
from tests.support.waiting import LIMIT_S


def inserted(rows: int) -> InsertResult:
    return InsertResult(Outcome.INSERTED, rows, 0, (), (), "")


def test_the_next_insert_starts_before_the_last_one_has_ended():
    together = threading.Barrier(2, timeout=LIMIT_S)  # passed only by two at once

    def insert(rows):
        together.wait()
        return inserted(rows)

    with InsertPipeline(insert, 2) as inserts:
        futures = [inserts.insert(rows) for rows in (1, 2, 3, 4)]
    assert [future.result().rows for future in futures] == [1, 2, 3, 4]


def test_no_more_are_under_way_than_allowed():
    lock, running, seen = threading.Lock(), [0], []

    def insert(rows):
        with lock:
            running[0] += 1
            seen.append(running[0])
        with lock:
            running[0] -= 1
        return inserted(rows)

    with InsertPipeline(insert, 3) as inserts:
        for rows in range(100):
            inserts.insert(rows)
    assert len(seen) == 100
    assert max(seen) <= 3


def test_an_insert_that_failed_is_raised_at_the_end_of_the_block():
    def insert(rows):
        if rows == 7:
            raise ValueError("row 7")
        return inserted(rows)

    def run():
        with InsertPipeline(insert, 2) as inserts:
            for rows in range(20):
                inserts.insert(rows)

    with pytest.raises(ValueError, match="row 7"):
        run()


def test_an_insert_that_can_not_begin_takes_no_place():
    """Else the second one waited for ever."""
    with InsertPipeline(inserted, 1) as inserts:
        pass
    with pytest.raises(RuntimeError):
        inserts.insert(1)
    assert inserts._room.acquire(blocking=False)


def test_an_insert_that_no_thread_can_be_started_for_does_not_begin_later(monkeypatch):
    """Who was told that it can't begin may insert the rows otherwise."""

    def refused(_thread):
        raise RuntimeError("can't start new thread")

    begun = []
    with InsertPipeline(begun.append, 2) as inserts:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refused)
            with pytest.raises(RuntimeError):
                inserts.insert(1)
        inserts.insert(2)
    assert begun == [2]
