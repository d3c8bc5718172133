"""ATTACH PARTITION and PART, DROP DETACHED, on two replicas step by step (spec §9.5, §16.5)."""

import errno
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import Mock

import pytest

from rmt_pipeline.protocol.errors import (
    Corruption,
    OutcomeUnknown,
    ReplicaDropped,
    ReplicaRetired,
    Unfinished,
    YetToDrop,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.insert import insert
from rmt_pipeline.replica.life.drop import drop_replica
from rmt_pipeline.replica.partitions import attach
from rmt_pipeline.replica.partitions.attach import BadDetachedPart
from rmt_pipeline.replica.partitions.detached import detached_directories, why_kept
from rmt_pipeline.replica.replica import Memory
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.store.detached import DetachedParts
from rmt_pipeline.store.dropped import DroppedRanges
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.zookeeper.keeper import Delete, Refused
from rmt_pipeline.zookeeper.paths import TablePaths
from tests.support.hosts import Died
from tests.support.local_replicas import ROOT, Replicas, partitioned
from tests.support.lost_answers import allocates, before, faulty, logs
from tests.support.partitioned import clean_up, merge, rows

NOW = QuerySettings(alter_sync=0)


@pytest.fixture
def replicas(tmp_path) -> Iterator[Replicas]:
    """Partition 1 in two parts, detached on both replicas; partition 2 is there."""
    with Replicas(tmp_path, define=partitioned) as opened:
        for n in range(2):
            opened.table("r1").insert([{"p": 1, "n": n}])
        opened.table("r1").insert([{"p": 2, "n": 7}])
        opened.work_off()
        opened.table("r1").drop_partitions(["1"], detach=True, settings=NOW)
        opened.work_off()
        yield opened


ALL = [(1, 0), (1, 1), (2, 7)]


def test_what_was_detached_comes_back_under_new_numbers(replicas):
    attached = replicas.table("r1").attach("1")
    assert [str(part) for part in attached.parts] == ["1_3_3_0", "1_4_4_0"]
    done = replicas.work_off()
    assert rows(replicas, "r1") == rows(replicas, "r2") == ALL
    assert {one.kind for one in done} == {"ATTACH_PART"}  # r2 had copies of its own
    assert replicas.stores["r1"].detached() == replicas.stores["r2"].detached() == []


def test_each_copy_is_read_once_to_choose_and_once_whole(replicas, monkeypatch):
    """However many entries there are: with hundreds of both, each for each would take a minute."""
    replicas.table("r1").attach("1")
    reads, read = [], DetachedParts.manifest

    def seen(detached, name):
        reads.append(str(name).removeprefix("attaching_"))
        return read(detached, name)

    monkeypatch.setattr(DetachedParts, "manifest", seen)
    replicas.work_off("r2")
    assert sorted(reads) == 2 * ["1_0_0_0"] + 2 * ["1_1_1_0"]


def test_a_copy_that_is_not_the_same_is_not_used(replicas):
    """D9. One byte is another one: the part is fetched, and the copy stays for people."""
    store = replicas.stores["r2"]
    manifest = store.detached_parts.manifest(store.detached_parts.names()[0])
    path = f"detached/1_0_0_0/{manifest.files[0].name}"
    data = bytearray(store.disk.read(path))
    data[len(data) // 2] ^= 1
    store.disk.write(path, [bytes(data)])
    replicas.table("r1").attach("1")
    replicas.work_off()
    replicas.clock.passed_s += 100
    replicas.work_off()
    assert rows(replicas, "r1") == rows(replicas, "r2") == ALL
    assert store.detached() == ["1_0_0_0"]


def test_a_part_that_two_replicas_attach_at_once_is_attached_once(replicas):
    """D8."""
    first, second = (replicas.table(name).attach("1") for name in ("r1", "r2"))
    assert len(first.parts) == 2
    assert second.parts == ()
    assert "in the table already" in second.words()
    replicas.work_off()
    assert rows(replicas, "r1") == rows(replicas, "r2") == ALL


def test_a_part_that_is_detached_again_can_be_attached_again(replicas):
    for _ in range(2):
        assert len(replicas.table("r1").attach("1").parts) == 2
        replicas.work_off()
        replicas.table("r2").drop_partitions(["1"], detach=True, settings=NOW)
        replicas.work_off()
    assert rows(replicas, "r1") == [(2, 7)]


def test_an_attach_without_an_answer_attaches_once(replicas):
    with faulty(replicas["r1"].keeper, logs, landed=True):
        assert len(replicas.table("r1").attach("1").parts) == 2
    replicas.work_off()
    assert rows(replicas, "r1") == rows(replicas, "r2") == ALL


def test_what_is_still_read_can_be_attached(tmp_path):
    """1. A SELECT has a part pinned. 2. It is detached. 3. ATTACH said that somebody else was
    attaching it, and attached nothing, as long as the SELECT went on.
    """
    with Replicas(tmp_path, define=partitioned) as replicas:
        table = replicas.table("r1")
        table.insert([{"p": 1, "n": 0}])
        with table.snapshot():
            table.drop_partitions(["1"], detach=True, settings=NOW)
            replicas.work_off()
            assert len(table.attach("1", settings=NOW).parts) == 1
        assert rows(replicas, "r1") == [(1, 0)]


def test_what_is_being_removed_as_a_part_can_be_attached(replicas):
    """A detached part is hard links to the files of the part that it was, which a clean-up locks
    while it removes them.
    """
    store = replicas.stores["r1"]
    locks = [
        store.disk.lock(f"detached/{one}/part.json", shared=False) for one in store.detached()
    ]
    assert None not in locks
    assert len(replicas.table("r1").attach("1", settings=NOW).parts) == 2


def test_what_is_being_attached_is_not_taken_for_what_died(replicas):
    detached = replicas.stores["r1"].detached_parts
    mine, lock = detached.take(detached.names()[0])
    assert list(detached.died()) == []
    lock.release()  # as the kernel does, of who dies
    assert list(detached.died()) == [mine]


def test_a_disk_that_can_not_remove_what_was_attached_leaves_that_to_the_clean_up(
    replicas, monkeypatch
):
    """The parts are in the table: who attached them is told so."""
    with monkeypatch.context() as broken:
        error = OSError(errno.EIO, "Input/output error")
        broken.setattr(DetachedParts, "remove", Mock(side_effect=error))
        assert len(replicas.table("r1").attach("1", settings=NOW).parts) == 2
    assert replicas.stores["r1"].detached() == ["attaching_1_0_0_0", "attaching_1_1_1_0"]
    carry_out(replicas["r1"], plan_clean_up(replicas["r1"]))
    assert replicas.stores["r1"].detached() == []
    assert rows(replicas) == ALL


def test_rows_that_were_dropped_since_do_not_come_back_with_what_died(replicas, monkeypatch):
    """1. ATTACH commits, and dies. 2. A clean-up. 3. DROP, and the ids of the blocks are gone.
    4. The next ATTACH took up what was left, and the rows were there again.
    """
    table = replicas.table("r1")
    with monkeypatch.context() as dying:
        dying.setattr(DetachedParts, "remove", Mock(side_effect=Died))
        with pytest.raises(Died):
            table.attach("1", settings=NOW)
    assert replicas.stores["r1"].detached() == ["attaching_1_0_0_0", "attaching_1_1_1_0"]
    replicas.work_off()
    assert rows(replicas) == ALL
    clean_up(replicas)
    table.drop_partitions(["1"], settings=NOW)
    replicas.work_off()
    assert table.attach("1", settings=NOW).parts == ()
    assert rows(replicas) == [(2, 7)]


def test_nor_with_what_another_replica_had_a_copy_of_and_died(replicas, monkeypatch):
    """1. r1 attaches. 2. r2 makes its parts of copies of its own, and dies before it removes these.
    3. The partition is detached once more, and attached on r2: the old copies have no id any more.
    """
    replicas.table("r1").attach("1", settings=NOW)
    with monkeypatch.context() as dying:
        dying.setattr(DetachedParts, "remove", Mock(side_effect=Died))
        with pytest.raises(Died):
            replicas.work_off("r2")
    replicas.work_off()
    clean_up(replicas)
    replicas.table("r1").drop_partitions(["1"], detach=True, settings=NOW)
    replicas.work_off()
    assert len(replicas.table("r2").attach("1", settings=NOW).parts) == 2
    replicas.work_off()
    assert rows(replicas, "r1") == rows(replicas, "r2") == ALL


@pytest.mark.parametrize("fails", ["remove", "manifest", "died"])
def test_a_disk_that_fails_at_what_died_stops_nothing_else_and_keeps_the_ids(
    replicas, monkeypatch, fails
):
    """The ids of the attached blocks have left the window. But as long as the disk can't remove
    what was attached, they alone tell that it was: without them the next ATTACH brought the rows
    once more.
    """
    table = replicas.table("r1")
    with monkeypatch.context() as dying:
        dying.setattr(DetachedParts, "remove", Mock(side_effect=Died))
        with pytest.raises(Died):
            table.attach("1", settings=NOW)
    merge(replicas)  # so that no file tells either
    replicas.set(replicated_deduplication_window=1)
    table.insert([{"p": 3, "n": 9}])
    error = OSError(errno.EIO, "Input/output error")
    if fails == "manifest":
        error = Corruption(f"can't be read: {error}")
    with monkeypatch.context() as broken:
        broken.setattr(DetachedParts, fails, Mock(side_effect=error))
        replicas.clock.passed_s += 10_000
        cleaned = carry_out(replicas["r1"], plan_clean_up(replicas["r1"]))
    assert ("Input/output error" in cleaned.stopped_because) == (fails != "manifest")
    assert cleaned.parts, "old parts are removed all the same"
    assert (cleaned.block_ids > 0) == (fails != "died")
    assert table.attach("1", settings=NOW).parts == ()
    replicas.work_off()
    assert rows(replicas) == [*ALL, (3, 9)]


@pytest.mark.parametrize(
    "fails", [(PartStore, "remove_all"), (PartStore, "sweep"), (DroppedRanges, "ranges")]
)
def test_no_step_of_a_clean_up_stops_the_others(replicas, monkeypatch, fails):
    replicas.table("r1").attach("1", settings=NOW)
    merge(replicas)
    replicas.clock.passed_s += 10_000
    replica = replicas["r1"]
    stray = replica.store.begin("insert", "1").directory
    os.utime(replica.store.disk.local_path(stray), (1, 1))
    plan = plan_clean_up(replica)
    assert plan.parts.remove
    error = OSError(errno.EIO, "Input/output error")
    with monkeypatch.context() as broken:
        broken.setattr(*fails, Mock(side_effect=error))
        cleaned = carry_out(replica, plan)
    assert "Input/output error" in cleaned.stopped_because
    assert (cleaned.directories == (stray,)) == (fails[1] != "sweep")
    clean_up(replicas)
    assert replica.store.staged() == []
    assert all(part.level for part in replica.store.parts() if part.partition == "1")


@pytest.mark.parametrize("is_gone", [False, True], ids=["", "merged"])
@pytest.mark.parametrize("part", ["", "1_1_1_0"])
@pytest.mark.parametrize("deduplicate", [False, True])
def test_an_attach_that_died_behind_its_commit_and_is_said_again_attaches_once(
    replicas, monkeypatch, *, deduplicate: bool, part: str, is_gone: bool
):
    """Nor does it matter what became of the part since."""
    table, settings = replicas.table("r1"), replace(NOW, insert_deduplicate=deduplicate)
    what = {"part": PartName.parse(part)} if part else {"partition": "1"}
    with monkeypatch.context() as dying:
        dying.setattr(DetachedParts, "remove", Mock(side_effect=Died))
        with pytest.raises(Died):
            table.attach(**what, settings=settings)
    if is_gone:
        merge(replicas)
        for old in [
            one for one in table.store.parts() if one.partition == "1" and not one.level
        ]:
            table.store.remove(old)
            replicas["r1"].keeper.multi([Delete(replicas["r1"].paths.part(old))])
    for _ in range(2):
        replicas.work_off()
    again = table.attach(**what, settings=settings)
    assert (again.parts, {partition for partition, _ in again.already}) == ((), {"1"})
    replicas.work_off()
    assert rows(replicas) == (ALL if not part else [(1, 1), (2, 7)])


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("deduplicate", [False, True])
def test_an_attach_without_an_answer_that_is_said_again_attaches_once(
    replicas, *, deduplicate: bool, landed: bool
):
    """Whether its commit landed or not."""
    table, settings = replicas.table("r1"), replace(NOW, insert_deduplicate=deduplicate)
    with (
        faulty(replicas["r1"].keeper, logs, landed=landed),
        pytest.raises(OutcomeUnknown, match="Repeat the ATTACH: nothing is attached twice"),
    ):
        table.attach("1", settings=replace(settings, insert_keeper_max_retries=0))
    again = table.attach("1", settings=settings)
    assert (len(again.parts), len(again.already)) == ((0, 2) if landed else (2, 0))
    replicas.work_off()
    assert rows(replicas, "r1") == rows(replicas, "r2") == ALL
    assert replicas.stores["r1"].detached() == []


@pytest.mark.parametrize("deduplicate", [False, True])
def test_a_commit_that_arrives_after_its_process_has_died_is_not_beside_what_is_said_again(
    replicas, monkeypatch, *, deduplicate: bool
):
    """Its session has not ended: the locks of its numbers are still there."""
    first, settings, late = replicas["r1"], replace(NOW, insert_deduplicate=deduplicate), []
    multi = first.keeper.multi

    def dies(ops):
        if any(map(logs, ops)):
            late.append(ops)
            raise Died
        return multi(ops)

    with monkeypatch.context() as dying:
        dying.setattr(first.keeper, "multi", dies)
        with pytest.raises(Died):
            replicas.table("r1").attach("1", settings=settings)

    def arrives():
        with pytest.raises(Refused):
            replicas.zookeeper.commit(first.keeper.session_id, late.pop())

    second = replace(first, keeper=replicas.zookeeper.connect(), memory=Memory())
    replicas._replicas["r1"] = second
    with before(second.keeper, allocates, arrives):
        assert len(replicas.table("r1").attach("1", settings=settings).parts) == 2
    assert late == []
    replicas.work_off()
    assert rows(replicas, "r1") == rows(replicas, "r2") == ALL


def test_an_attach_that_died_behind_its_commit_is_found_by_who_sees_zookeeper_late(
    replicas, monkeypatch
):
    """The next process reads from a server of ZooKeeper that has yet to hear of the commit."""
    first, settings = replicas["r1"], replace(NOW, insert_deduplicate=False)
    second = replace(
        first, keeper=replicas.zookeeper.connect(lag=lambda behind: behind), memory=Memory()
    )
    with monkeypatch.context() as dying:
        dying.setattr(DetachedParts, "remove", Mock(side_effect=Died))
        with pytest.raises(Died):
            replicas.table("r1").attach("1", settings=settings)
    replicas._replicas["r1"] = second
    assert len(replicas.table("r1").attach("1", settings=settings).already) == 2
    replicas.work_off()
    assert rows(replicas, "r1") == rows(replicas, "r2") == ALL


@pytest.mark.parametrize("together", [2, 3, 4, 5, 6])
def test_whoever_dies_between_two_commits_has_attached_whole_partitions(
    replicas, monkeypatch, together
):
    """Of each partition that fits into one commit. The next ATTACH brings the others."""
    monkeypatch.setattr("rmt_pipeline.replica.partitions.attach.TOGETHER_MAX", together)
    table = replicas.table("r1")
    for p in (2, 3):
        for n in range(2):
            table.insert([{"p": p, "n": n}])
        table.drop_partitions([str(p)], detach=True, settings=NOW)
    replicas.work_off()
    everything = {1: 2, 2: 3, 3: 2}  # the parts of each partition
    whole = {p: count for p, count in everything.items() if count <= together}
    found = Counter[int]()
    while found != everything:
        before = found.total()
        died = faulty(replicas["r1"].session, logs, landed=True, error=Died())
        with died, pytest.raises(Died):
            table.attach(None, settings=NOW)
        found = Counter(p for p, _ in rows(replicas))
        assert found.total() > before
        assert all(found[p] in (0, count) for p, count in whole.items()), found
    replicas.work_off()
    assert table.attach(None, settings=NOW).parts == ()
    assert Counter(p for p, _ in rows(replicas)) == everything


def test_what_an_earlier_build_attached_without_an_id_is_known_by_its_files(
    replicas, monkeypatch
):
    """However new they are."""
    table, settings = replicas.table("r1"), replace(NOW, insert_deduplicate=False)
    with monkeypatch.context() as dying:
        dying.setattr(DetachedParts, "remove", Mock(side_effect=Died))
        dying.setattr(attach, "attach_block_id", lambda *_: "")
        with pytest.raises(Died):
            table.attach("1", settings=settings)
    assert len(table.attach("1", settings=settings).already) == 2
    replicas.work_off()
    assert rows(replicas, "r1") == rows(replicas, "r2") == ALL


def test_who_is_stopped_by_a_drop_between_two_commits_is_told_what_is_in(replicas, monkeypatch):
    """Not that nothing was changed."""
    monkeypatch.setattr("rmt_pipeline.replica.partitions.attach.TOGETHER_MAX", 1)
    first, second, commit = replicas.table("r1"), replicas.table("r2"), attach._commit

    def then_dropped(*given):
        result = commit(*given)
        second.drop_partitions(["1"], settings=NOW)
        return result

    with monkeypatch.context() as patched:
        patched.setattr(attach, "_commit", then_dropped)
        with pytest.raises(YetToDrop) as stopped:
            first.attach("1", settings=NOW)
    words = str(stopped.value)
    assert words.startswith("1 of the 2 parts of this ATTACH are in the table, as 1_3_3_0. ")
    assert "has yet to carry out" in words
    assert words.endswith("Repeat the ATTACH for them: none comes twice")
    replicas.work_off()
    assert len(first.attach("1", settings=NOW).parts) == 1
    replicas.work_off()
    assert rows(replicas) == [(1, 1), (2, 7)]


def test_a_replica_that_is_dropped_once_its_parts_have_their_names_has_attached_nothing(
    replicas, monkeypatch
):
    """It ends with that, at once; and what was detached can be attached again."""
    look = insert.nothing_to_drop

    def dropped(replica, partitions):
        drop_replica(replicas.zookeeper.connect(), replica.table, replica.name)
        return look(replica, partitions)

    with monkeypatch.context() as patched:
        patched.setattr(insert, "nothing_to_drop", dropped)
        with pytest.raises(ReplicaDropped):
            replicas.table("r1").attach("1", settings=NOW)
    assert replicas.clock.passed_s < 1.0, "it was tried for long"
    assert replicas.stores["r1"].detached() == ["1_0_0_0", "1_1_1_0"]


def test_one_part_is_attached_by_its_name(replicas):
    [part] = replicas.table("r1").attach(part=PartName.parse("1_1_1_0")).parts
    replicas.work_off()
    assert rows(replicas, "r1") == rows(replicas, "r2") == [(1, 1), (2, 7)]
    assert replicas.stores["r1"].detached() == ["1_0_0_0"]
    with pytest.raises(BadDetachedPart, match="no detached part 1_1_1_0"):
        replicas.table("r1").attach(part=PartName.parse("1_1_1_0"))
    assert str(part) == "1_3_3_0"


def test_what_is_covered_is_set_aside_and_what_overlaps_is_left_alone(replicas):
    """D8: X, broken_X, Y inside X, and Z across its border."""
    disk = replicas.stores["r1"].disk
    for name in ("1_0_4_1", "broken_1_0_4_1", "1_4_6_1"):
        disk.make_directory(f"detached/{name}")
        for file in disk.list("detached/1_0_0_0"):
            disk.link_from(disk, f"detached/1_0_0_0/{file}", f"detached/{name}/{file}")
    attached = replicas.table("r1").attach("1")
    assert len(attached.parts) == 1
    assert sorted(attached.inactive) == ["1_0_0_0", "1_1_1_0"]
    assert attached.skipped[0][0] == "1_4_6_1"
    assert "overlaps 1_0_4_1" in attached.words()
    assert replicas.stores["r1"].detached() == [
        "1_4_6_1",
        "broken_1_0_4_1",
        "inactive_1_0_0_0",
        "inactive_1_1_1_0",
    ]


def test_a_damaged_part_stays_where_it_is_and_nothing_is_attached(replicas):
    store = replicas.stores["r1"]
    manifest = store.detached_parts.manifest(store.detached_parts.names()[1])
    store.disk.write(f"detached/1_1_1_0/{manifest.files[0].name}", [b"short"])
    with pytest.raises(
        BadDetachedPart, match=r"1_1_1_0 is damaged and stays where it is: .* bytes"
    ):
        replicas.table("r1").attach("1")
    assert store.detached() == ["1_0_0_0", "1_1_1_0"]
    assert store.staged() == []
    assert rows(replicas, "r1") == [(2, 7)]


def test_what_is_detached_is_removed_for_good_when_that_is_said(replicas):
    table = replicas.table("r1")
    assert table.drop_detached(name="1_0_0_0") == ("1_0_0_0",)
    with pytest.raises(BadDetachedPart, match=r"name '\.\./1_0_0_0'"):
        table.drop_detached(name="../1_0_0_0")
    assert table.drop_detached("2") == ()
    assert table.drop_detached() == ("1_1_1_0",)
    assert replicas.stores["r1"].detached() == []
    assert replicas.stores["r2"].detached() == ["1_0_0_0", "1_1_1_0"]


def test_it_is_told_which_directories_may_go(replicas):
    store = replicas.stores["r1"]
    store.detach_copy(PartName.parse("2_0_0_0"), "broken")
    names = store.detached_parts.names()
    told = {str(name): kept for name, kept in why_kept(replicas["r1"], names)}
    assert [told[name].is_safe for name in ("1_0_0_0", "broken_2_0_0_0")] == [False, True]
    assert "ATTACH" in told["1_0_0_0"].why
    assert "2_0_0_0, which is here and promised" in told["broken_2_0_0_0"].why


def test_a_directory_that_goes_while_it_is_looked_at_is_not_told(replicas, monkeypatch):
    read = DetachedParts.manifest

    def goes(detached, name):
        found = read(detached, name)
        if str(name) == "1_0_0_0":
            monkeypatch.undo()
            replicas.table("r1").drop_detached(name="1_0_0_0")
        return found

    monkeypatch.setattr(DetachedParts, "manifest", goes)
    told = detached_directories(replicas["r1"])
    assert [(one.directory, one.rows) for one in told] == [("1_1_1_0", 1)]


def test_rows_of_a_part_that_is_covered_prove_nothing(replicas):
    """What covers it may have fewer of them: it was merged, mutated or dropped."""
    replicas.table("r1").attach("1")
    replicas.work_off()
    disk = replicas.stores["r1"].disk
    disk.make_directory("detached/1_3_3_0")
    for file in disk.list("1_3_3_0"):
        disk.link_from(disk, f"1_3_3_0/{file}", f"detached/1_3_3_0/{file}")
    names = replicas.stores["r1"].detached_parts.names()
    [(_, before)] = why_kept(replicas["r1"], names)
    merge(replicas)
    assert replicas.stores["r1"].has(PartName.parse("1_3_3_0"))
    [(_, covered)] = why_kept(replicas["r1"], names)
    assert (before.is_safe, covered.is_safe) == (True, False)


@pytest.mark.parametrize(
    ("alter_sync", "waits"), [(0, False), (1, False), (2, True), (3, True)]
)
def test_other_replicas_are_waited_for_as_alter_sync_says(replicas, alter_sync, waits):
    replicas.table("r1").drop_partitions(
        ["1"], detach=True, settings=QuerySettings(alter_sync=0)
    )
    replicas.work_off()
    query = QuerySettings(alter_sync=alter_sync, receive_timeout=0)
    if waits:
        with pytest.raises(Unfinished, match="have not done it yet: r2"):
            replicas.table("r1").attach("1", settings=query)
    else:
        replicas.table("r1").attach("1", settings=query)
    before = rows(replicas, "r1")
    replicas.work_off()
    assert rows(replicas, "r2") == before
    assert (
        replicas.table("r1").attach("1", settings=query).parts == ()
    )  # nothing is attached twice


def test_a_removal_whose_process_died_is_finished_by_a_clean_up(replicas, monkeypatch):
    """DROP DETACHED left it, however often it was said."""
    replica, store = replicas["r1"], replicas.stores["r1"]
    with monkeypatch.context() as dying:
        dying.setattr(type(store.disk), "remove_tree", Mock(side_effect=Died))
        with pytest.raises(Died):
            attach.drop_detached(replica, "1", None)
    assert store.detached() == ["1_1_1_0", "deleting_1_0_0_0"]
    begun = store.detached_parts.modified_s("deleting_1_0_0_0")
    replica.clock.passed_s += begun - replica.clock.now_s() + 3600.0
    carry_out(replica, plan_clean_up(replica))
    assert store.detached() == ["1_1_1_0", "deleting_1_0_0_0"]  # it may be under way
    replica.clock.passed_s += 100_000.0
    cleaned = carry_out(replica, plan_clean_up(replica))
    assert cleaned.directories == ("deleting_1_0_0_0",)
    assert store.detached() == ["1_1_1_0"]


def test_what_others_have_yet_to_do_besides_is_not_waited_for(replicas):
    """r2 gets what was attached, and can't get what was inserted before."""
    [part] = replicas.table("r1").insert([{"p": 3, "n": 1}]).parts
    replicas.step("r1", "fetch")
    shutil.rmtree(replicas.stores["r1"].directory(part))
    replicas.meanwhile.append(lambda: replicas.step("r2", "fetch"))
    query = QuerySettings(alter_sync=2, receive_timeout=5)
    assert len(replicas.table("r1").attach("1", settings=query).parts) == 2
    assert set(replicas.parts("r2")) >= {"1_3_3_0", "1_4_4_0"}
    assert str(part) not in replicas.parts("r2")


@pytest.mark.parametrize("what", ["the replica is dropped", "the session is over"])
def test_who_can_not_look_for_drops_any_more_is_told_that(replicas, what):
    """It looked for ever, as fast as it could."""
    if what == "the replica is dropped":
        drop_replica(replicas.zookeeper.connect(), TablePaths(ROOT), "r1")
    else:
        replicas.stop("r1")
    session, asked = replicas["r1"].session, [0]
    get_many = session.get_many

    def counted(paths):
        asked[0] += 1
        assert asked[0] < 50, "it never ends"
        return get_many(paths)

    session.get_many = counted
    with pytest.raises(ReplicaRetired):
        replicas.table("r1").attach("1")


def test_who_loses_his_session_while_he_waits_for_a_drop_waits_on_in_the_next_one(replicas):
    replicas.table("r1").insert([{"p": 1, "n": 9}])
    replicas.table("r1").drop_partitions(["1"], detach=True, settings=NOW)

    def another():
        replicas.stop("r1")
        replicas.come_back("r1")

    replicas.meanwhile = [another, lambda: replicas.work_off("r1")]
    assert len(replicas.table("r1").attach("1", settings=NOW).parts) == 3
    assert not replicas.meanwhile
