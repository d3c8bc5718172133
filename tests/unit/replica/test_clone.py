"""A replica that lost its place takes over another one's state, as it is at one moment."""

from collections.abc import Iterator

import pytest

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import DiskFull, MissingPart
from rmt_pipeline.protocol.log.codec import encode
from rmt_pipeline.protocol.log.entry import MergeParts
from rmt_pipeline.protocol.nodes.formats import ReplicaAddress
from rmt_pipeline.protocol.parts.name import PartName, merged
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica import readable
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.life import clone
from rmt_pipeline.replica.life.clone import ReplicaStatusChanged, clone_if_lost
from rmt_pipeline.replica.life.start import Started, start
from rmt_pipeline.replica.mutations.mutations import (
    finalize_mutations,
    load_mutations,
    status_of_mutations,
)
from rmt_pipeline.replica.pull_log import LogTrimmed, pull_log
from rmt_pipeline.replica.upkeep.check import refetch
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.store.staging import Staging
from rmt_pipeline.zookeeper.keeper import Create, Delete, SetData
from tests.support.local_replicas import Replicas, by_tens
from tests.support.lost_answers import before

NOW = QuerySettings(alter_sync=0)
ADDRESS = ReplicaAddress("r2", 9009, 9000, "default", "t")


@pytest.fixture
def replicas(tmp_path) -> Iterator[Replicas]:
    with Replicas(tmp_path) as opened:
        for value in range(3):
            opened.insert("r1", value)
        opened.step("r1", "fetch")
        yield opened


def restarted(replicas: Replicas) -> Started:
    return start(replicas["r2"], identity="r2", incarnation="2", address=ADDRESS)


def remove_log(replicas: Replicas, *numbers: int) -> None:
    log = replicas["r1"].table.log
    replicas["r1"].keeper.multi([Delete(f"{log}/log-{number:010d}") for number in numbers])


def is_lost(replicas: Replicas, name: str = "r2") -> bytes:
    return replicas[name].keeper.get(replicas[name].paths.is_lost)[0]


@pytest.mark.parametrize("gone", [(1,), (2,), (1, 2), (0, 1, 2)])
def test_a_restart_clones_when_log_entries_are_gone(replicas, gone):
    """As the error says that the pull ends in."""
    replicas["r2"].keeper.multi([SetData(replicas["r2"].paths.log_pointer, b"1")])
    remove_log(replicas, *gone)
    replicas["r2"].memory.pointer = None
    with pytest.raises(LogTrimmed, match="Restart the replica's server: it clones"):
        pull_log(replicas["r2"])
    cloned = restarted(replicas).cloned
    assert cloned is not None
    assert cloned.fetches == 3
    while replicas.step("r2", "fetch").did_something:
        pass
    assert replicas.parts("r2") == replicas.parts("r1")


def test_who_died_while_it_cloned_starts_with_parts_that_zookeeper_does_not_know(replicas):
    """1. It is lost, and clones: what its source has is queued, and comes part by part.
    2. It dies when parts are on its disk that are not announced, and is away until it is lost anew.
    3. It starts: nothing explains these parts, and with them all rows, until it has cloned.
    """
    mine, theirs = replicas.stores["r2"], replicas.stores["r1"]
    optimize_partition(replicas["r1"], "all", final=True, skip_merged=False)
    replicas.work_off("r1")
    merged = PartName("all", 0, 2, 1)
    manifest, staging = theirs.verify(merged), mine.begin("fetch", str(merged))
    for file in manifest.files:
        staging.write(file.name, theirs.file_chunks(merged, file.name))
    mine.publish(staging.seal(manifest), merged)
    marked_lost(replicas)
    remove_log(replicas, 0, 1, 2, 3)
    replicas.clock.passed_s += 3600  # no insert is finding out any more what became of it

    cloned = restarted(replicas).cloned
    assert cloned is not None
    assert cloned.fetches == 1
    replicas.work_off("r2")
    assert replicas.parts("r2") == [str(merged)]
    assert mine.detached() == []


def test_a_queue_of_large_entries_is_taken_over_in_pieces_that_fit_into_a_packet(replicas):
    """Else ZooKeeper breaks the connection each time, and the replica is lost for good."""
    paths = replicas["r1"].paths
    for number in range(3):
        sources = tuple(PartName(f"p{number}", one, one, 0) for one in range(25_000))
        merge = MergeParts(sources, merged([*sources]), create_time=1, source_replica="r1")
        entry = encode(merge)
        assert limits.MULTI_BYTES_MAX // 2 < len(entry) < limits.MULTI_BYTES_MAX
        replicas["r1"].keeper.multi([Create(paths.queue_prefix, entry, sequence=True)])
    marked_lost(replicas)
    cloned = clone_if_lost(replicas["r2"])
    assert cloned is not None
    assert (cloned.fetches, cloned.entries) == (3, 3)
    assert len(replicas["r2"].keeper.children(replicas["r2"].paths.queue)) == 6


def test_a_restart_clones_nobody_when_the_log_is_whole(replicas):
    pull_log(replicas["r2"])
    remove_log(replicas, 0, 1)
    assert restarted(replicas).cloned is None
    assert is_lost(replicas) == b"0"


def test_what_is_left_of_a_dropped_replica_is_cloned_by_nobody(replicas):
    """Who dropped it died at it: there is its name, and nothing that it has."""
    left = replicas["r1"].table.replica("r0")
    replicas["r1"].keeper.multi([Create(left.root)])
    replicas["r2"].keeper.multi([SetData(replicas["r2"].paths.log_pointer, b"1")])
    remove_log(replicas, 1)
    cloned = restarted(replicas).cloned
    assert cloned is not None
    assert cloned.source == "r1"


def test_who_is_least_behind_is_cloned(tmp_path):
    with Replicas(tmp_path, ["r1", "r2", "r3"]) as three:
        for value in range(3):
            three.insert("r3", value)
        pull_log(three["r3"])
        marked_lost(three)
        cloned = clone_if_lost(three["r2"])
        assert cloned is not None
        assert cloned.source == "r3"


def test_who_is_lost_itself_is_cloned_by_nobody(tmp_path):
    """However little it is behind: it would never become whole from it."""
    with Replicas(tmp_path, ["r1", "r2", "r3"]) as three:
        three.insert("r3", 1)
        pull_log(three["r3"])
        marked_lost(three)
        three["r3"].keeper.multi([SetData(three["r3"].paths.is_lost, b"1")])
        cloned = clone_if_lost(three["r2"])
        assert cloned is not None
        assert cloned.source == "r1"


def test_what_no_replica_has_copied_is_told_and_can_be_gone_without(replicas):
    """The table would be lost whole otherwise."""
    for name in ("r1", "r2"):
        replicas[name].keeper.multi([SetData(replicas[name].paths.log_pointer, b"1")])
        replicas[name].memory.pointer = None
    remove_log(replicas, 1)
    assert restarted(replicas).cloned is None
    with pytest.raises(
        LogTrimmed, match=r"set /tables/t/replicas/r2/log_pointer to the number"
    ):
        pull_log(replicas["r2"])
    replicas["r2"].keeper.multi([SetData(replicas["r2"].paths.log_pointer, b"2")])
    assert pull_log(replicas["r2"]).pointer == 3


def marked_lost(replicas: Replicas) -> None:
    replicas["r2"].keeper.multi([SetData(replicas["r2"].paths.is_lost, b"1")])


def after(step: str, act, monkeypatch) -> None:
    right = getattr(clone, step)

    def wrapped(*args):
        found = right(*args)
        monkeypatch.setattr(clone, step, right)
        act()
        return found

    monkeypatch.setattr(clone, step, wrapped)


STEPS = ("_choose_source", "_copy_pointer", "_leave", "_metadata", "_fill_queue")


@pytest.mark.parametrize("step", STEPS)
def test_a_source_that_becomes_lost_meanwhile_is_not_taken_over(replicas, monkeypatch, step):
    """At whatever step: its queue and its parts are not what the log says any more."""
    marked_lost(replicas)
    lost = SetData(replicas["r1"].paths.is_lost, b"1")
    after(step, lambda: replicas["r1"].keeper.multi([lost]), monkeypatch)
    with pytest.raises(ReplicaStatusChanged, match="changed while it was being cloned"):
        clone_if_lost(replicas["r2"])
    assert is_lost(replicas) == b"1"


@pytest.mark.parametrize("step", STEPS)
def test_a_source_that_gives_up_a_part_meanwhile_is_cloned_anew(replicas, monkeypatch, step):
    """1. The queue is copied, without the part: the source has it. 2. The source gives it up and
    queues a fetch. 3. Its parts are listed: without that part. Nobody would fetch it here.
    """
    marked_lost(replicas)
    part = PartName.parse("all_1_1_0")

    def give_up() -> None:
        replicas.stores["r1"].remove(part)
        assert refetch(replicas["r1"], part) is not None

    after(step, give_up, monkeypatch)
    with pytest.raises(ReplicaStatusChanged):
        clone_if_lost(replicas["r2"])
    assert clone_if_lost(replicas["r2"]) is not None
    wanted = {str(one) for one in fetched_by(replicas)}
    assert wanted == {"all_0_0_0", "all_1_1_0", "all_2_2_0"}


def test_a_copy_stays_that_the_source_gives_up_while_it_is_cloned(replicas, monkeypatch):
    """1. r2 is lost, and has all parts. 2. r1's queue is copied. 3. r1 gives a part up. 4. Its
    parts are listed: that one is not known any more, and r2 has the last copy.
    """
    while replicas.step("r2", "fetch").did_something:
        pass
    marked_lost(replicas)
    part = PartName.parse("all_1_1_0")

    def give_up() -> None:
        replicas.stores["r1"].remove(part)
        assert refetch(replicas["r1"], part) is not None

    after("_copy_pointer", give_up, monkeypatch)
    with pytest.raises(ReplicaStatusChanged):
        clone_if_lost(replicas["r2"])
    assert clone_if_lost(replicas["r2"]) is not None
    replicas.work_off()
    for name in STARTED:
        rows = replicas.table(name).dataset().to_table()
        assert sorted(rows.column("n").to_pylist()) == [0, 1, 2]


def test_what_the_source_has_dropped_is_not_read_until_its_merge_comes(replicas):
    """r2 has not heard of the drop, nor of the merge across the gap that it has left."""
    while replicas.step("r2", "fetch").did_something:
        pass
    replicas.table("r1").drop_part(PartName.parse("all_1_1_0"), settings=NOW)
    replicas.step("r1", "fetch")
    optimize_partition(replicas["r1"], "all", final=True, skip_merged=False)
    replicas.step("r1")
    marked_lost(replicas)
    replicas.stores["r2"].remove(PartName.parse("all_1_1_0"))  # a clone has died at that
    assert clone_if_lost(replicas["r2"]) is not None
    assert replicas.parts("r2") == []
    replicas.work_off()
    for name in STARTED:
        rows = replicas.table(name).dataset().to_table()
        assert sorted(rows.column("n").to_pylist()) == [0, 2]


def test_who_pulls_while_its_log_is_looked_at_is_not_marked_lost(replicas):
    """1. r2 has yet to copy an entry, which is gone. 2. Somebody sets its pointer behind it."""
    r2 = replicas["r2"]
    r2.keeper.multi([SetData(r2.paths.log_pointer, b"1")])
    remove_log(replicas, 1)
    multi, moved = r2.keeper.multi, SetData(r2.paths.log_pointer, b"2")
    with before(r2.keeper, lambda op: op.path == r2.paths.is_lost, lambda: multi([moved])):
        assert clone.mark_lost_if_log_is_gone(r2) == 1
    assert is_lost(replicas) == b"0"


def test_who_has_copied_what_is_gone_and_is_lost_himself_is_no_reason_to_be_lost(replicas):
    """Nobody could be cloned."""
    r1, r2 = replicas["r1"], replicas["r2"]
    r2.keeper.multi([SetData(r2.paths.log_pointer, b"1")])
    remove_log(replicas, 1)
    r1.keeper.multi([SetData(r1.paths.is_lost, b"1")])
    assert clone.mark_lost_if_log_is_gone(r2) == 1
    assert is_lost(replicas) == b"0"
    r1.keeper.multi([SetData(r1.paths.is_lost, b"0")])
    assert clone.mark_lost_if_log_is_gone(r2) == 1
    assert is_lost(replicas) == b"1"


def test_a_clone_has_finished_no_more_mutations_than_its_source(tmp_path, monkeypatch):
    """It had finished the later one of two, before it was lost: now it gets parts that this one has
    yet to change.
    """
    with Replicas(tmp_path, define=by_tens) as replicas:
        for value in (1, 11):
            replicas.insert("r1", value)
        replicas.work_off()
        for partition in "01":
            replicas.table("r1").mutate(
                f"DELETE IN PARTITION ID '{partition}' WHERE n < 20",
                settings={"mutations_sync": "0"},
            )
        r2 = replicas["r2"]
        assert assign_mutations(r2)
        with monkeypatch.context() as hidden:
            begin = r2.store.begin

            def no_room(kind: str, hint: str) -> Staging:
                if hint.startswith("0_"):
                    raise DiskFull("no room for what is made of the other part")
                return begin(kind, hint)

            hidden.setattr(r2.store, "begin", no_room)
            replicas.step("r2")
        assert finalize_mutations(r2, load_mutations(r2)) == ("0000000001",)
        r2.keeper.multi([SetData(r2.paths.is_lost, b"1")])
        assert clone_if_lost(r2) is not None
        done = [one.is_done for one in status_of_mutations(r2, load_mutations(r2))]
        assert done == [False, False]
        replicas.clock.passed_s += 1000
        replicas.work_off()
        done = [one.is_done for one in status_of_mutations(r2, load_mutations(r2))]
        assert done == [True, True]


def fetched_by(replicas: Replicas) -> list[PartName]:
    replica = replicas["r2"]
    nodes = replica.keeper.children(replica.paths.queue)
    reads = replica.keeper.get_many([replica.paths.queue_entry(node) for node in nodes])
    return [clone.decode(read[0], ctime_s=0).part for read in reads if read is not None]


def test_a_source_that_pulls_meanwhile_is_looked_at_again(replicas, monkeypatch):
    """1. Its pointer is read. 2. It pulls an entry. 3. Its queue is listed, with that entry. With
    the old pointer the entry would come a second time, out of the log.
    """
    marked_lost(replicas)
    source = replicas["r1"]
    children = type(source.keeper).children
    pulled: list[int] = []

    def asked(keeper, path, watch=None):
        if path == source.paths.queue and keeper is replicas["r2"].keeper and not pulled:
            pulled.append(1)
            replicas.insert("r1", 9)
            pull_log(source)
        return children(keeper, path, watch)

    monkeypatch.setattr(type(source.keeper), "children", asked)
    clone_if_lost(replicas["r2"])
    assert pulled
    pointers = [
        replicas[name].keeper.get(replicas[name].paths.log_pointer)[0] for name in STARTED
    ]
    assert pointers[0] == pointers[1] == b"4"


STARTED = ("r1", "r2")


def test_who_is_marked_lost_anew_while_it_clones_stays_lost(replicas, monkeypatch):
    marked_lost(replicas)
    after("_fill_queue", lambda: marked_lost(replicas), monkeypatch)
    with pytest.raises(ReplicaStatusChanged):
        clone_if_lost(replicas["r2"])
    assert is_lost(replicas) == b"1"


def test_a_replica_that_comes_back_while_it_is_to_be_marked_lost_is_not(replicas):
    """1. r2 is away and far behind: a clean-up plans to mark it. 2. It comes back. 3. The plan is
    carried out: its host has another version by now, so nothing is marked, nothing trimmed.
    """
    r2 = replicas["r2"]
    r2.keeper.multi([Delete(r2.paths.is_active), SetData(r2.paths.log_pointer, b"1")])
    replicas.set(min_replicated_logs_to_keep=0, max_replicated_logs_to_keep=1)
    plan = plan_clean_up(replicas["r1"])
    assert plan.log.mark_lost == ("r2",)
    restarted(replicas)
    cleaned = carry_out(replicas["r1"], plan)
    assert cleaned.marked_lost == ()
    assert cleaned.log_entries == 0
    assert "trimming the log stopped" in cleaned.words()
    assert is_lost(replicas) == b"0"
    assert pull_log(r2).pointer == 3


def test_a_replica_that_comes_back_after_it_was_marked_keeps_the_log(replicas):
    """It may be cloning by now, from a source whose pointer is behind what would be trimmed."""
    r2 = replicas["r2"]
    r2.keeper.multi([Delete(r2.paths.is_active), SetData(r2.paths.is_lost, b"1")])
    replicas.set(min_replicated_logs_to_keep=0, max_replicated_logs_to_keep=1)
    plan = plan_clean_up(replicas["r1"])
    assert plan.log.remove != ()
    restarted(replicas)
    cleaned = carry_out(replicas["r1"], plan)
    assert cleaned.log_entries == 0
    assert "trimming the log stopped" in cleaned.stopped_because


@pytest.mark.parametrize("is_merged", [False, True])
def test_what_only_a_lost_replica_has_stays_when_its_source_has_yet_to_hear_of_it(
    replicas, is_merged
):
    """1. r2 inserts, perhaps merges, and goes away; nobody else has pulled that. 2. It is marked
    lost: r1 is slow, and the log has grown. 3. It comes back and clones r1.
    """
    while replicas.step("r2", "fetch").did_something:
        pass
    part = replicas.insert("r2", 3)
    if is_merged:
        optimize_partition(replicas["r2"], "all", final=True, skip_merged=False)
        replicas.step("r2")
        replicas["r2"].keeper.multi([Delete(replicas["r2"].paths.part(part))])  # cleaned up
        part = PartName.parse("all_0_3_1")
    marked_lost(replicas)
    started = restarted(replicas)
    assert started.cloned is not None
    assert started.cloned.detached == ()
    for _ in range(3):
        for name in STARTED:
            replicas.step(name, "fetch")
            replicas.step(name)
    for name in STARTED:
        assert str(part) in replicas.parts(name)
        assert [one.manifest.rows for one in replicas.table(name).parts()].count(0) == 0
        assert sum(one.manifest.rows for one in replicas.table(name).parts()) == 4


def rows_seen(replicas: Replicas) -> list[int]:
    """By a reader of r2."""
    return sorted(replicas.table("r2").dataset().to_table().column("n").to_pylist())


@pytest.fixture
def merged_while_away(replicas) -> Replicas:
    """r2 has all rows, and is lost; meanwhile r1 has merged them, and added more."""
    replicas.work_off("r2")
    assert rows_seen(replicas) == [0, 1, 2]
    optimize_partition(replicas["r1"], "all", final=True, skip_merged=False)
    replicas.work_off("r1")
    replicas["r1"].keeper.multi(  # cleaned up
        [Delete(replicas["r1"].paths.part(PartName("all", n, n, 0))) for n in range(3)]
    )
    marked_lost(replicas)
    return replicas


def test_a_reader_waits_for_what_a_clone_has_left_until_its_merge_is_here(merged_while_away):
    """r2 showed these rows before."""
    assert clone_if_lost(merged_while_away["r2"]) is not None
    assert merged_while_away.parts("r2") == []
    with pytest.raises(MissingPart, match=r"all_0_0_0 \(and 2 more\) .* is fetched again"):
        rows_seen(merged_while_away)
    merged_while_away.work_off("r2")
    assert rows_seen(merged_while_away) == [0, 1, 2]


@pytest.mark.parametrize("step", STEPS)
def test_a_reader_sees_all_rows_or_fails_whenever_a_clone_dies(
    merged_while_away, monkeypatch, step
):
    """After each step; the next one starts from there, and a reader looks after each of its own."""
    dying, looks = RuntimeError("killed"), []

    def look() -> None:
        try:
            looks.append(rows_seen(merged_while_away) == [0, 1, 2])
        except MissingPart:
            looks.append(True)

    def die() -> None:
        look()
        raise dying

    after(step, die, monkeypatch)
    with pytest.raises(RuntimeError, match="killed"):
        clone_if_lost(merged_while_away["r2"])
    look()
    for again in STEPS:
        after(again, look, monkeypatch)
    after("_empty_queue", look, monkeypatch)
    assert clone_if_lost(merged_while_away["r2"]) is not None
    look()
    assert looks == [True] * (len(STEPS) + 4)
    merged_while_away.work_off("r2")
    assert rows_seen(merged_while_away) == [0, 1, 2]


def test_a_clone_that_begins_and_ends_while_a_reader_looks_is_noticed(
    merged_while_away, monkeypatch
):
    """1. A part is marked, for another reason. 2. A reader finds `is_lost` said "0". 3. r2 is lost,
    and its clone has emptied the queue and left its parts when the reader looks at these.
    """
    r2 = merged_while_away["r2"]
    r2.keeper.multi([SetData(r2.paths.is_lost, b"0")])
    part = PartName("all", 0, 0, 0)
    merged_while_away.stores["r2"].remove(part)
    assert refetch(r2, part) is not None
    right, dying = readable.queued_entries, RuntimeError("killed")

    def meanwhile(*args):
        monkeypatch.setattr(readable, "queued_entries", right)
        marked_lost(merged_while_away)
        after("_leave", lambda: (_ for _ in ()).throw(dying), monkeypatch)
        with pytest.raises(RuntimeError, match="killed"):
            clone_if_lost(r2)
        return right(*args)

    monkeypatch.setattr(readable, "queued_entries", meanwhile)
    with pytest.raises(MissingPart, match=r"all_0_0_0 \(and 2 more\)"):
        rows_seen(merged_while_away)


@pytest.mark.parametrize("is_before", [False, True])
def test_nobody_waits_for_what_is_dropped_before_or_after_a_clone(merged_while_away, is_before):
    def drop() -> None:
        merged_while_away.table("r1").drop_partitions(["all"], settings=NOW)
        merged_while_away.work_off("r1")

    if is_before:
        drop()
    assert clone_if_lost(merged_while_away["r2"]) is not None
    if is_before:
        assert merged_while_away.stores["r2"].marks.given_up() == []
    else:
        drop()
        with pytest.raises(MissingPart):
            rows_seen(merged_while_away)
        pull_log(merged_while_away["r2"])
        merged_while_away.work_off("r2")
    assert rows_seen(merged_while_away) == []
    assert readable.readable_parts(merged_while_away["r2"]).absent == ()
