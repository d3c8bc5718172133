"""Parts that no replica has, or none that is active: whoever waits for them is told so, and what
can be done about it.
"""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rmt_pipeline.cli.mutations import progress_lines
from rmt_pipeline.protocol.background import Background
from rmt_pipeline.protocol.log.entry import DropPart, GetPart, ReplaceRange, parts_brought
from rmt_pipeline.protocol.nodes.records import Attempts, LostPart
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica import missing
from rmt_pipeline.replica.assign.explain import explain_merges
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.fetch import PartSource, find_sources
from rmt_pipeline.replica.life.drop import drop_replica
from rmt_pipeline.replica.missing import lost_of, why_missing, yet_to_look
from rmt_pipeline.replica.mutations.mutations import (
    create_mutation,
    finalize_mutations,
    kill_mutation,
    load_mutations,
)
from rmt_pipeline.replica.mutations.progress import mutation_progress
from rmt_pipeline.replica.mutations.request import mutation_reports
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.upkeep.check import refetch
from rmt_pipeline.replica.upkeep.lost import lost_parts, replace_lost_parts
from rmt_pipeline.sql.system.replication import REPLICATION_QUEUE, _queue_rows
from rmt_pipeline.zookeeper.keeper import Create, Delete, Keeper, SetData
from rmt_pipeline.zookeeper.known import KnownQueue
from rmt_pipeline.zookeeper.paths import ReplicaPaths, TablePaths
from rmt_pipeline.zookeeper.snapshot import queue_snapshot, queued_entries
from tests.support.between_requests import BeforeRequest
from tests.support.local_replicas import Replicas

LOST = PartName.parse("all_0_0_0")


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    """Two parts on two replicas, and a mutation that is assigned."""
    with Replicas(tmp_path) as opened:
        opened.insert("r1", 1, 2)
        opened.insert("r1", 3)
        opened.step("r2", "fetch")
        create_mutation(opened["r1"], "DELETE WHERE n = 1")
        yield opened


def lose(replicas: Replicas, *names: str) -> Path:
    """The part's bytes are gone on these replicas; where a copy of them is."""
    store = replicas.stores[names[0]]
    copy = Path(store.directory(LOST)).parent / "copy"
    shutil.copytree(store.directory(LOST), copy)
    for name in names:
        replicas.stores[name].remove(LOST)
        assert refetch(replicas[name], LOST) is not None
    return copy


def test_what_could_not_be_sent_and_is_not_wanted_any_more_is_not_looked_for(
    replicas: Replicas,
) -> None:
    """Of two parts one could not be sent, and came with the next try; the other one could not be
    sent then: nobody but for that is looked for.
    """
    here, wanted = LOST, PartName.parse("all_1_1_0")
    failed = {here: {"r1"}, wanted: {"r1"}}
    [(part, source)] = find_sources(replicas["r2"], [(wanted, "r1")], failed).items()
    assert part == wanted
    assert isinstance(source, PartSource)
    assert (source.replica, source.part) == ("r1", wanted)


def work(replicas: Replicas, *names: str) -> None:
    for _ in range(3):
        for name in names:
            assign_mutations(replicas[name])
            replicas.step(name, "fetch")
            replicas.step(name, "merge")
        replicas.clock.passed_s += 120


def rows(replicas: Replicas, name: str) -> list[int]:
    return sorted(replicas.table(name).dataset().to_table().column("n").to_pylist())


def said_of_queue(replicas: Replicas, name: str) -> list[str]:
    keeper, paths = replicas[name].keeper, replicas[name].paths
    reads = keeper.get_many([paths.attempts_of(one) for one in keeper.children(paths.queue)])
    return [Attempts.decode(read[0]).last_exception for read in reads if read is not None]


def test_notes_of_a_newer_version_hold_nothing_up(replicas):
    """The server of r2 was upgraded first, and back: both look for a part that nobody has."""
    lose(replicas, "r1", "r2")
    work(replicas, "r1", "r2")
    keeper, paths = replicas["r2"].keeper, replicas["r2"].paths
    nodes = keeper.children(paths.attempts)
    newer = b"attempts format version: 99\nwho knows: what\n"
    keeper.multi([SetData(paths.attempts_of(node), newer) for node in nodes])
    assert yet_to_look(replicas["r1"], {LOST}) == {LOST: ("r2",)}, "for all that is known"
    [reported] = mutation_reports(replicas["r2"])
    assert not reported.status.is_done
    work(replicas, "r1", "r2")
    assert yet_to_look(replicas["r1"], {LOST}) == {}
    assert len(said_of_queue(replicas, "r2")) == len(said_of_queue(replicas, "r1"))


def test_a_part_that_every_replica_lost_is_named_wherever_somebody_waits_for_it(replicas):
    """F8: by its mutation, by the entry that is to fetch it, and by merges."""
    lose(replicas, "r1", "r2")
    work(replicas, "r1", "r2")
    [progress] = mutation_progress(replicas["r1"])
    words = progress.waits_words()
    assert words.startswith("all_0_0_0 is lost: no replica (r1, r2) has it")
    assert progress.report.waits_for == words
    assert f"    waits: {words}" in list(progress_lines("t", [progress]))
    for name in ("r1", "r2"):
        assert any(words in said for said in said_of_queue(replicas, name))
    reasons = [one.reason for one in explain_merges(replicas["r1"]).ranges]
    assert words in reasons


def test_a_result_that_can_only_be_made_of_a_lost_part_names_that_part(replicas):
    kill_mutation(replicas["r1"], "0000000000")
    optimize_partition(replicas["r1"], "all", final=True, skip_merged=False)
    lose(replicas, "r1", "r2")
    work(replicas, "r1", "r2")
    found = why_missing(replicas["r1"], [PartName.parse("all_0_1_1")])
    [words] = found.values()
    assert words.startswith("all_0_0_0 is lost")
    assert postponed(replicas, "r1") == {"all_0_0_0": words, "all_0_1_1": words}


def postponed(replicas: Replicas, name: str) -> dict[str, str]:
    """By the part that an entry is to make: why it waits, in system.replication_queue."""
    replica = replicas[name]
    snapshot = queue_snapshot(replica.keeper, replica.paths, replica.memory.queue)
    columns = [column for column, _ in REPLICATION_QUEUE]
    rows = [dict(zip(columns, row, strict=True)) for row in _queue_rows(replica, snapshot)]
    return {str(row["new_part_name"]): str(row["postpone_reason"]) for row in rows}


def test_who_has_yet_to_look_on_his_own_disk_is_named(replicas):
    """Nothing is fetched there, by hand: the part may be whole there, and is not replaced."""
    lose(replicas, "r1", "r2")
    replicas.stores["r1"].marks.stop(Background.FETCHES)
    work(replicas, "r1", "r2")
    named = "; r1 has yet to look: it does when a worker runs there"
    assert named in postponed(replicas, "r2")[str(LOST)]
    assert replace_lost_parts(replicas["r2"]) == ()
    assert "FETCHES" in postponed(replicas, "r1")[str(LOST)]
    replicas.stores["r1"].marks.go_on(Background.FETCHES)
    work(replicas, "r1", "r2")
    assert "yet to look" not in postponed(replicas, "r2")[str(LOST)]
    assert replace_lost_parts(replicas["r2"]) == (LOST,)


def test_who_is_dropped_meanwhile_is_not_asked(replicas, monkeypatch):
    """Nor is this replica taken for the one that was dropped."""
    lose(replicas, "r1", "r2")
    work(replicas, "r1", "r2")
    right = missing.queued_entries

    def then_dropped(keeper: Keeper, peer: ReplicaPaths, *rest: Any) -> Any:
        drop_replica(replicas["r2"].session, replicas["r1"].table, "r2")
        monkeypatch.setattr(missing, "queued_entries", right)
        return right(keeper, peer, *rest)

    monkeypatch.setattr(missing, "queued_entries", then_dropped)
    assert yet_to_look(replicas["r1"], [LOST]) == {}


def test_the_remedy_that_is_named_helps(replicas):
    """A copy put back under its name, and its node: the others fetch it, and all goes on."""
    copy = lose(replicas, "r1", "r2")
    work(replicas, "r1", "r2")
    copy.rename(replicas.stores["r2"].directory(LOST))
    two = replicas["r2"]
    two.keeper.multi([Create(two.paths.part(LOST))])
    work(replicas, "r1", "r2")
    assert rows(replicas, "r1") == rows(replicas, "r2") == [2, 3]
    for name in ("r1", "r2"):
        finalize_mutations(replicas[name], load_mutations(replicas[name]))
        [progress] = mutation_progress(replicas[name])
        assert progress.words() == "finished"


def test_a_mutation_that_waits_for_a_lost_part_can_be_ended(replicas):
    lose(replicas, "r1", "r2")
    work(replicas, "r1", "r2")
    kill_mutation(replicas["r1"], "0000000000")
    assert mutation_progress(replicas["r1"]) == []


def test_a_part_of_a_replica_that_is_away_is_not_lost(replicas):
    lose(replicas, "r1")
    two = replicas["r2"]
    two.keeper.multi([Delete(two.paths.is_active)])
    found = why_missing(replicas["r1"], [LOST])
    assert found == {LOST: "all_0_0_0 is only on r2, not active now: start the server there"}


def test_what_can_be_had_made_or_is_dropped_is_not_missing(replicas):
    one = replicas["r1"]
    kill_mutation(one, "0000000000")
    optimize_partition(one, "all", final=True, skip_merged=False)
    pull_log(one)
    assert why_missing(one, [LOST, PartName.parse("all_0_1_1")]) == {}


@pytest.mark.parametrize(("ask", "reads"), [(lost_of, 1), (why_missing, 2)])
def test_a_part_that_is_made_between_the_reads_is_not_lost(replicas, monkeypatch, ask, reads):
    """It moves from the queue to the parts: who looks at the parts last has seen it."""
    one, made = replicas["r1"], PartName.parse("all_0_1_1")
    kill_mutation(one, "0000000000")
    optimize_partition(one, "all", final=True, skip_merged=False)
    pull_log(one)
    pull_log(replicas["r2"])
    read: list[str] = []

    def patch(name: str) -> None:
        right = getattr(missing, name)

        def then_made(*asked: Any) -> Any:
            answer = right(*asked)
            read.append(name)
            if len(read) == reads:
                replicas.step("r1")
                replicas.step("r2")
            return answer

        monkeypatch.setattr(missing, name, then_made)

    patch("_queued")
    patch("_promised")
    assert not ask(one, [made])
    assert len(read) == reads + 1
    assert one.keeper.exists(one.paths.part(made)) is not None


def test_a_replica_that_is_dropped_meanwhile_stops_nobody(replicas, monkeypatch):
    """The question is only for people: whoever works goes on."""
    lose(replicas, "r1", "r2")
    right = missing.staying_replicas

    def then_dropped(keeper: Keeper, table: TablePaths) -> dict[str, bool]:
        names = right(keeper, table)
        drop_replica(replicas["r2"].session, table, "r2")
        return names

    monkeypatch.setattr(missing, "staying_replicas", then_dropped)
    work_once = replicas.step("r1", "fetch")
    assert work_once.done
    assert why_missing(replicas["r1"], [LOST])[LOST].startswith("all_0_0_0 is lost")


def tried_by(replicas: Replicas, name: str) -> list[str]:
    """Where this replica notes how it has tried to bring the part."""
    keeper, paths = replicas[name].keeper, replicas[name].paths
    entries = queued_entries(keeper, paths, KnownQueue())
    return [
        paths.attempts_of(node)
        for node, entry in entries.items()
        if LOST in parts_brought(entry)
    ]


def test_this_replica_asks_its_own_disk_and_not_its_queue(replicas):
    lose(replicas, "r1", "r2")
    work(replicas, "r1", "r2")
    one = replicas["r1"]
    there = [path for path in tried_by(replicas, "r1") if one.keeper.exists(path)]
    one.keeper.multi([Delete(path) for path in there])
    assert yet_to_look(one, [LOST]) == {}


def test_who_has_tried_before_somebody_gave_a_part_up_has_yet_to_look(replicas):
    """Another replica had the part then."""
    lose(replicas, "r1", "r2")
    work(replicas, "r1", "r2")
    one = replicas["r1"]
    assert yet_to_look(one, [LOST]) == {}
    replicas.clock.passed_s += 60
    one.keeper.multi([SetData(one.paths.is_lost, b"0")])
    assert yet_to_look(one, [LOST]) == {LOST: ("r2",)}


def test_who_has_tried_and_did_not_look_at_his_own_disk_has_yet_to_look(replicas):
    lose(replicas, "r1", "r2")
    work(replicas, "r1", "r2")
    two, [path] = replicas["r2"], tried_by(replicas, "r2")
    attempts = Attempts.decode(two.keeper.get(path)[0])
    two.keeper.multi([SetData(path, replace(attempts, is_unseen=True).encode())])
    assert yet_to_look(replicas["r1"], [LOST]) == {LOST: ("r2",)}


def test_who_has_tried_another_entry_may_still_have_a_copy_in_another_table(
    replicas, monkeypatch
):
    copied = ReplaceRange(
        create_time=1,
        source_replica="r1",
        range=PartName.parse("all_0_0_0"),
        from_database="default",
        from_table="u",
        source_parts=("all_5_5_0",),
        new_parts=(LOST,),
        part_checksums=("",),
    )
    fetched = GetPart(create_time=1, source_replica="r1", part=LOST)
    one, peer = replicas["r1"], replicas["r2"].paths
    nodes = {"queue-0000000097": fetched, "queue-0000000098": copied}
    monkeypatch.setattr(missing, "entries_to_come", lambda *_: [copied])
    tries = Attempts(tries=2, last_exception="", last_attempt_s=1, postpone_reason="")
    made = [Create(peer.attempts_of(node), tries.encode()) for node in nodes]
    one.session.multi(made[:1])
    assert missing._may_copy(missing.PeerQueues(one), peer, LOST, nodes)
    assert not missing._may_copy(
        missing.PeerQueues(one), peer, PartName.parse("all_5_5_0"), nodes
    )
    one.session.multi(made[1:])
    assert not missing._may_copy(missing.PeerQueues(one), peer, LOST, nodes)


def test_a_part_that_is_going_to_be_dropped_is_not_lost() -> None:
    some, other = (
        DropPart(create_time=1, source_replica="r1", part=PartName.parse(name))
        for name in ("all_0_3_1", "all_1_1_0")
    )
    assert missing._There({}, [some]).lost(LOST) == set()
    assert missing._There({}, [other]).lost(LOST) == {LOST}


def test_how_many_parts_are_lost_is_said(replicas) -> None:
    first, second = LOST, PartName.parse("all_1_1_0")
    said = partial(missing._lost_words, replicas["r1"], names=["r1"], unseen=[])
    assert said([first]).startswith("all_0_0_0 is lost")
    assert said([first, second]).startswith("all_0_0_0 (and 1 more parts) is lost")


def test_a_note_of_a_lost_part_that_goes_while_it_is_read_is_not_told(
    replicas: Replicas,
) -> None:
    """A drop of its partition takes the note along."""
    replica = replicas["r1"]
    note = replica.table.lost_part(LOST)
    said = LostPart(1_700_000_000, "r1", ()).encode()
    replica.keeper.multi([Create(note, said)])
    assert list(lost_parts(replica)) == [LOST]
    replica.keeper.session = between = BeforeRequest(
        replica.keeper.session, 1, lambda: replicas.zookeeper.connect().multi([Delete(note)])
    )
    assert lost_parts(replica) == {}
    assert between.has_come
