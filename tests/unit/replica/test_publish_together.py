"""Small parts that arrived together, or were made together, become this replica's together; what is
wrong with one of them is its own affair.
"""

import errno
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.merge.job import MergeJob, MergeOutcome, Merger
from rmt_pipeline.exchange.peers import Fetched, FetchRequest
from rmt_pipeline.protocol.errors import Unavailable
from rmt_pipeline.protocol.log.entry import MergeParts
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.work import carry
from rmt_pipeline.replica.work.step import PartDone
from rmt_pipeline.store.disk import LocalDisk
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.zookeeper.keeper import Create, Delete, Op, SetData, Stat
from rmt_pipeline.zookeeper.snapshot import queued_entries
from tests.support.counting import multis_of, once
from tests.support.local_replicas import DirectPeers, Replicas, by_tens

PARTS = 40


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    with Replicas(tmp_path) as opened:
        for number in range(PARTS):
            opened.insert("r1", number)
        pull_log(opened["r2"])
        yield opened


def node_of(replicas: Replicas, part: str) -> str:
    """Of the queue of r2."""
    replica = replicas["r2"]
    for node in replica.keeper.children(replica.paths.queue):
        if f"\n{part}\n".encode() in replica.keeper.get(replica.paths.queue_entry(node))[0]:
            return node
    raise AssertionError(f"{part} is not queued")


def fetch_all(replicas: Replicas) -> dict[str, PartDone]:
    done = replicas.executor("r2", "fetch").step(None).done
    return {str(one.part): one for one in done}


def when_fetched(
    monkeypatch: pytest.MonkeyPatch, happens: Callable[[Sequence[Fetched]], Sequence[Fetched]]
) -> None:
    """Between the arrival of all parts and their publication."""
    right = DirectPeers.fetch

    def fetch(
        self: DirectPeers, requests: Sequence[FetchRequest], store: PartStore
    ) -> Iterator[Sequence[Fetched]]:
        for together in right(self, requests, store):
            yield happens(together)

    monkeypatch.setattr(DirectPeers, "fetch", fetch)


def test_what_came_together_is_published_with_one_multi(replicas: Replicas) -> None:
    multis = multis_of(replicas["r2"].keeper)
    fetch_all(replicas)
    assert replicas.parts("r2") == replicas.parts("r1")
    assert len(multis) == 2, "claimed, and published"
    for part in replicas.parts("r2"):
        replicas.stores["r2"].verify(PartName.parse(part))


def test_who_has_published_them_knows_without_a_listing_that_nothing_is_claimed(
    replicas: Replicas,
) -> None:
    replica = replicas["r2"]
    fetch_all(replicas)
    claims = replica.memory.queue.claimed(replica.paths)
    stat = replica.keeper.exists(replica.paths.executing)
    assert claims is not None
    assert stat is not None
    assert claims.is_still(stat, replica.keeper.session_id)
    assert claims.names == {}


def test_an_entry_that_went_meanwhile_takes_no_other_with_it(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = replicas["r2"]
    node = node_of(replicas, "all_7_7_0")

    def dropped(together: Sequence[Fetched]) -> Sequence[Fetched]:
        replica.keeper.multi([Delete(replica.paths.queue_entry(node))])
        return together

    when_fetched(monkeypatch, dropped)
    done = fetch_all(replicas)
    assert "its queue entry" in done["all_7_7_0"].error
    assert [name for name, one in done.items() if one.error] == ["all_7_7_0"]
    assert sorted(replicas.parts("r2")) == sorted(set(replicas.parts("r1")) - {"all_7_7_0"})
    assert PartName.parse("all_7_7_0") not in replicas.stores["r2"].parts()


def test_one_that_is_not_what_was_promised_fails_alone(replicas: Replicas) -> None:
    """The header in ZooKeeper says other rows."""
    source = replicas["r1"]
    other, _ = source.keeper.get(source.paths.part(PartName.parse("all_8_8_0")))
    source.keeper.multi([SetData(source.paths.part(PartName.parse("all_7_7_0")), other)])
    done = fetch_all(replicas)
    assert "is not what ZooKeeper has for it" in done["all_7_7_0"].error
    assert [name for name, one in done.items() if one.error] == ["all_7_7_0"]
    assert "all_7_7_0" not in replicas.parts("r2")


def test_one_that_could_not_be_fetched_fails_alone(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken_off(together: Sequence[Fetched]) -> Sequence[Fetched]:
        (first, _), *others = together
        return [(first, Unavailable("broke off")), *others]

    when_fetched(monkeypatch, broken_off)
    done = fetch_all(replicas)
    assert sum(bool(one.error) for one in done.values()) == 1
    assert len(replicas.parts("r2")) == PARTS - 1


def test_one_without_a_header_is_compared_with_what_others_publish_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. r1's nodes say nothing of their bytes. 2. r2 fetches them. 3. r3 publishes other bytes
    under the name of one of them.
    """
    with Replicas(tmp_path, ("r1", "r2", "r3")) as replicas:
        source, third = replicas["r1"], replicas["r3"]
        parts = [replicas.insert("r1", number) for number in range(3)]
        pull_log(replicas["r2"])
        other, _ = source.keeper.get(source.paths.part(parts[0]))
        for part in parts:
            source.keeper.multi([SetData(source.paths.part(part), b"")])

        def published(together: Sequence[Fetched]) -> Sequence[Fetched]:
            third.keeper.multi([Create(third.paths.part(parts[1]), other)])
            return together

        when_fetched(monkeypatch, published)
        done = fetch_all(replicas)
        assert [name for name, one in done.items() if one.differs] == [str(parts[1])]
        assert replicas.parts("r2") == [str(parts[0]), str(parts[2])]


def test_a_disk_that_fails_for_one_fails_for_it_alone(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = replicas.stores["r2"]
    right = store._publish_one

    def failing(staged: object, part: PartName) -> None:
        if str(part) == "all_7_7_0":
            raise OSError(5, "Input/output error")
        right(staged, part)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "_publish_one", failing)
    done = fetch_all(replicas)
    assert "Input/output error" in done["all_7_7_0"].error
    assert [name for name, one in done.items() if one.error] == ["all_7_7_0"]
    assert len(replicas.parts("r2")) == PARTS - 1


def test_parts_whose_bytes_the_disk_has_lost_are_fetched_once_more(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sync tells only once that bytes were lost. So what it was about is not published one by one
    after that, nor by the next try: it would be promised, and gone with the next loss of power.
    """
    store, asked = replicas.stores["r2"], list[str]()
    monkeypatch.setattr(store, "_durable", True)

    def note(together: Sequence[Fetched]) -> Sequence[Fetched]:
        asked.extend(str(request.part) for request, _ in together)
        return together

    when_fetched(monkeypatch, note)

    def tells(*_: object) -> None:
        raise OSError(errno.EIO, "input/output error")

    right = LocalDisk.fsync_trees
    with monkeypatch.context() as patch:

        def once(disk: LocalDisk, trees: Sequence[tuple[str, Sequence[str]]]) -> None:
            patch.setattr(LocalDisk, "fsync_trees", right)
            tells()

        patch.setattr(LocalDisk, "fsync_trees", once)
        fetch_all(replicas)
    assert replicas.parts("r2") == []
    replicas.clock.passed_s += 60
    fetch_all(replicas)
    assert replicas.parts("r2") == replicas.parts("r1")
    assert sorted(asked) == sorted(2 * replicas.parts("r1"))


# --- merges ---

MERGED = [PartName.parse(f"{partition}_0_1_1") for partition in range(3)]


@pytest.fixture
def merging(tmp_path: Path) -> Iterator[Replicas]:
    """Two parts in each of three partitions on both replicas, and their merges in both queues."""
    with Replicas(tmp_path, define=by_tens) as opened:
        for number in range(6):
            opened.insert("r1", 10 * (number % 3) + number // 3)
        opened.step("r2", "fetch")
        for part in MERGED:
            optimize_partition(opened["r1"], part.partition, final=True, skip_merged=False)
        for name in ("r1", "r2"):
            pull_log(opened[name])
        yield opened


def merge_all(
    replicas: Replicas, name: str, merger: Merger | None = None
) -> dict[str, PartDone]:
    done = replicas.executor(name, "merge", merger=merger).step(None).done
    return {str(one.part): one for one in done}


def before_it_publishes(replica: Replica, happens: Callable[[], object]) -> list[Sequence[Op]]:
    """What happens once, when this replica is about to publish something; the multis that it sends
    from now on.
    """
    publishes = once(happens, lambda op: op.path.startswith(f"{replica.paths.parts}/"))
    return multis_of(replica.keeper, publishes)


def goes(replica: Replica, part: PartName) -> None:
    """The entry of this merge, from the queue."""
    for node, entry in queued_entries(
        replica.keeper, replica.paths, replica.memory.queue
    ).items():
        if isinstance(entry, MergeParts) and entry.result == part:
            replica.keeper.multi([Delete(replica.paths.queue_entry(node))])


def are_merged(replicas: Replicas, *names: str) -> bool:
    parts = [set(replicas.parts(name)) for name in names]
    for name in names:
        for part in MERGED:
            replicas.stores[name].verify(part)
    return all({*map(str, MERGED)} <= one for one in parts)


def test_small_merges_are_published_with_one_multi(merging: Replicas) -> None:
    """The first replica, which nobody was before, and the second, whose results are the same."""
    for name in ("r1", "r2"):
        multis = multis_of(merging[name].keeper)
        done = merge_all(merging, name)
        assert [one.error for one in done.values()] == [""] * 3
        assert [one.rows for one in done.values()] == [2] * 3
        assert len(multis) == 2, "claimed, and published"
    assert are_merged(merging, "r1", "r2")


def test_what_another_replica_publishes_meanwhile_is_compared_and_published_together(
    merging: Replicas,
) -> None:
    """Both replicas make the same merges at the same moment."""
    multis = before_it_publishes(merging["r1"], lambda: merge_all(merging, "r2"))
    done = merge_all(merging, "r1")
    assert [one.error for one in done.values()] == [""] * 3
    assert len(multis) == 3, "claimed, refused, and published"
    assert are_merged(merging, "r1", "r2")


@pytest.mark.parametrize("is_meanwhile", [False, True])
def test_a_merge_that_another_replica_made_otherwise_fails_alone(
    merging: Replicas, is_meanwhile: bool
) -> None:
    """It is on the disk under its name when that is noticed, and is not left there."""
    theirs, store = merging["r2"], merging.stores["r1"]
    other, _ = theirs.keeper.get(theirs.paths.part(PartName.parse("0_0_0_0")))

    def published() -> None:
        theirs.keeper.multi([Create(theirs.paths.part(MERGED[1]), other)])

    if is_meanwhile:
        before_it_publishes(merging["r1"], published)
    else:
        published()
    done = merge_all(merging, "r1")
    assert [name for name, one in done.items() if one.error] == ["1_0_1_1"]
    assert done["1_0_1_1"].differs
    assert {"0_0_1_1", "2_0_1_1"} <= set(merging.parts("r1"))
    assert "1_0_1_1" not in merging.parts("r1")
    assert not store.is_taken(MERGED[1])
    assert store.staged() == []


class Meanwhile:
    """A merger while whose work something happens."""

    def __init__(self, replicas: Replicas, happens: Callable[[], object]) -> None:
        self._merger, self._happens = LocalMerger(replicas.clock), happens

    def merge(self, jobs: Sequence[MergeJob]) -> Iterator[MergeOutcome]:
        for outcome in self._merger.merge(jobs):
            self._happens()
            yield outcome


def test_a_merge_whose_rows_do_not_add_up_is_not_published_with_the_others(
    merging: Replicas,
) -> None:
    """By whatever bug: another part is in the range of one of them."""
    replica = merging["r1"]
    stray = [[Create(replica.paths.part(PartName.parse("1_0_1_0")), b"")]]
    merger = Meanwhile(merging, lambda: stray and replica.keeper.multi(stray.pop()))
    done = merge_all(merging, "r1", merger)
    assert [name for name, one in done.items() if one.error] == ["1_0_1_1"]
    assert {"0_0_1_1", "2_0_1_1"} <= set(merging.parts("r1"))
    assert "1_0_1_1" not in merging.parts("r1")


def test_a_merge_whose_entry_went_meanwhile_takes_no_other_with_it(merging: Replicas) -> None:
    """Then they are published one by one: nothing that is compared once more brings it back."""
    multis = before_it_publishes(merging["r1"], lambda: goes(merging["r1"], MERGED[1]))
    done = merge_all(merging, "r1")
    promising = [
        sum(
            isinstance(op, Create) and op.path.startswith(merging["r1"].paths.parts)
            for op in ops
        )
        for ops in multis
    ]
    assert [count for count in promising if count > 1] == [3]
    assert [name for name, one in done.items() if one.error] == ["1_0_1_1"]
    assert {"0_0_1_1", "2_0_1_1"} <= set(merging.parts("r1"))
    assert not merging.stores["r1"].is_taken(MERGED[1])


@pytest.mark.parametrize("is_set_aside", [False, True])
def test_one_that_is_published_alone_after_all_and_differs_does_not_keep_its_name(
    merging: Replicas, is_set_aside: bool
) -> None:
    """All have their names when their multi is refused, because the entry of one of them is gone.
    By then another replica has published other bytes for the next one.
    """
    replica, theirs, store = merging["r1"], merging["r2"], merging.stores["r1"]
    merging.set(detach_not_byte_identical_parts=int(is_set_aside))
    replica = merging["r1"]
    other, _ = theirs.keeper.get(theirs.paths.part(PartName.parse("0_0_0_0")))

    def happens() -> None:
        goes(replica, MERGED[0])
        theirs.keeper.multi([Create(theirs.paths.part(MERGED[1]), other)])

    before_it_publishes(replica, happens)
    done = merge_all(merging, "r1")
    assert {name for name, one in done.items() if one.error} == {"0_0_1_1", "1_0_1_1"}
    assert done["1_0_1_1"].differs
    assert "2_0_1_1" in merging.parts("r1")
    assert [store.is_taken(part) for part in MERGED] == [False, False, True]
    assert store.staged() == []
    aside = [str(one) for one in store.detached()]
    assert len(aside) == is_set_aside, aside


@pytest.mark.parametrize("pauses_s", [[3.0, 3.0, 3.0], [3.0, 0.0, 0.0]])
def test_no_merge_that_is_ready_waits_for_a_slow_one(
    merging: Replicas, pauses_s: list[float]
) -> None:
    """Nor if some come together: of the next one nobody knows when it will come."""
    multis = multis_of(merging["r1"].keeper)
    slow = Meanwhile(merging, lambda: merging.clock.sleep_s(pauses_s.pop(0)))
    done = merge_all(merging, "r1", slow)
    assert [one.error for one in done.values()] == [""] * 3
    assert len(multis) == 4, "claimed, and published one by one"


@pytest.mark.parametrize(("name", "value"), [("MADE_TOGETHER_MAX", 2), ("HELD_MAX_S", -1.0)])
def test_what_is_ready_waits_neither_for_too_many_nor_for_too_long(
    merging: Replicas, monkeypatch: pytest.MonkeyPatch, name: str, value: float
) -> None:
    monkeypatch.setattr(carry, name, value)
    multis = multis_of(merging["r1"].keeper)
    assert [one.error for one in merge_all(merging, "r1").values()] == [""] * 3
    assert len(multis) > 2


def test_what_the_sources_of_all_promise_is_read_at_once(merging: Replicas) -> None:
    replica = merging["r1"]
    right, asked = replica.keeper.get_many, list[Sequence[str]]()
    sources = {
        replica.paths.part(PartName.parse(f"{partition}_0_0_0")) for partition in range(3)
    }

    def noted(paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        if sources & {*paths}:
            asked.append(paths)
        return right(paths)

    replica.keeper.get_many = noted  # type: ignore[method-assign]
    assert [one.error for one in merge_all(merging, "r1").values()] == [""] * 3
    assert [len(paths) for paths in asked] == [6]
