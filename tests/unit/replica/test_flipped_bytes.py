"""A reader never gets rows that are not what was written, whatever happens to the files."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from time import sleep
from typing import Any

import pyarrow as pa
import pytest

from rmt_pipeline.protocol.errors import Corruption, MissingPart, RmtError
from rmt_pipeline.protocol.log.codec import encode
from rmt_pipeline.protocol.log.entry import MergeParts
from rmt_pipeline.protocol.parts.name import PartName, merged
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.readable import readable_parts
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.store import disk, layout, part_store
from rmt_pipeline.store.disk import SETTLED_NS, LocalDisk
from rmt_pipeline.store.marks import Marks
from rmt_pipeline.store.part_store import NOTED_BYTES_MIN, PartStore
from rmt_pipeline.zookeeper.keeper import Create, Delete
from tests.support.fake_keeper import FakeKeeper
from tests.support.local_replicas import BEGAN_S, Replicas, StillClock
from tests.support.local_session import NUMBERS, create, rows, session_with_numbers
from tests.support.parts import CountedIds, clone

VALUES = range(200)
AT_ONCE = {"broken_parts_wait_ms": 0}


@pytest.fixture
def replicas(tmp_path) -> Iterator[Replicas]:
    """One part on both replicas."""
    with Replicas(tmp_path) as opened:
        opened.insert("r1", *VALUES)
        opened.step("r1", "fetch")
        opened.step("r2", "fetch")
        opened.clock.passed_s += 1000
        yield opened


def data_file(replicas: Replicas, name: str = "r2") -> Path:
    [part] = replicas.stores[name].parts()
    return Path(replicas.stores[name].directory(part)) / "data-00000.parquet"


def flip(file: Path, at: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(at)
        [byte] = opened.read(1)
        opened.seek(at)
        opened.write(bytes([byte ^ 0x10]))


def settle() -> None:
    """Until a further change of a file shows in its time of change."""
    sleep(2 * SETTLED_NS / 1e9)


def read(replicas: Replicas, **settings: object) -> list[int]:
    """What a reader on r2 gets, who does not wait."""
    dataset = replicas.table("r2").dataset({**AT_ONCE, **settings})
    return sorted(dataset.to_table().column("n").to_pylist())


def positions(file: Path) -> range:
    size = file.stat().st_size
    return range(0, size, max(1, size // 60))


def test_no_flipped_byte_is_answered_and_each_is_healed(replicas):
    settle()
    for at in positions(data_file(replicas)):
        flip(data_file(replicas), at)
        with pytest.raises(Corruption, match=r"0_0_0.*fetched again"):
            read(replicas)
        with pytest.raises(MissingPart, match=r"0_0_0.*fetched again"):
            read(replicas)  # who comes second does not go without its rows
        assert read(replicas, skip_broken_parts=True) == []
        step = replicas.step("r2", "fetch")
        assert [done.error for done in step.done] == [""], at
        assert read(replicas) == list(VALUES)


@pytest.mark.parametrize(
    "is_late", [False, True], ids=["before it is read", "while it is read"]
)
def test_what_goes_bad_within_a_block_that_reads_is_told_and_healed(replicas, is_late):
    table, found = replicas.table("r2"), list[int]()

    def read_in_a_block(at: int) -> None:
        with table.reading(AT_ONCE) as dataset:
            if not is_late:
                flip(data_file(replicas), at)
            found.extend(dataset.to_table().column("n").to_pylist())
            if is_late:
                flip(data_file(replicas), at)

    for at in positions(data_file(replicas))[::8]:
        settle()
        with pytest.raises(Corruption, match="it is fetched again from another replica"):
            read_in_a_block(at)
        replicas.work_off()
    with table.reading() as dataset:
        assert sorted(dataset.to_table().column("n").to_pylist()) == [*VALUES]
    with pytest.raises(OSError, match="of the block itself"), table.reading():
        raise OSError("of the block itself")


def test_who_waits_gets_the_answer_once_the_part_is_here(replicas, monkeypatch):
    def sleep_s(clock: StillClock, seconds: float) -> None:
        clock.passed_s += seconds
        if len(naps) == 5:
            replicas.step("r2", "fetch")
        naps.append(seconds)

    naps: list[float] = []
    settle()
    flip(data_file(replicas), 40)
    monkeypatch.setattr(StillClock, "sleep_s", sleep_s)
    assert replicas.table("r2").dataset().to_table().num_rows == len(VALUES)
    assert len(naps) == 6


def test_a_removed_directory_is_told_and_healed(replicas):
    file = data_file(replicas)
    for each in file.parent.iterdir():
        each.unlink()
    file.parent.rmdir()
    for _ in range(2):
        with pytest.raises(MissingPart, match="fetched again"):
            read(replicas)
    replicas.step("r2", "fetch")
    assert read(replicas) == list(VALUES)


def test_the_mark_is_there_before_the_promise_is_gone(replicas, monkeypatch):
    marked = []
    multi = FakeKeeper.multi

    def look(keeper: FakeKeeper, ops):
        marked.append(replicas.stores["r2"].marks.given_up())
        return multi(keeper, ops)

    flip(data_file(replicas), 40)
    monkeypatch.setattr(FakeKeeper, "multi", look)
    with pytest.raises(Corruption):
        read(replicas)
    assert [str(part) for part in marked[0]] == ["all_0_0_0"]


def test_who_reads_between_the_two_reads_of_the_promises_misses_nothing(replicas, monkeypatch):
    """1. The promises are read: the part is given up. 2. It is fetched. 3. The queue is read."""
    flip(data_file(replicas), 40)
    with pytest.raises(Corruption):
        read(replicas)
    given_up = Marks.given_up

    def fetched_now(marks: Marks):
        found = given_up(marks)
        monkeypatch.setattr(Marks, "given_up", given_up)
        replicas.step("r2", "fetch")
        return found

    monkeypatch.setattr(Marks, "given_up", fetched_now)
    assert read(replicas) == list(VALUES)


def test_an_old_mark_is_not_forgotten_while_its_part_is_given_up_again(replicas, monkeypatch):
    """1. The part was given up long ago, and fetched. 2. It is marked again. 3. Somebody reads: it
    is promised still. 4. The promise goes. Without the mark the rows would be left out of answers.
    """
    flip(data_file(replicas), 40)
    with pytest.raises(Corruption):
        read(replicas)
    replicas.step("r2", "fetch")
    assert read(replicas) == list(VALUES)
    mark = Path(replicas.stores["r2"].disk.local_path("given_up/all_0_0_0"))
    for path in (mark / "promise", mark):
        os.utime(path, (0, 0))
    replicas.clock.passed_s = time.time() - BEGAN_S
    multi = FakeKeeper.multi

    def read_before(keeper: FakeKeeper, ops):
        monkeypatch.setattr(FakeKeeper, "multi", multi)
        readable_parts(replicas["r2"])
        return multi(keeper, ops)

    flip(data_file(replicas), 40)
    monkeypatch.setattr(FakeKeeper, "multi", read_before)
    for _ in range(2):
        with pytest.raises(Corruption):
            read(replicas)


def test_a_part_that_nobody_fetches_any_more_is_not_waited_for(replicas):
    """Its partition was dropped, say."""
    flip(data_file(replicas), 40)
    with pytest.raises(Corruption):
        read(replicas)
    replica = replicas["r2"]
    for node in replica.keeper.children(replica.paths.queue):
        replica.keeper.multi([Delete(replica.paths.queue_entry(node))])
    assert read(replicas) == []
    assert replica.store.marks.given_up() != []
    replicas.clock.passed_s += 1e10  # the mark is old then, by any clock
    assert read(replicas) == []
    assert replica.store.marks.given_up() == []


@pytest.mark.parametrize("merges", [1, 2])
def test_a_merge_across_a_part_that_was_dropped_does_not_bring_it(tmp_path, merges):
    """The part was given up a moment ago, and came back; then it was dropped by itself. As long as
    the merge was queued a reader was told that its rows are missing.
    """
    with Replicas(tmp_path) as replicas:
        parts = [replicas.insert("r1", value) for value in range(4)]
        replicas.work_off()
        shutil.rmtree(replicas.stores["r2"].directory(parts[1]))
        with pytest.raises(Corruption):
            read(replicas)
        replicas.work_off()
        assert read(replicas) == [0, 1, 2, 3]
        replicas.table("r1").drop_part(parts[1], settings={"alter_sync": 0})
        replicas.work_off()
        for some in ([0, 2], [0, 2, 3])[:merges]:
            sources = [parts[index] for index in some]
            if merges == 2 and some == [0, 2, 3]:
                sources = [PartName.parse("all_0_2_1"), parts[3]]
            entry = MergeParts(
                create_time=0,
                source_replica="r1",
                result=merged(sources),
                sources=tuple(sources),
            )
            log = replicas["r1"].table.log_prefix
            replicas["r1"].keeper.multi([Create(log, encode(entry), sequence=True)])
        pull_log(replicas["r2"])
        assert replicas.stores["r2"].marks.given_up() == [parts[1]]
        assert read(replicas) == [0, 2, 3]
        shutil.rmtree(replicas.stores["r2"].directory(parts[2]))
        with pytest.raises(MissingPart, match="all_2_2_0"):
            read(replicas)
        with pytest.raises(MissingPart, match="all_2_2_0"):
            read(replicas)


def test_a_part_that_is_to_be_made_of_smaller_ones_is_missing_until_then(tmp_path):
    """Its own entry is back in the queue, say after a clone; the sources are its rows, and are on
    this replica only once they were fetched.
    """
    with Replicas(tmp_path) as replicas:
        sources = [replicas.insert("r1", value) for value in range(2)]
        replicas.work_off()
        optimize_partition(replicas["r1"], "all", final=True, skip_merged=False)
        replicas.work_off()
        whole = merged(sources)
        shutil.rmtree(replicas.stores["r2"].directory(whole))
        with pytest.raises(Corruption):
            read(replicas)
        keeper, paths = replicas["r2"].keeper, replicas["r2"].paths
        [node] = keeper.children(paths.queue)
        made = MergeParts(
            create_time=0, source_replica="r1", result=whole, sources=tuple(sources)
        )
        again = MergeParts(
            create_time=0,
            source_replica="r1",
            result=PartName("all", 0, 2, 2),
            sources=(whole, PartName("all", 2, 2, 0)),
        )
        keeper.multi([Delete(paths.queue_entry(node))])
        for entry in (made, again):
            keeper.multi([Create(paths.queue_prefix, encode(entry), sequence=True)])
        for old in sources:
            if keeper.exists(paths.part(old)) is not None:
                keeper.multi([Delete(paths.part(old))])
        with pytest.raises(MissingPart, match=str(whole)):
            read(replicas)


def test_bytes_that_nobody_wrote_to_are_read_once_per_host(replicas, monkeypatch):
    settle()
    assert read(replicas) == list(VALUES)

    def fail(*_: object) -> None:
        pytest.fail("the bytes were hashed again")

    monkeypatch.setattr(LocalDisk, "chunks", fail)
    assert read(replicas) == list(VALUES)
    another_process = PartStore(LocalDisk(replicas.stores["r2"].disk.root), ids=CountedIds())
    [part] = another_process.parts()
    another_process.verify_changed(part)


def test_who_writes_a_large_part_notes_that_it_is_whole(replicas, monkeypatch):
    """Of a small one nothing is noted: it is read as fast as a note is written."""
    monkeypatch.setattr(disk, "SETTLED_NS", 0)
    numbers = Random(1).sample(range(1 << 60), NOTED_BYTES_MIN // 4)
    large, small = replicas.insert("r1", *numbers), replicas.insert("r1", 1000)
    store = replicas.stores["r1"]
    notes = {
        part: (Path(store.directory(part)) / layout.WHOLE).exists() for part in (large, small)
    }
    assert notes == {large: True, small: False}


def test_links_that_come_and_go_make_nobody_read_the_bytes_again(
    replicas, monkeypatch, tmp_path
):
    """Of the part, nor of its clone, in this process or another: a snapshot, a replaced partition
    and its source share files.
    """
    settle()
    assert read(replicas) == list(VALUES)
    store, file = replicas.stores["r2"], data_file(replicas)
    [part] = store.parts()
    monkeypatch.setattr(LocalDisk, "chunks", lambda *_: pytest.fail("the bytes were hashed"))
    monkeypatch.setattr(part_store, "NOTED_BYTES_MIN", 0)
    target, read_s = PartName.parse(f"{part}_1"), store.verified_s(part)
    store.publish(clone(store, part, "mutate", str(part)), target)
    link = tmp_path / "link"
    link.hardlink_to(file)
    for _ in range(2):
        for one in (part, target):
            store.verify_changed(one)
            assert store.verified_s(one) == read_s, "the scrub reads it when it is due"
        link.unlink(missing_ok=True)
    assert store.remove(part)
    store.verify_changed(target)
    another_process = PartStore(LocalDisk(store.disk.root), ids=CountedIds())
    another_process.verify_changed(target)


def test_a_write_beside_a_new_link_is_seen(replicas, monkeypatch):
    """Before the part is cloned, and after it: its clone has the same bytes."""
    monkeypatch.setattr(part_store, "NOTED_BYTES_MIN", 0)
    settle()
    assert read(replicas) == list(VALUES)
    store, file = replicas.stores["r2"], data_file(replicas)
    [part] = store.parts()
    target = PartName.parse(f"{part}_1")
    store.publish(clone(store, part, "mutate", str(part)), target)
    flip(file, 40)
    for one in (part, target):
        with pytest.raises(Corruption):
            store.verify_changed(one)
    target = PartName.parse(f"{part}_2")
    store.publish(clone(store, part, "mutate", str(part)), target)
    with pytest.raises(Corruption):
        store.verify_changed(target)


def test_a_file_that_pretends_to_be_old_is_read_again(replicas):
    settle()
    assert read(replicas) == list(VALUES)
    file = data_file(replicas)
    before = file.stat()
    flip(file, 40)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(Corruption):
        read(replicas)


def test_a_change_right_after_the_file_was_written_is_seen(replicas):
    """A time of change of the same tick shows nothing, so no note is made of it."""
    part = replicas.insert("r2", 1000, 1001)
    directory = Path(replicas.stores["r2"].directory(part))
    flip(directory / "data-00000.parquet", 40)
    with pytest.raises(Corruption):
        read(replicas)


def test_what_was_read_of_a_clone_is_not_believed_of_its_files(replicas, monkeypatch):
    """A hard link has the bytes of its source, whether they are right or not."""
    monkeypatch.setattr(part_store, "NOTED_BYTES_MIN", 0)
    store = replicas.stores["r2"]
    [part] = store.parts()
    flip(data_file(replicas), 40)
    settle()
    staged = clone(store, part, "mutate", str(part))
    target = PartName.parse(f"{part}_1")
    store.publish(staged, target)
    with pytest.raises(Corruption):
        store.verify_changed(target)


# --- SQL ---


@pytest.fixture
def session(tmp_path) -> Iterator[Session]:
    """Of a server whose table no other has."""
    with session_with_numbers(tmp_path) as opened:
        opened.execute("INSERT INTO t SELECT number FROM system.numbers LIMIT 200000")
        opened.execute("SET broken_parts_wait_ms = 0")
        yield opened


def file_of(session: Session) -> Path:
    store = session.context.server.table("t").store
    [part] = store.parts()
    return Path(store.directory(part)) / layout.data_file(0)


@pytest.mark.parametrize("query", ["SELECT sum(n) FROM t", "SELECT count() FROM t"])
@pytest.mark.parametrize("at", [0.3, 0.99])
def test_a_query_fails_and_names_part_and_remedy(session, query, at):
    file = file_of(session)
    flip(file, int(file.stat().st_size * at))
    for _ in range(2):
        with pytest.raises(Corruption, match=r"all_0_0_0.*fetched again"):
            rows(session, query)
    [(left,)] = rows(session, f"{query} SETTINGS skip_broken_parts = 1")
    assert left == 0


def test_a_byte_that_changes_while_it_is_read_is_told_at_the_end(session):
    settle()
    answer = session.execute("SELECT n FROM t")
    batches = iter(answer.batches)
    next(batches)
    flip(file_of(session), 400)
    with pytest.raises((Corruption, pa.ArrowException), match="all_0_0_0"):
        list(batches)


def test_who_does_not_want_it_is_not_kept_from_reading(session):
    settle()
    file = file_of(session)
    flip(file, file.stat().st_size - 6)  # in the length of the footer: DuckDB can't read it
    with pytest.raises(Exception, match="data-00000") as failed:
        rows(session, "SELECT sum(n) FROM t SETTINGS check_parts_before_reading = 0")
    assert not isinstance(failed.value, Corruption)
    assert session.context.server.table("t").store.marks.given_up() == []


def lost_by_itself(session: Session, table: str, at: int) -> PartName:
    """Break a file of the table's newest part, as a disk does: no time of change tells. DuckDB
    names the file if it can't decompress it, but not if it can't read its header, at 4.
    """
    store = session.context.server.table(table).store
    part = max(store.parts())
    file = Path(store.directory(part)) / "data-00000.parquet"
    data = bytearray(file.read_bytes())
    at %= len(data)
    data[at : at + 56] = bytes(len(data[at : at + 56]))
    file.write_bytes(data)
    settle()
    store.whole.learn(str(part), store.whole.note_now(str(part), store.manifest(part)))
    return part


def read_again(monkeypatch) -> list[tuple[PartStore, PartName]]:
    """The parts that are read completely from now on, although they are known to be whole."""
    found: list[tuple[PartStore, PartName]] = []
    right = PartStore.verify_again

    def verify_again(store: PartStore, part: PartName, *more: Any) -> Any:
        found.append((store, part))
        return right(store, part, *more)

    monkeypatch.setattr(PartStore, "verify_again", verify_again)
    return found


@pytest.mark.parametrize("at", [4, 500, -200, -6])
def test_what_a_disk_lost_by_itself_is_healed_when_a_query_stumbles_over_it(tmp_path, at):
    with session_with_numbers(tmp_path) as session:
        for count in (10, 1000):
            session.execute(f"INSERT INTO t SELECT number FROM numbers({count})")
        part = lost_by_itself(session, "t", at)
        with pytest.raises(Corruption, match=f"{part}.*fetched again"):
            rows(session, "SELECT sum(n) FROM t")
        assert session.context.server.table("t").store.marks.given_up() == [part]


def test_what_a_disk_lost_by_itself_is_healed_when_a_plan_is_asked_for(tmp_path):
    with session_with_numbers(tmp_path) as session:
        session.execute("INSERT INTO t SELECT number FROM numbers(1000)")
        part = lost_by_itself(session, "t", -200)
        with pytest.raises(Corruption, match=f"{part}.*fetched again"):
            rows(session, "EXPLAIN SELECT sum(n) FROM t")


@pytest.mark.parametrize(
    "failing",
    [
        "throwIf(n > 5, 'the data is corrupt')",
        "throwIf(n > 5, 'Failed to read file \"data.parquet\"')",
        "toDate('parquet')",
    ],
)
def test_an_error_of_the_query_itself_has_no_part_read_again(tmp_path, monkeypatch, failing):
    """It would read the whole table each time that a query fails, whatever it says."""
    with session_with_numbers(tmp_path) as session:
        session.execute("INSERT INTO t SELECT number FROM numbers(1000)")
        found = read_again(monkeypatch)
        with pytest.raises(RmtError):
            rows(session, f"SELECT {failing} FROM t")
        assert not found


def test_a_table_that_is_only_joined_with_a_broken_one_is_not_read_again(tmp_path, monkeypatch):
    with session_with_numbers(tmp_path) as session:
        create(session, NUMBERS.replace("TABLE t", "TABLE other").replace("/t'", "/other'"))
        session.execute("INSERT INTO t SELECT number FROM numbers(10)")
        session.execute("INSERT INTO t SELECT number FROM numbers(20)")
        for count in (10, 20, 1000):  # so the part's name is not one of the other table
            session.execute(f"INSERT INTO other SELECT number FROM numbers({count})")
        part = lost_by_itself(session, "other", 500)
        found = read_again(monkeypatch)
        with pytest.raises(Corruption, match=f"{part}.*fetched again"):
            rows(session, "SELECT sum(n) FROM t WHERE n IN (SELECT n FROM other)")
        assert {one for _, one in found} == {part}
        assert session.context.server.table("other").store.marks.given_up() == [part]
