"""FETCH PARTITION and PART from the replicas of another table, step by step (spec §9.8)."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rmt_pipeline.protocol.alter.history import AlterRecord
from rmt_pipeline.protocol.errors import (
    Conflict,
    Corruption,
    NoReplicaHasPart,
    RmtError,
    Unavailable,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import Column, ColumnChange, Engine, TableDefinition
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.insert.result import QuorumNotReached
from rmt_pipeline.replica.life.drop import drop_replica
from rmt_pipeline.replica.mutations.mutations import load_mutations
from rmt_pipeline.replica.partitions.detached import why_kept
from rmt_pipeline.replica.partitions.drop import BadPartition
from rmt_pipeline.replica.partitions.from_path import BadZooKeeperPath, checked_path
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.store.detached import DetachedParts
from rmt_pipeline.store.fetching import Fetching, FetchIsRunning, fetching
from rmt_pipeline.store.staging import Staging
from rmt_pipeline.system import EventWaker
from rmt_pipeline.zookeeper.keeper import Create, Delete, SetData
from rmt_pipeline.zookeeper.paths import TablePaths
from tests.support.between_requests import BeforeRequest
from tests.support.local_replicas import DirectPeers, Replicas, definition_of, partitioned
from tests.support.mortal_disk import Died
from tests.support.partitioned import clean_up, insert, merge, rows, work

NOW = QuerySettings(alter_sync=0)
AT_ONCE = QuerySettings(receive_timeout=0)
PATH = "/tables/s"
COLUMNS = (Column("p", "UInt8"), Column("n", "UInt64"))
ALL = [(1, 0), (1, 1), (2, 7)]


def of_source(name: str) -> TableDefinition:
    return replace(
        partitioned(name),
        name="s",
        engine=Engine("MergeTree", PATH, name),
        uuid=f"uuid-of-source-{name}",
    )


@pytest.fixture
def source(tmp_path) -> Iterator[Replicas]:
    """Partition 1 in two parts, partition 2 in one, on both replicas."""
    with Replicas(tmp_path / "s", define=of_source) as opened:
        for pair in ALL:
            insert(opened, pair)
        work(opened)
        yield opened


@pytest.fixture
def replicas(tmp_path, source) -> Replicas:
    """Of the table that fetches."""
    return Replicas(tmp_path / "t", define=partitioned, beside=source)


def detached(replicas: Replicas) -> list[str]:
    return replicas.stores["r1"].detached()


def before_part(
    monkeypatch: pytest.MonkeyPatch, number: int, act: Callable[[], object]
) -> list[str]:
    """What happens before the part of this number is asked for, once. The parts asked for."""
    fetch_each, asked = DirectPeers._fetch_each, []

    def fetched(peers: Any, requests: Any, store: Any) -> Any:
        for request in requests:
            asked.append(str(request.part))
            if len(asked) == number + 1:
                act()
            yield from fetch_each(peers, [request], store)

    monkeypatch.setattr(DirectPeers, "_fetch_each", fetched)
    monkeypatch.setattr(
        DirectPeers,
        "fetch",
        lambda peers, requests, store: ([one] for one in peers._fetch_each(requests, store)),
    )
    return asked


def die() -> None:
    raise Died


def test_a_partition_comes_from_another_table_and_is_attached(replicas, source):
    fetched = replicas.table("r1").fetch_partition(f"{PATH}/", "1")
    assert [str(part) for part in fetched.parts] == detached(replicas) == ["1_0_0_0", "1_1_1_0"]
    assert rows(replicas) == []  # nothing is attached by itself
    attached = replicas.table("r1").attach("1")
    assert [str(part) for part in attached.parts] == ["1_0_0_0", "1_1_1_0"]
    work(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == ALL[:2]
    assert rows(source) == ALL


def test_a_mutated_part_keeps_its_name_and_is_attached_without(replicas, source):
    source.table("r1").mutate("DELETE WHERE n = 0", settings=NOW)
    load_mutations(source["r1"])
    assign_mutations(source["r1"])
    work(source)
    replicas.table("r1").fetch_partition(PATH, part=PartName("1", 1, 1, 0, 2))
    assert detached(replicas) == ["1_1_1_0_2"]
    assert [str(part) for part in replicas.table("r1").attach("1").parts] == ["1_0_0_0"]
    assert rows(replicas) == [(1, 1)]


def test_one_part_comes_alone(replicas):
    table = replicas.table("r1")
    assert table.fetch_partition(PATH, part=PartName("1", 1, 1, 0)).parts == (
        PartName("1", 1, 1, 0),
    )
    with pytest.raises(RmtError, match=r"Detached part 1_1_1_0 already exists") as found:
        table.fetch_partition(PATH, part=PartName("1", 1, 1, 0))
    assert found.value.code == "DUPLICATE_DATA_PART"
    table.fetch_partition(PATH, part=PartName("1", 0, 0, 0))
    assert detached(replicas) == ["1_0_0_0", "1_1_1_0"]


def test_the_replica_that_is_furthest_is_asked(replicas, source, monkeypatch):
    """Most of the log copied, then the shortest queue."""
    insert(source, (1, 5), at="r2")
    work(source, "r2")  # r1 has not heard of it
    asked = endpoints(monkeypatch)
    assert len(replicas.table("r1").fetch_partition(PATH, "1").parts) == 3
    assert set(asked) == {f"{PATH}/replicas/r2"}


def test_who_puts_its_pointer_off_has_what_was_inserted_there(replicas, source, monkeypatch):
    """It has the parts of the entries that come next; who has copied these has only entries."""
    insert(source, (1, 5))
    insert(source, (1, 6))
    source["r2"].memory.pull_batch = 10
    assert pull_log(source["r2"]).queued == 2
    asked = endpoints(monkeypatch)
    assert len(replicas.table("r1").fetch_partition(PATH, "1").parts) == 4
    assert set(asked) == {f"{PATH}/replicas/r1"}


def endpoints(monkeypatch) -> list[str]:
    """Who is asked for parts from now on."""
    found: list[str] = []
    fetch = DirectPeers.fetch

    def seen(peers, requests, store):
        found.extend(request.endpoint for request in requests)
        return fetch(peers, requests, store)

    monkeypatch.setattr(DirectPeers, "fetch", seen)
    return found


@pytest.mark.parametrize(
    ("path", "partition", "code"),
    [
        ("", "1", "ILLEGAL_TYPE_OF_ARGUMENT"),
        ("tables/s", "1", "ILLEGAL_TYPE_OF_ARGUMENT"),
        ("/tables/../s", "1", "ILLEGAL_TYPE_OF_ARGUMENT"),
        ("other:/tables/s", "1", "ILLEGAL_TYPE_OF_ARGUMENT"),
        ("/tables/nosuch", "1", "UNKNOWN_TABLE"),
        (PATH, "77", "PARTITION_DOESNT_EXIST"),
    ],
)
def test_what_is_not_there_is_refused(replicas, path, partition, code):
    with pytest.raises(RmtError) as found:
        replicas.table("r1").fetch_partition(path, partition)
    assert found.value.code == code
    assert detached(replicas) == []


@pytest.mark.parametrize("partition", ["../x", "..", "", "a/b", "/1"])
def test_what_is_not_the_id_of_a_partition_is_refused(replicas, partition):
    with pytest.raises(BadPartition, match="is not the id of a partition") as told:
        replicas.table("r1").fetch_partition(PATH, partition)
    assert repr(partition) in str(told.value)


def test_a_part_that_no_replica_has_is_refused(replicas):
    with pytest.raises(NoReplicaHasPart, match="1_7_7_0 does not exist on any replica"):
        replicas.table("r1").fetch_partition(PATH, part=PartName("1", 7, 7, 0))


def test_a_source_without_active_replicas_is_refused(replicas, source):
    for name in ("r1", "r2"):
        source[name].keeper.multi([Delete(source[name].paths.is_active)])
    with pytest.raises(RmtError, match=f"No active replicas for shard {PATH}") as found:
        replicas.table("r1").fetch_partition(PATH, "1")
    assert found.value.code == "NO_ACTIVE_REPLICAS"


@pytest.mark.parametrize(
    ("define", "words"),
    [
        (
            lambda name: replace(
                definition_of(name, (Column("p", "UInt8"), Column("n", "Int64"))),
                partition_by=("p",),
            ),
            "columns: n is Int64 in the first, UInt64 in the second",
        ),
        (
            lambda name: replace(
                definition_of(name, (*COLUMNS, Column("m", "UInt8"))), partition_by=("p",)
            ),
            "columns: m is UInt8 in the first, none in the second",
        ),
        (
            lambda name: replace(definition_of(name, COLUMNS[::-1]), partition_by=("p",)),
            "orders of columns: n, p and p, n",
        ),
        (
            lambda name: replace(definition_of(name, COLUMNS), partition_by=("n",)),
            r"partition keys: \(n\) and \(p\)",
        ),
        (
            lambda name: replace(partitioned(name), order_by=("p", "n")),
            r"primary keys: \(p, n\) and \(n\)",
        ),
    ],
)
def test_tables_of_another_structure_are_told_apart(tmp_path, source, define, words):
    replicas = Replicas(tmp_path / "t", define=define, beside=source)
    with pytest.raises(RmtError, match=words):
        replicas.table("r1").fetch_partition(PATH, "1")
    assert detached(replicas) == []


def test_what_is_detached_already_is_not_mixed_with_it(replicas):
    table = replicas.table("r1")
    table.fetch_partition(PATH, "1")
    with pytest.raises(RmtError, match=r"Detached partition 1 already exists") as found:
        table.fetch_partition(PATH, "1")
    assert found.value.code == "PARTITION_ALREADY_EXISTS"
    table.fetch_partition(PATH, "2")


def test_who_dies_before_all_is_here_goes_on_with_what_has_come(replicas, monkeypatch):
    asked = before_part(monkeypatch, 1, die)
    with pytest.raises(Died):
        replicas.table("r1").fetch_partition(PATH, "1")
    assert detached(replicas) == ["tmp-fetch_1_0_0_0"]
    assert replicas.table("r1").attach("1").parts == ()
    [(_, kept)] = why_kept(replicas["r1"], replicas.stores["r1"].detached_parts.names())
    assert (kept.is_safe, "FETCH" in kept.why) == (True, True)
    fetched = replicas.table("r1").fetch_partition(PATH, "1")
    assert [str(part) for part in fetched.kept] == ["1_0_0_0"]
    assert asked == ["1_0_0_0", "1_1_1_0", "1_1_1_0"]
    assert detached(replicas) == ["1_0_0_0", "1_1_1_0"]


def test_what_has_come_is_read_again_only_by_who_goes_on(replicas, monkeypatch):
    verify, verified = DetachedParts.verify, []

    def seen(self, name):
        verified.append(str(name))
        return verify(self, name)

    monkeypatch.setattr(DetachedParts, "verify", seen)
    before_part(monkeypatch, 1, die)
    with pytest.raises(Died):
        replicas.table("r1").fetch_partition(PATH, "1")
    assert verified == []
    replicas.table("r1").fetch_partition(PATH, "1")
    assert verified == ["tmp-fetch_1_0_0_0"]


def test_what_has_come_damaged_is_fetched_again(replicas, monkeypatch):
    asked = before_part(monkeypatch, 1, die)
    with pytest.raises(Died):
        replicas.table("r1").fetch_partition(PATH, "1")
    disk = replicas.stores["r1"].disk
    [file] = [
        name for name in disk.list("detached/tmp-fetch_1_0_0_0") if name.endswith(".parquet")
    ]
    disk.write(f"detached/tmp-fetch_1_0_0_0/{file}", [b"torn"])
    assert replicas.table("r1").fetch_partition(PATH, "1").kept == ()
    assert asked == ["1_0_0_0", "1_1_1_0", "1_0_0_0", "1_1_1_0"]
    replicas.table("r1").attach("1")
    assert rows(replicas) == ALL[:2]


@pytest.mark.parametrize("again", ["fetch", "attach"])
def test_who_dies_while_parts_get_their_names_has_fetched(replicas, monkeypatch, again):
    """So ATTACH never sees half of it, and the next FETCH says what there is."""
    rename = DetachedParts.rename

    def renamed(self, name, reason):
        if name.reason == "tmp-fetch" and str(name.part) == "1_1_1_0":
            raise Died
        return rename(self, name, reason)

    monkeypatch.setattr(DetachedParts, "rename", renamed)
    with pytest.raises(Died):
        replicas.table("r1").fetch_partition(PATH, "1")
    assert detached(replicas) == ["1_0_0_0", "tmp-fetch_1_1_1_0"]
    monkeypatch.undo()
    if again == "fetch":
        assert len(replicas.table("r1").fetch_partition(PATH, "1").kept) == 2
        assert detached(replicas) == ["1_0_0_0", "1_1_1_0"]
    else:
        assert len(replicas.table("r1").attach("1").parts) == 2


def dies_at_the_end(replicas, monkeypatch, **wanted):
    """What was fetched is noted, and has no names yet."""
    with monkeypatch.context() as dying:
        dying.setattr(Fetching, "finish", lambda _: None)
        with pytest.raises(AssertionError):
            replicas.table("r1").fetch_partition(PATH, **wanted)


def test_what_was_removed_since_is_fetched_again(replicas, monkeypatch):
    """It was answered that it is there."""
    dies_at_the_end(replicas, monkeypatch, partition="1")
    assert len(replicas.table("r1").drop_detached("1")) == 2
    fetched = replicas.table("r1").fetch_partition(PATH, "1")
    assert fetched.kept == ()
    assert [str(part) for part in fetched.parts] == detached(replicas) == ["1_0_0_0", "1_1_1_0"]


def test_one_part_that_an_earlier_fetch_has_brought_is_not_the_whole_partition(
    replicas, monkeypatch
):
    """FETCH PARTITION was answered with that part alone."""
    part = PartName.parse("1_0_0_0")
    dies_at_the_end(replicas, monkeypatch, part=part)
    with pytest.raises(RmtError, match=r"Detached partition 1 already exists"):
        replicas.table("r1").fetch_partition(PATH, "1")
    assert detached(replicas) == ["1_0_0_0"]


def test_a_part_that_an_earlier_fetch_of_its_partition_has_brought_is_there(
    replicas, monkeypatch
):
    dies_at_the_end(replicas, monkeypatch, partition="1")
    part = PartName.parse("1_0_0_0")
    assert part in replicas.table("r1").fetch_partition(PATH, part=part).kept
    assert detached(replicas) == ["1_0_0_0", "1_1_1_0"]


def test_a_merge_of_the_source_meanwhile_is_followed(replicas, source, monkeypatch):
    def merged() -> None:
        merge(source)
        clean_up(source)

    asked = before_part(monkeypatch, 1, merged)
    fetched = replicas.table("r1").fetch_partition(PATH, "1")
    assert [str(part) for part in fetched.parts] == detached(replicas) == ["1_0_1_1"]
    assert asked == ["1_0_0_0", "1_1_1_0", "1_0_1_1"]


def test_a_drop_of_the_source_meanwhile_leaves_nothing_to_attach(replicas, source, monkeypatch):
    def dropped() -> None:
        source.table("r1").drop_partitions(["1"], settings=NOW)
        work(source)
        clean_up(source)

    before_part(monkeypatch, 1, dropped)
    with pytest.raises(RmtError) as found:
        replicas.table("r1").fetch_partition(PATH, "1")
    assert found.value.code == "PARTITION_DOESNT_EXIST"
    assert replicas.table("r1").attach("1").parts == ()


def test_a_drop_of_one_part_meanwhile_takes_it_out_of_what_is_fetched(
    replicas, source, monkeypatch
):
    """1_0_0_0 has come when it is dropped, and 1_1_1_0 merged with a new one: what is attached is
    what the source has then.
    """

    def changed() -> None:
        source.table("r1").drop_part(PartName("1", 0, 0, 0), settings=NOW)
        work(source)
        insert(source, (1, 9))
        work(source)
        merge(source)
        clean_up(source)

    before_part(monkeypatch, 1, changed)
    replicas.table("r1").fetch_partition(PATH, "1")
    replicas.table("r1").attach("1")
    assert rows(replicas) == [(1, 1), (1, 9)]
    assert detached(replicas) == []


def test_what_a_queued_drop_of_the_source_takes_is_not_fetched(replicas, source, monkeypatch):
    """The parts are promised until the drop is carried out; whoever has done so is asked."""
    source.table("r2").drop_partitions(["1"], settings=NOW)
    insert(source, (1, 9))
    for part in ({}, {"part": PartName("1", 0, 0, 0)}):
        with pytest.raises(Unavailable, match=r"r[12] has yet to carry out: drop range 1_0_1_"):
            replicas.table("r1").fetch_partition(PATH, "1", **part, settings=AT_ONCE)
    assert detached(replicas) == []
    work(source, "r2")
    asked = endpoints(monkeypatch)
    replicas.table("r1").fetch_partition(PATH, "1", settings=AT_ONCE)
    assert set(asked) == {f"{PATH}/replicas/r2"}
    replicas.table("r1").attach("1")
    assert rows(replicas) == [(1, 9)]


def test_a_source_that_is_behind_is_waited_for(replicas, source):
    source.table("r2").drop_part(PartName("1", 0, 0, 0), settings=NOW)
    replicas.meanwhile.append(lambda: work(source))
    assert [str(part) for part in replicas.table("r1").fetch_partition(PATH, "1").parts] == [
        "1_1_1_0"
    ]


def test_what_waits_for_its_quorum_is_waited_for(replicas, source):
    """When its quorum fails, the source has never had it."""
    asked = {"insert_quorum": 2, "insert_quorum_timeout": 0}
    with pytest.raises(QuorumNotReached):
        insert(source, (1, 9), settings=asked)
    with pytest.raises(
        Unavailable, match=r"r1 has 1_2_2_0, which waits for its quorum; r2 has"
    ):
        replicas.table("r1").fetch_partition(PATH, "1", settings=AT_ONCE)
    with pytest.raises(Unavailable, match=r"r1 has 1_2_2_0, which waits for its quorum\. N"):
        replicas.table("r1").fetch_partition(
            part=PartName("1", 2, 2, 0), path=PATH, settings=AT_ONCE
        )
    assert replicas.table("r1").fetch_partition(PATH, "2", settings=AT_ONCE).parts
    replicas.meanwhile.append(lambda: work(source))
    assert len(replicas.table("r1").fetch_partition(PATH, "1").parts) == 3


class Woken(EventWaker):
    """Something happens as soon as somebody waits. Nothing but a watch wakes it."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self._act = act

    def wait_s(self, timeout_s: float) -> bool:
        del timeout_s
        self._act()
        assert super().wait_s(0), "no watch was set on what is waited for"
        return True


@pytest.mark.parametrize("holds_back", ["an entry", "a quorum"])
def test_who_waits_is_woken_by_what_is_waited_for(replicas, source, holds_back):
    if holds_back == "an entry":
        source.table("r2").drop_part(PartName("1", 0, 0, 0), settings=NOW)
    else:
        asked = {"insert_quorum": 2, "insert_quorum_timeout": 0}
        with pytest.raises(QuorumNotReached):
            insert(source, (1, 9), settings=asked)
    table = replicas.table("r1")
    table.new_waker = lambda: Woken(lambda: work(source))
    assert table.fetch_partition(PATH, "1").parts


def test_rows_that_the_source_has_yet_to_get_are_not_left_out(replicas, source):
    """Who has inserted them is not active any more."""
    insert(source, (1, 9), at="r2")
    source["r2"].keeper.multi([Delete(source["r2"].paths.is_active)])
    with pytest.raises(Unavailable, match=r"r1 has yet to carry out: get 1_2_2_0. Nothing was"):
        replicas.table("r1").fetch_partition(PATH, "1", settings=AT_ONCE)
    source["r2"].keeper.multi([Create(source["r2"].paths.is_active)])
    work(source)
    assert len(replicas.table("r1").fetch_partition(PATH, "1", settings=AT_ONCE).parts) == 3


def test_a_source_that_is_lost_is_not_asked(replicas, source, monkeypatch):
    """What it will take over is another one's."""
    asked = endpoints(monkeypatch)
    source["r1"].keeper.multi([SetData(source["r1"].paths.is_lost, b"1")])
    replicas.table("r1").fetch_partition(PATH, "1", settings=AT_ONCE)
    assert set(asked) == {f"{PATH}/replicas/r2"}
    source["r2"].keeper.multi([SetData(source["r2"].paths.is_lost, b"1")])
    with pytest.raises(Unavailable, match="r1 is lost"):
        replicas.table("r1").fetch_partition(PATH, "2", settings=AT_ONCE)


def fetched_beside(
    directory: Path, begins: Callable[[Replicas], object], happens: Callable[[Replicas], object]
) -> list[list[tuple[int, int]]]:
    """The rows that a FETCH brings when something happens before the first of its requests, before
    the second one, and so on.
    """
    found = []
    for number in range(100):
        with Replicas(directory / f"s{number}", define=of_source) as source:
            for pair in ALL:
                insert(source, pair)
            work(source)
            begins(source)
            replicas = Replicas(directory / f"t{number}", define=partitioned, beside=source)
            table, keeper = replicas.table("r1"), replicas["r1"].keeper
            right = keeper.session
            keeper.session = between = BeforeRequest(right, number, partial(happens, source))
            table.fetch_partition(PATH, "1")
            keeper.session = right
            table.attach("1")
            found.append(rows(replicas))
        if not between.has_come:
            return found
    raise AssertionError("it asks without an end")


def test_what_is_dropped_between_any_two_requests_is_not_mixed_with_what_comes_after_it(
    tmp_path,
):
    """All that was there before the drop is fetched, or nothing of it."""
    found = fetched_beside(tmp_path, lambda _: None, dropped_on)
    assert all(one in (ALL[:2], [(1, 9)]) for one in found), found
    assert [(1, 9)] in found


def test_a_part_that_the_source_gets_between_any_two_requests_is_not_left_out(tmp_path):
    """r1 is asked first; the part of the last row was in its queue when the statement began."""

    def queued(source: Replicas) -> None:
        insert(source, (1, 9), at="r2")
        pull_log(source["r1"])

    found = fetched_beside(tmp_path, queued, lambda source: work(source, "r1"))
    assert all(one == [*ALL[:2], (1, 9)] for one in found), found


def test_a_source_that_is_dropped_between_any_two_requests_is_left_for_another(tmp_path):
    def dropped(source: Replicas) -> None:
        drop_replica(source.zookeeper.connect(), TablePaths(PATH), "r1")

    found = fetched_beside(tmp_path, lambda _: None, dropped)
    assert all(one == ALL[:2] for one in found), found


def dropped_on(source: Replicas) -> None:
    """r2 has carried the drop out; r1, which is asked first, has what was inserted after the drop
    beside what the drop takes.
    """
    source.table("r2").drop_partitions(["1"], settings=NOW)
    insert(source, (1, 9), at="r1")
    work(source, "r2")


def test_a_replica_that_can_not_send_is_left_for_another(replicas, source, monkeypatch):
    fetch, asked = DirectPeers._fetch_each, []

    def broken(peers, requests, store):
        for request in requests:
            asked.append(request.endpoint)
            if request.endpoint == asked[0]:
                yield request, Unavailable("its disk fails")
            else:
                yield from fetch(peers, [request], store)

    monkeypatch.setattr(DirectPeers, "_fetch_each", broken)
    assert len(replicas.table("r1").fetch_partition(PATH, "1").parts) == 2
    assert len(set(asked)) == 2


def test_when_all_have_failed_they_are_asked_anew(replicas, source, monkeypatch):
    fetch, asked = DirectPeers._fetch_each, []

    def first_broken(peers, requests, store):
        for request in requests:
            is_new = request.endpoint not in asked
            asked.append(request.endpoint)
            if is_new:
                yield request, Unavailable("its disk fails")
            else:
                yield from fetch(peers, [request], store)

    monkeypatch.setattr(DirectPeers, "_fetch_each", first_broken)
    assert len(replicas.table("r1").fetch_partition(PATH, "1").parts) == 2
    assert len(set(asked)) == 2


def test_a_source_that_never_sends_is_given_up(replicas, monkeypatch):
    def broken(peers, requests, store):
        del peers, store
        return ((request, Corruption("half of it")) for request in requests)

    monkeypatch.setattr(DirectPeers, "_fetch_each", broken)
    settings = {"max_fetch_partition_retries_count": 2}
    with pytest.raises(RmtError, match="in 3 tries; the last problem: half of it") as found:
        replicas.table("r1").fetch_partition(PATH, "1", settings=settings)
    assert found.value.code == "TOO_MANY_RETRIES_TO_FETCH_PARTS"


def test_another_part_than_was_promised_is_not_kept(replicas, source, monkeypatch):
    fetch = DirectPeers._fetch_each

    def swapped(peers, requests, store):
        other = {"1_0_0_0": "1_1_1_0", "1_1_1_0": "1_0_0_0"}
        for request in requests:
            wrong = replace(request, part=PartName.parse(other[str(request.part)]))
            for _, outcome in fetch(peers, [wrong], store):
                yield request, outcome

    monkeypatch.setattr(DirectPeers, "_fetch_each", swapped)
    with pytest.raises(RmtError, match="is not what ZooKeeper has for it"):
        replicas.table("r1").fetch_partition(PATH, "1")
    assert detached(replicas) == []
    assert replicas.stores["r1"].staged() == []


def test_who_sent_another_part_than_was_promised_is_not_asked_again(
    replicas, source, monkeypatch
):
    fetch, asked = DirectPeers._fetch_each, []
    other = {"1_0_0_0": "1_1_1_0", "1_1_1_0": "1_0_0_0"}

    def swapped_by_the_first(peers, requests, store):
        for request in requests:
            asked.append(request.endpoint)
            is_liar = request.endpoint == asked[0]
            name = other[str(request.part)] if is_liar else str(request.part)
            wrong = replace(request, part=PartName.parse(name))
            for _, outcome in fetch(peers, [wrong], store):
                yield request, outcome

    monkeypatch.setattr(DirectPeers, "_fetch_each", swapped_by_the_first)
    assert len(replicas.table("r1").fetch_partition(PATH, "1").parts) == 2
    assert len(set(asked)) == 2
    assert asked[0] not in asked[2:]


def test_two_at_once_do_not_mix(replicas):
    with fetching(replicas.stores["r1"], "1"):
        with pytest.raises(FetchIsRunning, match="another FETCH of partition 1"):
            replicas.table("r1").fetch_partition(PATH, "1")
        replicas.table("r1").fetch_partition(PATH, "2")
        assert len(replicas.table("r1").attach().parts) == 1


def test_a_part_as_it_was_before_an_alter_is_refused(replicas, source):
    """What its columns were called then only its own table knows: a column `n` was dropped since,
    and another one added under that name.
    """
    keeper, table = source["r1"].keeper, source["r1"].table
    record = AlterRecord(1, "r1", "id", "DROP COLUMN n", (ColumnChange(1, "n"),))
    text, _ = keeper.get(table.metadata)
    keeper.multi([SetData(table.metadata, text), Create(table.alter(1), record.encode())])
    with pytest.raises(
        RmtError, match="as they were before an ALTER; let the mutations there finish"
    ):
        replicas.table("r1").fetch_partition(PATH, "1")
    assert detached(replicas) == replicas.stores["r1"].staged() == []


def test_what_is_dropped_from_detached_meanwhile_is_fetched_again(
    replicas, source, monkeypatch
):
    """DROP DETACHED takes what has arrived: ATTACH would bring half of the partition."""
    table = replicas.table("r1")
    before_part(monkeypatch, 1, table.drop_detached)
    fetched = table.fetch_partition(PATH, "1")
    assert [str(part) for part in fetched.parts] == detached(replicas) == ["1_0_0_0", "1_1_1_0"]


def test_what_is_dropped_from_detached_at_the_end_is_told(replicas, source, monkeypatch):
    table, settle = replicas.table("r1"), Fetching.settle

    def after_a_drop(held: Fetching, path: str, **how: bool) -> Any:
        table.drop_detached(name="tmp-fetch_1_1_1_0")
        return settle(held, path, **how)

    with monkeypatch.context() as patched:
        patched.setattr(Fetching, "settle", after_a_drop)
        with pytest.raises(Conflict, match=r"1_1_1_0 was removed from detached/"):
            table.fetch_partition(PATH, "1")
    assert detached(replicas) == ["tmp-fetch_1_0_0_0"]
    assert len(table.fetch_partition(PATH, "1").parts) == 2


def test_a_peer_that_lies_about_its_rows_is_not_believed(replicas, source, monkeypatch):
    """The claims are those that ZooKeeper has, and the files are another part's."""
    fetch_each = DirectPeers._fetch_each

    def lying(peers: Any, requests: Any, store: Any) -> Any:
        other = source.stores["r1"].manifest(PartName("2", 0, 0, 0)).files[0]
        for request, outcome in fetch_each(peers, requests, store):
            lie = Staging(store.disk, store.root, outcome.directory)
            chunks = source.stores["r1"].file_chunks(PartName("2", 0, 0, 0), other.name)
            written = lie.write(outcome.manifest.files[0].name, chunks)
            told = replace(outcome.manifest, files=(written,), bytes_on_disk=written.size)
            yield request, lie.seal(told)

    monkeypatch.setattr(DirectPeers, "_fetch_each", lying)
    with pytest.raises(RmtError, match="not those that the manifest claims"):
        replicas.table("r1").fetch_partition(PATH, "1")
    assert detached(replicas) == replicas.stores["r1"].staged() == []


def test_numbers_of_another_table_prove_nothing(replicas, source):
    """Its part 1_0_1_1 has the blocks of our 1_0_0_0 by name alone."""
    insert(replicas, (1, 50))
    insert(replicas, (1, 51))
    work(replicas)
    replicas.table("r1").optimize("1", final=True, settings=NOW)
    work(replicas)
    replicas.table("r1").fetch_partition(PATH, "1")
    kept = why_kept(replicas["r1"], replicas.stores["r1"].detached_parts.names())
    assert [(str(name), one.is_safe) for name, one in kept] == [
        ("1_0_0_0", False),
        ("1_1_1_0", False),
    ]


def test_a_path_is_read() -> None:
    assert checked_path("/a/b//") == "/a/b"


@pytest.mark.parametrize("path", ["", "/", "a/b", "zk2:/a/b", "/a//b", "/a/../b", "/a/\x01"])
def test_a_path_that_is_none_is_refused_by_name(path: str) -> None:
    with pytest.raises(BadZooKeeperPath) as raised:
        checked_path(path)
    assert repr(path.rpartition("/")[2])[1:-1] in str(raised.value)
