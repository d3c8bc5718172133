"""The history checker on made histories: each fault is found, and none where there is none."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.soak.history import Insert, Read, Recorder, judge, read_histories

ONE = Insert("one", (1, 2), 0.0, 1.0, "done", "r1")
TWO = Insert("two", (3,), 0.0, 2.0, "done", "r2")
LOST_ANSWER = Insert("three", (4, 5), 0.0)
REFUSED = Insert("four", (6,), 0.0, 1.0, "refused")
INSERTS = [ONE, TWO, LOST_ANSWER, REFUSED]
WHOLE = {"r1": [1, 2, 3], "r2": [1, 2, 3]}


def faults(inserts=INSERTS, reads=(), tables=WHOLE) -> dict[str, list[str]]:
    found = judge(inserts, list(reads), tables).faults
    return {name: those for name, those in found.items() if those}


def test_a_history_without_a_fault_is_right():
    verdict = judge(INSERTS, [Read("r1", (1, 2), 1.5, 1.6)], WHOLE)
    assert verdict.is_right
    assert verdict.words() == (
        "4 inserts, 2 acknowledged, 1 unknown (0 of them there), 0 deleted, 0 taken out and "
        "brought back, 1 reads (0 without ZooKeeper, 0 refused); nothing is wrong"
    )


def test_clients_who_never_got_anything_done_prove_nothing():
    nothing = {"r1": [], "r2": []}
    refused = Read("r1", (), 1.5, 1.6, refused="no ZooKeeper")
    assert faults([LOST_ANSWER, REFUSED], [refused], nothing) == {
        "idle": ["no insert was acknowledged", "no read was answered"]
    }


def test_an_insert_without_an_answer_may_be_there_or_not():
    tables = {"r1": [1, 2, 3, 4, 5], "r2": [1, 2, 3, 4, 5]}
    assert faults(tables=tables) == {}
    assert judge(INSERTS, [], tables).unknown_and_there == 1


@pytest.mark.parametrize(
    ("tables", "found"),
    [
        ({"r1": [1, 2], "r2": [1, 2]}, {"lost": ["two"]}),
        ({"r1": [1, 2], "r2": [1, 2, 3]}, {"lost": ["two"], "different": ["3 not on r1"]}),
        ({"r1": [1, 2, 3, 4], "r2": [1, 2, 3, 4]}, {"partial": ["three"]}),
        ({"r1": [1, 1, 2, 3], "r2": [1, 2, 3]}, {"duplicated": ["one"]}),
        ({"r1": [1, 2, 3, 6], "r2": [1, 2, 3, 6]}, {"unexpected": ["6"]}),
        ({"r1": [1, 2, 3, 9], "r2": [1, 2, 3, 9]}, {"unexpected": ["9"]}),
    ],
)
def test_the_tables_at_the_end_are_judged(tables, found):
    assert faults(tables=tables) == found


def test_a_read_that_began_after_the_answer_shows_what_its_server_took():
    assert faults(reads=[Read("r1", (1,), 1.5, 1.6)]) == {"stale": ["2 on r1"]}
    assert faults(reads=[Read("r1", (1,), 0.5, 1.6)]) == {}
    assert faults(reads=[Read("r2", (), 1.5, 1.6)]) == {}, "r1 took it; r2 may be late"


def test_what_was_seen_stays_to_be_seen():
    early, late = Read("r2", (1,), 0.1, 0.2), Read("r2", (2,), 0.3, 0.4)
    assert faults(reads=[late, early]) == {"vanished": ["1 on r2"]}
    assert faults(reads=[early, replace(late, begin_s=0.15)]) == {}, "both at once"


def test_who_was_warned_that_newer_rows_may_be_missing_may_miss_them_and_sees_no_others():
    early, late = Read("r1", (1, 2), 1.1, 1.2), Read("r1", (1,), 1.5, 1.6, seen_last=True)
    assert faults(reads=[early, late]) == {}
    assert judge(INSERTS, [early, late], WHOLE).reads_seen_last == 1
    wrong = [replace(late, keys=(1, 1)), replace(late, keys=(7,))]
    assert faults(reads=wrong) == {
        "duplicated": ["1 in a read of r1"],
        "unexpected": ["7 in a read"],
    }


def test_who_got_no_answer_was_shown_nothing():
    refused = Read("r1", (), 1.5, 1.6, refused="CORRUPTED_DATA")
    answered = Read("r1", (1, 2), 1.5, 1.6)
    assert faults(reads=[refused, answered]) == {}
    assert judge(INSERTS, [refused], WHOLE).reads_refused == 1


def test_a_row_is_as_it_was_inserted():
    read = Read("r1", (1, 2), 1.5, 1.6, wrong=("(1, 'row 2')",))
    assert faults(reads=[read]) == {"wrong": ["(1, 'row 2') on r1"]}


def test_a_read_shows_no_key_twice_and_none_that_nobody_inserted():
    assert faults(reads=[Read("r2", (1, 1), 0.1, 0.2)]) == {"duplicated": ["1 in a read of r2"]}
    assert faults(reads=[Read("r2", (7,), 0.1, 0.2)]) == {"unexpected": ["7 in a read"]}


def test_histories_are_read_as_far_as_they_were_written(tmp_path: Path):
    file = tmp_path / "client"
    recorder = Recorder(file)
    recorder.write(replace(ONE, end_s=0.0, outcome="unknown", server=""))
    recorder.write(ONE)
    recorder.write(Read("r1", (1, 2), 1.5, 1.6))
    with file.open("a") as cut:
        cut.write('{"kind": "ins')
    assert read_histories([file]) == ([ONE], [Read("r1", (1, 2), 1.5, 1.6)])


def test_what_was_brought_back_is_there_at_the_end_and_may_vanish_before():
    back = replace(ONE, outcome="back")
    gone = {"r1": [3], "r2": [3]}
    reads = [Read("r1", (1, 2), 1.1, 1.2), Read("r1", (), 1.3, 1.4)]
    assert faults([back, TWO], reads) == {}
    assert faults([back, TWO], reads, gone) == {"lost": ["one"]}


def test_what_was_deleted_is_away_at_the_end_and_may_vanish_before():
    deleted = replace(ONE, outcome="deleted")
    reads = [Read("r1", (1, 2), 1.1, 1.2), Read("r1", (), 1.3, 1.4)]
    gone = {"r1": [3], "r2": [3]}
    assert faults([deleted, TWO], reads, gone) == {}
    assert judge([deleted, TWO], reads, gone).deleted == 1
    assert faults([deleted, TWO], reads) == {"unexpected": ["1", "2"]}
    deleting = replace(ONE, outcome="deleting")
    for tables in (gone, WHOLE):
        assert faults([deleting, TWO], reads, tables) == {}
    half = {"r1": [1, 3], "r2": [1, 3]}
    assert faults([deleting, TWO], reads, half) == {"partial": ["one"]}
