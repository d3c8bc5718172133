"""Small parts that arrived together become this replica's together; what is wrong with one of them
is its own affair.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from rmt_pipeline.exchange.peers import Fetched, FetchRequest
from rmt_pipeline.protocol.errors import Unavailable
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.work.step import PartDone
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.zookeeper.keeper import Create, Delete, Op, SetData
from tests.support.local_replicas import DirectPeers, Replicas

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


def test_what_came_together_is_published_with_one_multi(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper, multis = replicas["r2"].keeper, list[Sequence[Op]]()
    multi = keeper.multi

    def counted(ops: Sequence[Op]) -> list[str]:
        multis.append(ops)
        return multi(ops)

    monkeypatch.setattr(keeper, "multi", counted)
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
