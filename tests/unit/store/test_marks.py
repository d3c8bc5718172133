"""What a table's directory remembers, of parts that were given up and of replicas, whoever dies."""

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import pytest

from rmt_pipeline.protocol.background import Background
from rmt_pipeline.protocol.errors import MissingPart
from rmt_pipeline.protocol.parts.name import LEVEL_MAX, MUTATION_MAX, PartName
from rmt_pipeline.store.disk import Disk
from rmt_pipeline.store.dropped import DroppedRanges
from rmt_pipeline.store.marks import CommitNote, Marks
from rmt_pipeline.store.part_store import PartStore
from tests.support.fake_disk import FakeDisk
from tests.support.mortal_disk import Died, MortalDisk
from tests.support.parts import CountedIds

PART = PartName.parse("all_1_1_0")
DROPPED = PartName("all", 0, 7, LEVEL_MAX, MUTATION_MAX)
EFFECTS_MAX = 10


def marked() -> FakeDisk:
    disk = FakeDisk(lambda: 1000.0)
    disk.make_directory("t")
    Marks(disk, "t", durable=True).give_up(PART, promise=b"a header")
    return disk


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_a_mark_is_forgotten_whole_or_not_at_all(when: str) -> None:
    """Without its promise it would say that somebody has looked again at what is left."""
    for at in range(EFFECTS_MAX):
        disk = marked()
        mortal = MortalDisk(disk, at, when)
        try:
            Marks(cast("Disk", mortal), "t", durable=True).forget_given_up(PART)
            died = False
        except Died:
            died = True
        after = Marks(disk, "t", durable=True)
        assert after.given_up() == [] or after.is_unseen(PART), f"died {when} effect {at}"
        after.forget_given_up(PART)
        assert after.given_up() == []
        PartStore(disk, "t", ids=CountedIds()).sweep((), 60.0, now_s=1000.0)
        assert disk.list("t") == ["given_up"], "nothing is left beside it"
        if not died:
            return
    pytest.fail(f"it has {EFFECTS_MAX} effects: the test is not there to the end")


def test_who_dies_between_the_promise_and_its_mark_has_forgotten_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, right = marked(), FakeDisk.remove_tree

    def torn(self: FakeDisk, path: str) -> None:
        names = self.list(path)
        for name in names:
            right(self, f"{path}/{name}")
        if names:
            raise Died
        right(self, path)

    monkeypatch.setattr(FakeDisk, "remove_tree", torn)
    with pytest.raises(Died):
        Marks(disk, "t", durable=True).forget_given_up(PART)
    assert Marks(disk, "t", durable=True).given_up() == []


def test_a_mark_that_is_forgotten_while_it_is_made_anew_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = marked()
    marks, right = Marks(disk, "t", durable=True), disk.write
    forgotten: list[str] = []

    def write(path: str, chunks: Any) -> int:
        if not forgotten:
            forgotten.append(path)
            marks.forget_given_up(PART)
        return right(path, chunks)

    monkeypatch.setattr(FakeDisk, "write", lambda _, path, chunks: write(path, chunks))
    marks.give_up(PART, promise=b"another header")
    assert marks.promise(PART) == b"another header"


def note(marks: Marks) -> None:
    marks.note_commit("insert", CommitNote(1, b"record"))


@pytest.mark.parametrize(
    "what",
    [
        note,
        lambda marks: marks.give_up(PART, promise=b"another header"),
        lambda marks: marks.give_up(PartName.parse("all_2_2_0")),
        lambda marks: marks.stop(Background.MERGES),
    ],
)
@pytest.mark.parametrize("when", range(6))
def test_a_table_that_was_dropped_does_not_get_its_directory_back(
    monkeypatch: pytest.MonkeyPatch, what: Callable[[Marks], None], when: int
) -> None:
    """A table that is created at the same place would have notes of the old one. `when`: another
    process drops the table before that effect.
    """
    disk, effects = marked(), 0
    marks = Marks(disk, "t", durable=True)

    def after_others(name: str) -> Callable[..., Any]:
        right = getattr(FakeDisk, name)

        def effect(self: FakeDisk, *args: Any, **options: Any) -> Any:
            nonlocal effects
            if effects == when:
                self.remove_tree("t")
            effects += 1
            return right(self, *args, **options)

        return effect

    for name in ("make_directory", "write", "fsync", "fsync_directory"):
        monkeypatch.setattr(FakeDisk, name, after_others(name))
    with pytest.raises(MissingPart, match="t is gone") if when == 0 else suppress(MissingPart):
        what(marks)
    assert disk.list("") == ([] if effects > when else ["t"])


def test_a_note_that_is_forgotten_before_it_is_synced_is_written_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The table is still there. Who notes it was frozen, and the note looked like a dead one's."""
    disk, commit, right = marked(), CommitNote(1, b"record"), FakeDisk.fsync
    marks = Marks(disk, "t", durable=True)

    def late(self: FakeDisk, path: str) -> None:
        monkeypatch.setattr(FakeDisk, "fsync", right)
        marks.forget_commits("insert", [commit])
        right(self, path)

    monkeypatch.setattr(FakeDisk, "fsync", late)
    marks.note_commit("insert", commit)
    assert marks.commit_notes() == {"insert": [commit]}


def test_notes_of_two_tries_of_one_commit_are_two() -> None:
    """Seed 6000228: one of two tries failed, and its clean-up took the other one's note along."""
    marks = Marks(marked(), "t", durable=True)
    first, second, next_one = CommitNote(1, b"a"), CommitNote(1, b"b"), CommitNote(2, b"c")
    for note in (next_one, second, first):
        marks.note_commit("token-1", note)
    marks.note_commit("token-10", first)
    assert marks.commit_notes() == {
        "token-1": [first, second, next_one],
        "token-10": [first],
    }
    marks.forget_commits("token-1", [first])
    marks.forget_commits("token-1", [first])
    assert marks.commit_notes() == {"token-1": [second, next_one], "token-10": [first]}
    assert [marks.is_in_part(name) for name in ("token-1", "token-10", "token")] == [
        True,
        True,
        False,
    ]


def test_a_note_that_was_not_written_whole_is_none() -> None:
    disk = marked()
    marks = Marks(disk, "t", durable=True)
    marks.note_commit("insert", CommitNote(0, b"record"))
    [name] = disk.list("t/in_part")
    disk.write(f"t/in_part/{name}", [b"rec"])
    assert marks.commit_notes() == {}


@pytest.mark.parametrize("seed", range(8))
def test_who_has_parts_of_the_table_is_known_after_a_power_cut(seed: int) -> None:
    disk = FakeDisk(lambda: 1000.0)
    disk.make_directory("t")
    disk.fsync_directory("")
    marks = Marks(disk, "t", durable=True)
    marks.note_replicas(["r1"])
    marks.note_replicas(["r2\u2028x", "r1"])  # a name that ZooKeeper takes
    disk.crash(random.Random(seed))
    assert marks.replicas_seen() == ("r1", "r2\u2028x")


@pytest.mark.parametrize("seed", range(8))
def test_the_log_of_before_a_restore_stays_forgotten_after_a_power_cut(seed: int) -> None:
    """Seed 82000412: the old note came back, and ZooKeeper was called older for ever."""
    disk = FakeDisk(lambda: 1000.0)
    disk.make_directory("t")
    marks = Marks(disk, "t", durable=True)
    marks.note_log_seen(11)
    disk.fsync("t/log_seen")
    disk.fsync_directory("t")
    disk.fsync_directory("")
    marks.forget_log_seen()
    disk.crash(random.Random(seed))
    assert marks.log_seen() == 0


@pytest.mark.parametrize("seed", range(8))
def test_the_note_of_a_commit_stays_forgotten_after_a_power_cut(seed: int) -> None:
    """Else a restore takes the rows of a part that was merged across its numbers since for those of
    the insert, which never landed: who says it again is told that they are there.
    """
    disk = FakeDisk(lambda: 1000.0)
    disk.make_directory("t")
    disk.fsync_directory("")
    marks, note = Marks(disk, "t", durable=True), CommitNote(0, b"record")
    marks.note_commit("insert", note)
    marks.forget_commits("insert", [note])
    disk.crash(random.Random(seed))
    assert marks.commit_notes() == {}


@pytest.mark.parametrize("seed", range(8))
def test_a_dropped_range_stays_forgotten_after_a_power_cut(seed: int) -> None:
    """Else a restore drops what has these numbers since: a table that was opened without this
    replica has given them out again.
    """
    disk = FakeDisk(lambda: 1000.0)
    disk.make_directory("t")
    disk.fsync_directory("")
    drops = DroppedRanges(disk, "t", durable=True)
    drops.note(DROPPED)
    drops.forget(DROPPED)
    disk.crash(random.Random(seed))
    assert drops.ranges() == []


@pytest.mark.parametrize("what", ["mark", "note"])
def test_one_that_others_remove_again_and_again_is_written_in_the_end(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Only a table that was dropped has no place for it."""
    disk, times = FakeDisk(lambda: 1000.0), [5]
    disk.make_directory("t")
    marks, note = Marks(disk, "t", durable=True), CommitNote(0, b"record")
    right = FakeDisk.fsync

    def removed(self: FakeDisk, path: str) -> None:
        if times[0]:
            times[0] -= 1
            self.remove_file(path)
        right(self, path)

    monkeypatch.setattr(FakeDisk, "fsync", removed)
    if what == "mark":
        marks.give_up(PART, promise=b"a header")
        assert marks.promise(PART) == b"a header"
    else:
        marks.note_commit("insert", note)
        assert marks.commit_notes() == {"insert": [note]}


def test_a_table_that_was_dropped_gets_no_note_of_a_commit() -> None:
    marks = Marks(FakeDisk(lambda: 1000.0), "t", durable=True)
    with pytest.raises(MissingPart):
        marks.note_commit("insert", CommitNote(0, b"record"))
