"""Parts that no replica has become empty ones, once every one was asked (spec §5.9, F5 to F8)."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rmt_pipeline.protocol.errors import DiskFull
from rmt_pipeline.protocol.log.entry import ReplaceRange
from rmt_pipeline.protocol.nodes.records import LostPart
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.assign.merges import Assigned, optimize_partition
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.backoff import record_failure
from rmt_pipeline.replica.claims import Holder
from rmt_pipeline.replica.insert.result import Outcome
from rmt_pipeline.replica.life.create import create_replica
from rmt_pipeline.replica.life.drop import drop_replica
from rmt_pipeline.replica.mutations.mutations import load_mutations
from rmt_pipeline.replica.partitions.detached import WhyKept, why_kept
from rmt_pipeline.replica.upkeep import lost
from rmt_pipeline.replica.upkeep.check import check_part
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.replica.upkeep.lost import replace_lost_parts
from rmt_pipeline.store.layout import DetachedName, parse_detached
from rmt_pipeline.zookeeper.keeper import Check, Create, Op, SetData
from rmt_pipeline.zookeeper.known import KnownQueue
from rmt_pipeline.zookeeper.paths import TablePaths
from rmt_pipeline.zookeeper.snapshot import queue_snapshot, queued_entries
from tests.support.local_replicas import ROOT, Replicas, definition_of
from tests.support.lost_answers import before, faulty

LOST = PartName("all", 0, 0, 0)
SECOND = PartName("all", 1, 1, 0)


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    """Two parts, on both; the first is lost on both, and both have tried to fetch it."""
    with Replicas(tmp_path) as opened:
        opened.insert("r1", 1, 2)
        opened.insert("r1", 3)
        for name in ("r1", "r2"):
            opened.step(name, "fetch")
        lose_everywhere(opened)
        yield opened


def lose(replicas: Replicas, name: str, part: PartName) -> None:
    shutil.rmtree(replicas.stores[name].directory(part))
    check_part(replicas[name], part)


def lose_everywhere(replicas: Replicas) -> None:
    """On r1 and r2, and both try to fetch it in vain."""
    for name in ("r1", "r2"):
        lose(replicas, name, LOST)
    for name in ("r1", "r2"):
        replicas.step(name, "fetch")


def rows(replicas: Replicas, name: str) -> list[int]:
    found = replicas.table(name).dataset({"broken_parts_wait_ms": 0}).to_table()
    return sorted(found.column("n").to_pylist())


def count(replicas: Replicas) -> bytes:
    return replicas.zookeeper.nodes[f"{ROOT}/lost_part_count"].data


def replaces(op: Op) -> bool:
    """Of the multi that publishes the empty part."""
    return isinstance(op, SetData) and op.path == f"{ROOT}/lost_part_count"


def written(replicas: Replicas, path: str, data: bytes = b"") -> Callable[[], object]:
    """Another session writes to this node of the table, which gets another version."""
    return lambda: replicas.zookeeper.connect().multi([SetData(f"{ROOT}/{path}", data)])


def test_a_part_that_nobody_has_becomes_an_empty_one_everywhere(replicas: Replicas) -> None:
    """F6."""
    assert replace_lost_parts(replicas["r1"]) == (LOST,)
    assert rows(replicas, "r1") == [3]
    replicas.clock.sleep_s(100.0)
    replicas.step("r2", "fetch")
    assert rows(replicas, "r2") == [3]
    assert count(replicas) == b"1"
    for name in ("r1", "r2"):
        assert replicas.zookeeper.nodes[f"{ROOT}/replicas/{name}/queue"].children == set()
        assert replace_lost_parts(replicas[name]) == ()
    assert count(replicas) == b"1"


def test_the_part_log_has_that_it_was_broken_and_that_it_is_lost(replicas: Replicas) -> None:
    """Each replica's that it was gone there; that it is lost, who found that out."""
    replace_lost_parts(replicas["r1"])
    replicas.clock.sleep_s(100.0)
    replicas.step("r2", "fetch")
    noted = {
        name: [
            (event.event_type, event.part)
            for event in replicas.stores[name].part_log.events()
            if event.event_type in ("BrokenPart", "LostPart")
        ]
        for name in ("r1", "r2")
    }
    broken, is_lost = ("BrokenPart", str(LOST)), ("LostPart", str(LOST))
    assert noted == {"r1": [broken, is_lost], "r2": [broken]}
    said = [one.error for one in replicas.stores["r1"].part_log.events() if one.error]
    assert any("is fetched again" in one for one in said)
    assert any("rows are lost" in one for one in said)


def test_its_insert_is_named_and_can_be_repeated(replicas: Replicas) -> None:
    """I9: the original keeps the ids, and swallows the retry."""
    [first] = [one for one in replicas.table("r1").inserts() if LOST_LINE in lines(one)]
    replace_lost_parts(replicas["r1"])
    note = LostPart.decode(replicas.zookeeper.nodes[f"{ROOT}/lost_parts/{LOST}"].data)
    assert (note.replica, note.inserts) == ("r1", (first.insert_id,))
    again = replicas.table("r1").insert([{"n": 1}, {"n": 2}])
    assert again.outcome is Outcome.INSERTED
    other = replicas.table("r1").insert([{"n": 3}])
    assert other.outcome is Outcome.DUPLICATE
    assert rows(replicas, "r1") == [1, 2, 3]


LOST_LINE = (0, 0)


def lines(report: Any) -> list[tuple[int, int]]:
    return [(line.first, line.last) for line in report.lines]


def test_not_while_a_replica_is_away(tmp_path: Path) -> None:
    """F5: it may have the part."""
    with Replicas(tmp_path, ["r1", "r2", "r3"]) as replicas:
        replicas.insert("r1", 1, 2)
        for name in ("r1", "r2", "r3"):
            replicas.step(name, "fetch")
        replicas.stop("r3")
        lose_everywhere(replicas)
        assert replace_lost_parts(replicas["r1"]) == ()
        replicas.come_back("r3")
        assert replace_lost_parts(replicas["r1"]) == ()
        replicas.clock.sleep_s(100.0)
        replicas.step("r1", "fetch")
        assert rows(replicas, "r1") == [1, 2]


def test_nor_while_one_is_away_of_which_nothing_is_known(tmp_path: Path) -> None:
    """It promises nothing, and yet the part may be on its disk."""
    with Replicas(tmp_path, ["r1", "r2", "r3"]) as replicas:
        replicas.insert("r1", 1, 2)
        for name in ("r1", "r2"):
            replicas.step(name, "fetch")
        replicas.stop("r3")
        lose_everywhere(replicas)
        assert replace_lost_parts(replicas["r1"]) == ()
        assert count(replicas) in (b"", b"0")
        replicas.come_back("r3")
        assert replace_lost_parts(replicas["r1"]) == (LOST,)


def test_nor_when_one_goes_away_meanwhile(replicas: Replicas) -> None:
    with before(replicas["r1"].keeper, replaces, lambda: replicas.stop("r2")):
        assert replace_lost_parts(replicas["r1"]) == ()
    assert count(replicas) in (b"", b"0")


def test_one_that_only_one_lost_is_fetched(tmp_path: Path) -> None:
    with Replicas(tmp_path) as replicas:
        replicas.insert("r1", 1, 2)
        replicas.step("r1", "fetch")
        replicas.step("r2", "fetch")
        lose(replicas, "r1", LOST)
        assert replace_lost_parts(replicas["r1"]) == ()
        replicas.step("r1", "fetch")
        assert rows(replicas, "r1") == [1, 2]


def test_a_replica_that_comes_meanwhile_is_asked_first(replicas: Replicas) -> None:
    """F8. 1. Everybody was looked at. 2. Another replica joins. 3. The part is not replaced yet."""
    with before(replicas["r1"].keeper, replaces, written(replicas, "replicas")):
        assert replace_lost_parts(replicas["r1"]) == ()
    assert count(replicas) in (b"", b"0")
    assert replicas.stores["r1"].staged() == []
    assert replace_lost_parts(replicas["r1"]) == (LOST,)


def test_who_is_created_meanwhile_is_asked_first(replicas: Replicas) -> None:
    """He is not even active yet."""
    session = replicas.zookeeper.connect()
    with before(
        replicas["r1"].keeper,
        replaces,
        lambda: create_replica(session, definition_of("r3"), b"r3"),
    ):
        assert replace_lost_parts(replicas["r1"]) == ()
    assert replace_lost_parts(replicas["r1"]) == ()
    assert count(replicas) in (b"", b"0")


@contextmanager
def bytes_away(directory: Path) -> Iterator[tuple[Replicas, Callable[[], object]]]:
    """The only directory of a part can't be found, and both have tried to fetch it; and what brings
    it back to the disk of r1.
    """
    with Replicas(directory / "disks") as replicas:
        assert replicas.insert("r1", 1, 2) == LOST
        replicas.step("r1", "fetch")
        place = replicas.stores["r1"].directory(LOST)
        shutil.move(place, directory / "away")
        check_part(replicas["r1"], LOST)
        for name in ("r1", "r2"):
            replicas.step(name, "fetch")
        yield replicas, lambda: shutil.move(directory / "away", place)


def test_what_somebody_brings_back_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    """1. Everybody was looked at. 2. The directory is there again, and a person makes the node that
    the message names. 3. The part is what it was, and everybody fetches it.
    """
    with bytes_away(tmp_path) as (replicas, bring_back):

        def by_hand() -> None:
            bring_back()
            replicas.zookeeper.connect().multi([Create(replicas["r1"].paths.part(LOST))])

        with before(replicas["r2"].keeper, replaces, by_hand):
            assert replace_lost_parts(replicas["r2"]) == ()
        assert count(replicas) in (b"", b"0")
        replicas.clock.sleep_s(100.0)
        replicas.work_off()
        assert rows(replicas, "r1") == rows(replicas, "r2") == [1, 2]


def test_of_who_starts_again_with_the_bytes_meanwhile_they_are_kept(tmp_path: Path) -> None:
    """1. Everybody was looked at. 2. r1 starts again, on a disk that has them. 3. The part becomes
    an empty one: r1 promised it to nobody. 4. Its rows are beside the table, for people to attach.
    """
    with bytes_away(tmp_path) as (replicas, bring_back):

        def start_again() -> None:
            replicas.stop("r1")
            bring_back()
            replicas.come_back("r1")

        with before(replicas["r2"].keeper, replaces, start_again):
            assert replace_lost_parts(replicas["r2"]) == (LOST,)
        replicas.clock.sleep_s(100.0)
        replicas.work_off()
        assert rows(replicas, "r1") == rows(replicas, "r2") == []
        assert replicas.stores["r1"].detached() == [f"ignored_{LOST}"]


def test_bytes_that_were_away_are_kept_once_however_often_it_is_tried(tmp_path: Path) -> None:
    """The first try dies when they have been kept, and before the empty part is announced."""
    with bytes_away(tmp_path) as (replicas, bring_back):

        def start_again() -> None:
            replicas.stop("r1")
            bring_back()
            replicas.come_back("r1")

        with before(replicas["r2"].keeper, replaces, start_again):
            assert replace_lost_parts(replicas["r2"]) == (LOST,)
        replicas.clock.sleep_s(100.0)
        with faulty(replicas["r1"].session, confirms, landed=True, times=2):
            replicas.work_off()
        assert replicas.stores["r1"].detached() == [f"ignored_{LOST}"]
        replicas.clock.sleep_s(100.0)
        replicas.work_off()
        assert rows(replicas, "r1") == rows(replicas, "r2") == []
        assert replicas.stores["r1"].detached() == [f"ignored_{LOST}"]


def confirms(op: Op) -> bool:
    """The multi that asks whether our claim stands, before a directory goes."""
    return isinstance(op, Check) and "/executing/" in op.path


def test_what_is_assigned_meanwhile_comes_first(replicas: Replicas) -> None:
    """F8: a drop, perhaps."""
    with before(replicas["r1"].keeper, replaces, written(replicas, "log")):
        assert replace_lost_parts(replicas["r1"]) == ()
    assert count(replicas) in (b"", b"0")


def test_who_gives_a_part_up_meanwhile_is_asked_again(replicas: Replicas) -> None:
    with before(
        replicas["r1"].keeper, replaces, written(replicas, "replicas/r2/is_lost", b"0")
    ):
        assert replace_lost_parts(replicas["r1"]) == ()
    assert count(replicas) in (b"", b"0")
    assert replace_lost_parts(replicas["r1"]) == (LOST,)


def test_the_empty_part_can_be_lost_in_its_turn(replicas: Replicas) -> None:
    """Nobody waits for it for ever, and what was to be repeated is known still."""
    assert replace_lost_parts(replicas["r1"]) == (LOST,)
    noted = LostPart.decode(replicas.zookeeper.nodes[f"{ROOT}/lost_parts/{LOST}"].data)
    replicas.clock.sleep_s(100.0)
    replicas.step("r2", "fetch")
    lose_everywhere(replicas)
    assert replace_lost_parts(replicas["r1"]) == (LOST,)
    again = LostPart.decode(replicas.zookeeper.nodes[f"{ROOT}/lost_parts/{LOST}"].data)
    assert again.inserts == noted.inserts
    assert count(replicas) == b"2"
    assert rows(replicas, "r1") == [3]


@pytest.mark.parametrize("who", ["r1", "r2"])
def test_bytes_that_were_away_for_a_while_are_not_thrown_away(tmp_path: Path, who: str) -> None:
    """1. The only directory of a part can't be found, and it is given up. 2. It is there again.
    3. The part becomes an empty one, here or elsewhere: then the rows were on no disk any more.
    """
    with Replicas(tmp_path / "disks") as replicas:
        assert replicas.insert("r1", 1, 2) == LOST
        replicas.step("r1", "fetch")
        disk = replicas.stores["r1"]
        shutil.move(disk.directory(LOST), tmp_path / "away")
        check_part(replicas["r1"], LOST)
        for name in ("r1", "r2"):
            replicas.step(name, "fetch")
        shutil.move(tmp_path / "away", disk.directory(LOST))
        assert replace_lost_parts(replicas[who]) == (LOST,)
        replicas.clock.sleep_s(100.0)
        replicas.work_off()
        assert rows(replicas, "r1") == rows(replicas, "r2") == []
        assert disk.detached() == [f"ignored_{LOST}"]
        assert replicas.stores["r2"].detached() == []
        told = [kept.is_safe for _, kept in kept_of(replicas)]
        assert told == [False], "the part of that name is empty: nothing else has the rows"


@contextmanager
def unreadable(directory: Path) -> Iterator[tuple[Replicas, Callable[[], object]]]:
    """The only copy of a part can't be read, and is given up; and what makes its bytes, wherever
    they are by then, what they were.
    """
    with Replicas(directory) as replicas:
        assert replicas.insert("r1", 1, 2) == LOST
        replicas.step("r1", "fetch")
        store = replicas.stores["r1"]
        [file] = store.files(LOST)
        data = Path(file).read_bytes()
        Path(file).write_bytes(bytes(len(data)))
        assert check_part(replicas["r1"], LOST)
        copy = directory / "r1" / "detached" / f"broken_{LOST}" / Path(file).name
        yield replicas, lambda: copy.write_bytes(data)


def test_what_could_not_be_read_for_a_moment_is_put_back(tmp_path: Path) -> None:
    """Both look for it: who has the bytes has to look at them again before it is lost."""
    with unreadable(tmp_path) as (replicas, readable):
        replicas.step("r2", "fetch")
        assert replace_lost_parts(replicas["r2"]) == ()
        readable()
        replicas.step("r1", "fetch")
        assert rows(replicas, "r1") == [1, 2]
        assert replace_lost_parts(replicas["r2"]) == ()
        replicas.clock.sleep_s(100.0)
        replicas.work_off()
        assert rows(replicas, "r2") == [1, 2]
        assert count(replicas) in (b"", b"0")


def test_also_from_the_copy_that_was_set_aside(tmp_path: Path) -> None:
    with unreadable(tmp_path) as (replicas, readable):
        readable()
        shutil.rmtree(replicas.stores["r1"].directory(LOST))
        replicas.step("r1", "fetch")
        assert rows(replicas, "r1") == [1, 2]


def test_also_what_was_set_aside_by_a_start(tmp_path: Path) -> None:
    with Replicas(tmp_path) as replicas:
        assert replicas.insert("r1", 1, 2) == LOST
        replicas.step("r1", "fetch")
        replicas.stop("r1")
        disk = replicas.stores["r1"]
        manifest = Path(disk.directory(LOST)) / "part.json"
        text = manifest.read_bytes()
        manifest.write_bytes(b"nothing")
        assert replicas.come_back("r1").recovered.refetched == (LOST,)
        [aside] = disk.detached()
        (tmp_path / "r1" / "detached" / aside / "part.json").write_bytes(text)
        replicas.step("r1", "fetch")
        assert rows(replicas, "r1") == [1, 2]


@contextmanager
def died_before_it_was_told(directory: Path) -> Iterator[Replicas]:
    """1. r2 has fetched a part, which has its name there, and dies before ZooKeeper knows. 2. r1
    loses it. 3. r1 has tried to get it again.
    """
    with Replicas(directory) as replicas:
        assert replicas.insert("r1", 1, 2) == LOST
        keeper = replicas["r2"].keeper
        with (
            faulty(keeper, promises_on_r2, landed=False, error=KeyboardInterrupt()),
            pytest.raises(KeyboardInterrupt),
        ):
            replicas.step("r2", "fetch")
        replicas.stop("r2")
        replicas.come_back("r2")
        assert replicas.stores["r2"].has(LOST)
        assert replicas.parts("r2") == []
        lose(replicas, "r1", LOST)
        replicas.step("r1", "fetch")
        yield replicas


def promises_on_r2(op: Op) -> bool:
    return isinstance(op, Create) and op.path == f"{ROOT}/replicas/r2/parts/{LOST}"


def test_what_somebody_has_fetched_and_not_told_is_not_lost(tmp_path: Path) -> None:
    with died_before_it_was_told(tmp_path) as replicas:
        assert replace_lost_parts(replicas["r1"]) == ()
        replicas.step("r2", "fetch")
        assert rows(replicas, "r2") == [1, 2]
        replicas.clock.sleep_s(100.0)
        replicas.work_off()
        assert rows(replicas, "r1") == [1, 2]


def test_also_when_he_has_failed_to_get_it_before(tmp_path: Path) -> None:
    """What was noted of that try says nothing of what he has by now."""
    with died_before_it_was_told(tmp_path) as replicas:
        two = replicas["r2"]
        [node] = two.keeper.children(two.paths.queue)
        record_failure(two, node, 1, "r1 does not answer")
        replicas.clock.sleep_s(1.0)
        replicas.zookeeper.connect().multi([SetData(f"{ROOT}/replicas/r1/is_lost", b"0")])
        assert replace_lost_parts(replicas["r1"]) == ()
        replicas.step("r2", "fetch")
        assert rows(replicas, "r2") == [1, 2]


def test_what_is_broken_of_it_is_lost_then(tmp_path: Path) -> None:
    with died_before_it_was_told(tmp_path) as replicas:
        disk = replicas.stores["r2"]
        [file] = disk.files(LOST)
        Path(file).write_bytes(b"nothing")
        [told] = replicas.step("r2", "fetch").done
        assert "what this disk has left of it is not whole" in told.error
        assert disk.detached() == [f"broken_{LOST}"]
        assert replace_lost_parts(replicas["r1"]) == (LOST,)


def test_what_is_broken_is_looked_at_again_once_and_is_lost_then(tmp_path: Path) -> None:
    with unreadable(tmp_path) as (replicas, _):
        [told] = replicas.step("r1", "fetch").done
        assert "what this disk has left of it is not whole" in told.error
        replicas.step("r2", "fetch")
        assert replace_lost_parts(replicas["r2"]) == (LOST,)
        replicas.clock.sleep_s(100.0)
        replicas.work_off()
        assert rows(replicas, "r1") == rows(replicas, "r2") == []


@pytest.mark.parametrize("error", [DiskFull("full"), KeyboardInterrupt()])
def test_who_can_not_replace_it_leaves_it_to_others(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """What he had claimed for it is free again."""

    def fails(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(lost, "publish", fails)
        with pytest.raises(type(error)):
            replace_lost_parts(replicas["r1"])
    assert replicas.zookeeper.nodes[f"{ROOT}/replicas/r1/executing"].children == set()
    assert replace_lost_parts(replicas["r1"]) == (LOST,)


def test_who_has_tried_to_fetch_it_only_has_yet_to_look_at_his_own(tmp_path: Path) -> None:
    """1. r1 gives it up, and its fetch from r2 fails, which has lost it as well. 2. r2 gives it up
    in its turn. 3. r1 has tried in vain, and has the bytes.
    """
    with unreadable(tmp_path) as (replicas, readable):
        other = replicas["r2"]
        other.keeper.multi([Create(other.paths.part(LOST), b"")])
        replicas.step("r1", "fetch")
        [failed] = replicas.zookeeper.nodes[f"{ROOT}/replicas/r1/attempts"].children
        assert failed
        check_part(other, LOST)
        replicas.step("r2", "fetch")
        assert replace_lost_parts(other) == ()
        readable()
        replicas.clock.sleep_s(100.0)
        replicas.step("r1", "fetch")
        assert rows(replicas, "r1") == [1, 2]


def test_other_rows_are_not_put_back(tmp_path: Path) -> None:
    """Whole, under the part's name: of a table of before, say."""
    with unreadable(tmp_path) as (replicas, _):
        other = replicas.insert("r1", 3)
        disk = replicas.stores["r1"]
        shutil.rmtree(disk.directory(LOST))
        shutil.copytree(disk.directory(other), disk.directory(LOST))
        [told] = replicas.step("r1", "fetch").done
        assert "is not what was promised" in told.error
        assert rows(replicas, "r2") == []


def test_while_there_is_no_room_to_put_it_back_it_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with unreadable(tmp_path) as (replicas, readable):
        readable()

        def full(*_: object) -> None:
            raise DiskFull("no space left")

        with monkeypatch.context() as patch:
            patch.setattr(replicas.stores["r1"], "clone_into", full)
            replicas.step("r1", "fetch")
        replicas.step("r2", "fetch")
        assert replace_lost_parts(replicas["r2"]) == ()
        replicas.clock.sleep_s(100.0)
        replicas.step("r1", "fetch")
        assert rows(replicas, "r1") == [1, 2]


def test_a_broken_copy_of_what_is_lost_may_not_go(tmp_path: Path) -> None:
    """The part of its name is here and promised, and is the empty one."""
    with Replicas(tmp_path, ["r1"]) as replicas:
        replicas.insert("r1", 1, 2)
        replicas.step("r1", "fetch")
        disk = replicas.stores["r1"]
        [file] = disk.manifest(LOST).files
        (Path(disk.directory(LOST)) / file.name).write_bytes(b"x" * file.size)
        check_part(replicas["r1"], LOST)
        replicas.step("r1", "fetch")
        assert replace_lost_parts(replicas["r1"]) == (LOST,)
        told = {str(name): kept for name, kept in kept_of(replicas)}
        assert not told[f"broken_{LOST}"].is_safe
        assert "was lost on all replicas" in told[f"broken_{LOST}"].why
        larger = parse_detached(f"broken_{PartName('all', LOST.block_min, 9, 1)}")
        assert larger is not None
        [(_, kept)] = why_kept(replicas["r1"], [larger])
        assert "was lost on all replicas" in kept.why, "it may be all that is left of that"


def kept_of(replicas: Replicas) -> list[tuple[DetachedName, WhyKept]]:
    return why_kept(replicas["r1"], replicas.stores["r1"].detached_parts.names())


def test_rows_of_a_disk_that_comes_back_are_kept_beside_the_table(tmp_path: Path) -> None:
    """1. The only disk that has a part is not mounted when the server starts; the part becomes an
    empty one. 2. Its rows are inserted again. 3. The disk is back: here they would be twice.
    """
    with Replicas(tmp_path / "disks") as replicas:
        assert replicas.insert("r1", 1, 2) == LOST
        replicas.step("r1", "fetch")
        replicas.stop("r1")
        disk = replicas.stores["r1"]
        shutil.move(disk.directory(LOST), tmp_path / "away")
        replicas.come_back("r1")
        replicas.step("r1", "fetch")
        assert replace_lost_parts(replicas["r1"]) == (LOST,)
        assert replicas.table("r1").insert([{"n": 1}, {"n": 2}]).outcome is Outcome.INSERTED
        replicas.work_off()
        replicas.clock.sleep_s(100.0)
        replicas.work_off()
        replicas.stop("r1")
        shutil.rmtree(disk.directory(LOST))
        shutil.move(tmp_path / "away", disk.directory(LOST))
        started = replicas.come_back("r1")
        assert started.recovered.refetched == (LOST,)
        assert disk.detached() == [f"ignored_{LOST}"]
        replicas.work_off()
        assert rows(replicas, "r1") == rows(replicas, "r2") == [1, 2]
        assert replicas.come_back("r1").recovered.refetched == ()


def test_a_dropped_part_is_not_lost(replicas: Replicas) -> None:
    replicas.table("r1").truncate(settings={"alter_sync": "0"})
    assert replace_lost_parts(replicas["r1"]) == ()
    assert count(replicas) in (b"", b"0")


def test_what_is_dropped_here_meanwhile_is_not_asked_for(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. It is wanted in vain, and looked for everywhere. 2. A drop is carried out here: what asked
    for it goes. 3. An entry for it now would bring an empty part into the range that was dropped,
    on this replica alone, and say that rows are lost.
    """
    right = lost.lost_of

    def looked(*args: Any) -> set[PartName]:
        found = right(*args)
        monkeypatch.setattr(lost, "lost_of", right)
        replicas.table("r1").truncate(settings={"alter_sync": "0"})
        replicas.work_off()
        return found

    monkeypatch.setattr(lost, "lost_of", looked)
    assert replace_lost_parts(replicas["r1"]) == ()
    assert replicas.zookeeper.nodes[f"{ROOT}/replicas/r1/queue"].children == set()
    assert replace_lost_parts(replicas["r1"]) == ()
    assert count(replicas) in (b"", b"0")


def test_a_merge_goes_on_without_it(replicas: Replicas) -> None:
    """F7: the source is replaced, not the result."""
    replicas.insert("r1", 4)
    replicas.step("r1", "fetch")
    replicas.step("r2", "fetch")
    carry_out(replicas["r1"], plan_clean_up(replicas["r1"]))
    merged = optimize_partition(replicas["r1"], "all", final=True, skip_merged=False)
    assert isinstance(merged, Assigned)
    assert merged.result == PartName("all", 0, 2, 1)
    replicas.clock.sleep_s(100.0)
    for name in ("r1", "r2"):
        replicas.step(name, "fetch")
        replicas.step(name, "merge")
    assert rows(replicas, "r1") == rows(replicas, "r2") == [3, 4]


def test_a_mutation_is_finished_without_it(replicas: Replicas) -> None:
    table = replicas.table("r1")
    mutation = table.mutate("DELETE WHERE n = 3")
    replicas.clock.sleep_s(100.0)
    for _ in range(3):
        for name in ("r1", "r2"):
            replicas.step(name, "fetch")
            carry_out(replicas[name], plan_clean_up(replicas[name]))
            assign_mutations(replicas["r1"])
            replicas.step(name, "merge")
            replicas.clock.sleep_s(100.0)
    assert rows(replicas, "r1") == []
    [report] = table.mutations()
    assert report.status.mutation_id == mutation
    assert report.status.is_done
    assert load_mutations(replicas["r1"]).entries


def replaced(replicas: Replicas) -> PartName:
    """What r1 brings instead of a part that all have; nobody else has fetched it."""
    replicas.insert("r1", 1)
    for name in ("r1", "r2", "r3"):
        replicas.step(name, "fetch")
    table = replicas.table("r1")
    [new] = table.replace([{"n": 2}], partition="all", settings={"alter_sync": "0"}).parts
    return new


def test_what_a_replacement_brought_and_nobody_has_is_not_waited_for_for_ever(
    tmp_path: Path,
) -> None:
    """1. r1 replaces the rows. 2. It is dropped before anybody has fetched the new ones."""
    with Replicas(tmp_path, ["r1", "r2", "r3"]) as replicas:
        new = replaced(replicas)
        replicas.stop("r1")
        drop_replica(replicas["r2"].session, TablePaths(ROOT), "r1")
        for name in ("r2", "r3"):
            replicas.step(name, "fetch")
        assert rows(replicas, "r2") == [1]
        assert replace_lost_parts(replicas["r2"]) == (), "first it is asked for by its name"
        replicas.clock.sleep_s(100.0)
        replicas.step("r2", "fetch")
        assert replace_lost_parts(replicas["r2"]) == (new,)
        for _ in range(2):
            for name in ("r2", "r3"):
                replicas.clock.sleep_s(100.0)
                replicas.step(name, "fetch")
        for name in ("r2", "r3"):
            assert rows(replicas, name) == []
            assert replicas.zookeeper.nodes[f"{ROOT}/replicas/{name}/queue"].children == set()


@contextmanager
def replaced_and_gone(directory: Path) -> Iterator[tuple[Replicas, PartName]]:
    """What r1 has brought by a replacement goes with it: r2 and r3 have tried to get it in vain,
    and both ask for it by its name, at the same moment.
    """
    with Replicas(directory, ["r1", "r2", "r3"]) as replicas:
        new = replaced(replicas)
        replicas.stop("r1")
        drop_replica(replicas["r2"].session, TablePaths(ROOT), "r1")
        for name in ("r2", "r3"):
            replicas.step(name, "fetch")
        with before(replicas["r2"].keeper, asks, lambda: replace_lost_parts(replicas["r3"])):
            assert replace_lost_parts(replicas["r2"]) == ()
        for name in ("r2", "r3"):
            assert len(replicas.zookeeper.nodes[f"{ROOT}/replicas/{name}/queue"].children) == 2
            assert replicas.zookeeper.nodes[f"{ROOT}/replicas/{name}/is_lost"].version == 2
        yield replicas, new


def asks(op: Op) -> bool:
    """Of the multi by which a replica asks for a part by its name."""
    return isinstance(op, Create) and "/queue/" in op.path


def test_also_when_all_have_asked_for_it(tmp_path: Path) -> None:
    """1. Two entries of each are for it: the replacement, and one for the part itself. 2. The
    second waits as long as the first is queued, and is never tried. Who has tried the first has
    looked.
    """
    with replaced_and_gone(tmp_path) as (replicas, new):
        assert replace_lost_parts(replicas["r2"]) == (new,)
        replicas.clock.sleep_s(100.0)
        replicas.work_off("r2", "r3")
        for name in ("r2", "r3"):
            assert rows(replicas, name) == []
            assert replicas.zookeeper.nodes[f"{ROOT}/replicas/{name}/queue"].children == set()


def test_not_while_another_entry_that_brings_it_is_carried_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. Nobody is making it. 2. Another worker begins the replacement once more. 3. The entry for
    the part itself waits, whoever would carry it out.
    """
    with replaced_and_gone(tmp_path) as (replicas, new):
        replica = replicas["r2"]
        worker = Holder.new(replica)
        queue = queued_entries(replica.keeper, replica.paths, KnownQueue())
        [node] = [one for one, entry in queue.items() if isinstance(entry, ReplaceRange)]

        def begun_meanwhile(*_: object) -> Mapping[PartName, tuple[str, ...]]:
            snapshot = queue_snapshot(replica.keeper, replica.paths, KnownQueue())
            assert worker.take(snapshot, {node: (new,)})
            return {}

        with monkeypatch.context() as patch:
            patch.setattr(lost, "yet_to_look", begun_meanwhile)
            assert replace_lost_parts(replica) == ()
        assert count(replicas) in (b"", b"0")
        worker.give_back([node])
        assert replace_lost_parts(replica) == (new,)


def test_nor_while_somebody_has_yet_to_carry_out_what_brought_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. r2 has fetched what a replacement brings, and dies before ZooKeeper knows. 2. It goes with
    r1. 3. r2 has it still, and tries again while there is no room.
    """
    with Replicas(tmp_path, ["r1", "r2", "r3"]) as replicas:
        new = replaced(replicas)
        keeper, promised = replicas["r2"].keeper, f"{ROOT}/replicas/r2/parts/{new}"
        with (
            faulty(
                keeper,
                lambda op: isinstance(op, Create) and op.path == promised,
                landed=False,
                error=KeyboardInterrupt(),
            ),
            pytest.raises(KeyboardInterrupt),
        ):
            replicas.step("r2", "fetch")
        replicas.stop("r2")
        replicas.come_back("r2")
        assert replicas.stores["r2"].has(new)
        replicas.stop("r1")
        drop_replica(replicas["r3"].session, TablePaths(ROOT), "r1")
        replicas.step("r3", "fetch")
        for _ in range(2):
            assert replace_lost_parts(replicas["r3"]) == ()

        def full(*_: object) -> None:
            raise DiskFull("no space left")

        with monkeypatch.context() as patch:
            patch.setattr(replicas.stores["r2"], "clone_into", full)
            [told] = replicas.step("r2", "fetch").done
            assert "no space left" in told.error
        for _ in range(2):
            assert replace_lost_parts(replicas["r3"]) == ()
        replicas.clock.sleep_s(100.0)
        replicas.step("r2", "fetch")
        assert rows(replicas, "r2") == [2]
        replicas.clock.sleep_s(100.0)
        replicas.work_off("r2", "r3")
        assert rows(replicas, "r3") == [2]


def test_a_note_reads_back() -> None:
    note = LostPart(1_700_000_000, "r1", ("token-1", "rows-2\t3"))
    assert LostPart.decode(note.encode()) == note


def test_it_is_told(replicas: Replicas) -> None:
    done = carry_out(replicas["r1"], plan_clean_up(replicas["r1"]))
    assert done.lost == (LOST,)
    assert "LOST on all replicas, and empty parts now: all_0_0_0" in done.words()
    assert list(lost.lost_parts(replicas["r2"])) == [LOST]
