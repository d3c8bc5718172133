"""One part gets its name on the disk and is promised, or what is there stands in its way."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmt_pipeline.exchange.peers import FetchRequest
from rmt_pipeline.protocol.nodes.formats import ReplicaAddress
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.publish import EntryGone, PartIsBusy, publish
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.zookeeper.keeper import Create, Delete
from tests.support.local_replicas import Replicas

PART, OTHER = PartName("all", 0, 0, 0), PartName("all", 1, 1, 0)


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    """Of two rows and of one, which r2 alone has."""
    with Replicas(tmp_path) as opened:
        opened.insert("r2", 1, 2)
        opened.insert("r2", 3)
        yield opened


def claimed(replicas: Replicas) -> str:
    """The entry by which r1 gets the first part."""
    pull_log(replicas["r1"])
    keeper, paths = replicas["r1"].keeper, replicas["r1"].paths
    node = min(keeper.children(paths.queue))
    keeper.multi([Create(paths.claim(node), b"", ephemeral=True)])
    return node


def fetched(replicas: Replicas, part: PartName = PART) -> StagedPart:
    request = FetchRequest(ReplicaAddress("r2", 9009, 9000, "default", "t"), "r2", part)
    [[(_, staged)]] = replicas.peers().fetch([request], replicas.stores["r1"])
    assert isinstance(staged, StagedPart)
    return staged


def other_rows_have_its_name(replicas: Replicas) -> None:
    replicas.stores["r1"].publish(fetched(replicas, OTHER), PART)


def rows_here(replicas: Replicas) -> int:
    return replicas.stores["r1"].verify(PART).rows


def test_other_rows_make_room(replicas: Replicas) -> None:
    """They are of an attempt that died, or were found broken."""
    other_rows_have_its_name(replicas)
    done = publish(replicas["r1"], claimed(replicas), PART, fetched(replicas))
    assert (done.part, done.rows, done.is_claimed) == (PART, 2, False)
    assert rows_here(replicas) == 2
    assert replicas.parts("r1") == [str(PART)]
    assert replicas.stores["r1"].staged() == []


def test_nothing_makes_room_for_whom_has_lost_its_claim(replicas: Replicas) -> None:
    """Another worker has it by now: what is there may be what that one is about to promise."""
    other_rows_have_its_name(replicas)
    replica, node = replicas["r1"], claimed(replicas)
    replica.keeper.multi([Delete(replica.paths.claim(node))])
    with pytest.raises(EntryGone, match=f"our claim of {node} is gone"):
        publish(replica, node, PART, fetched(replicas))
    assert rows_here(replicas) == 1
    assert replica.store.staged() == []
    assert replicas.parts("r1") == []


def test_what_is_being_read_makes_room_later(replicas: Replicas) -> None:
    """What was staged waits for the next attempt."""
    other_rows_have_its_name(replicas)
    replica, node, staged = replicas["r1"], claimed(replicas), fetched(replicas)
    with (
        replica.store.pin([PART]),
        pytest.raises(PartIsBusy, match="an old directory of all_0_0_0 is still being read"),
    ):
        publish(replica, node, PART, staged)
    assert rows_here(replicas) == 1
    assert replica.store.staged() == [staged.directory]
    publish(replica, node, PART, staged)
    assert rows_here(replicas) == 2


def test_the_same_files_are_as_good(replicas: Replicas) -> None:
    """Also while they are read."""
    replica, node = replicas["r1"], claimed(replicas)
    replica.store.publish(fetched(replicas), PART)
    with replica.store.pin([PART]):
        assert publish(replica, node, PART, fetched(replicas)).rows == 2
    assert replicas.parts("r1") == [str(PART)]
    assert replica.store.staged() == []


@pytest.mark.parametrize("is_claimed", [False, True])
def test_without_its_entry_it_is_not_promised(replicas: Replicas, is_claimed: bool) -> None:
    """Its directory goes if it is certain that nobody else has it in his hands."""
    replica, node = replicas["r1"], claimed(replicas)
    gone = [replica.paths.queue_entry(node), *[replica.paths.claim(node)] * (not is_claimed)]
    replica.keeper.multi([Delete(path) for path in gone])
    with pytest.raises(EntryGone, match=f"all_0_0_0 was made, but its queue entry {node} is"):
        publish(replica, node, PART, fetched(replicas))
    assert replicas.parts("r1") == []
    assert replica.store.is_taken(PART) is not is_claimed
    assert replica.store.staged() == []


def test_one_that_is_promised_by_now_is_done(replicas: Replicas) -> None:
    """An earlier try landed, whose answer did not come."""
    replica, node = replicas["r1"], claimed(replicas)
    header = fetched(replicas).manifest.header().encode()
    paths = replica.paths
    replica.keeper.multi([Delete(paths.queue_entry(node)), Create(paths.part(PART), header)])
    done = publish(replica, node, PART, fetched(replicas))
    assert (done.rows, done.is_claimed) == (2, True)
    assert rows_here(replicas) == 2
