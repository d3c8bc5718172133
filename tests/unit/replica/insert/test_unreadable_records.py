"""Who is stopped by an insert's record that can't be read names its node, and says what to do."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.replica.forget import what_to_move
from rmt_pipeline.replica.insert.record import read_record
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper.keeper import SetData
from rmt_pipeline.zookeeper.trees import delete_tree
from tests.support.local_replicas import Replicas, partitioned
from tests.support.restoring import Disaster

NAMED = (
    r"/inserts/\S+ in ZooKeeper can't be read: .*"
    r"remove \S+/inserts/\S+ with all below it: then this insert is not known"
)


def damage(replica: Replica) -> str:
    """Make the record of the first insert one of a newer version; returns its id."""
    insert_id = replica.session.children(replica.table.inserts)[0]
    path = replica.table.insert(insert_id)
    text, _ = replica.session.get(path)
    replica.session.multi([SetData(path, re.sub(rb"version: \d+", b"version: 999", text))])
    return insert_id


def dropped(replicas: Replicas, insert_id: str) -> None:
    del insert_id
    replicas.table("r1").drop_partitions(["all"], settings={"alter_sync": 0})


def read(replicas: Replicas, insert_id: str) -> None:
    read_record(replicas["r1"], insert_id)


def moved(replicas: Replicas, insert_id: str) -> None:
    what_to_move(replicas["r1"], {insert_id: pytest.fail})


@pytest.mark.parametrize("does", [dropped, read, moved])
def test_who_reads_it_names_it(
    replicas: Replicas, does: Callable[[Replicas, str], None]
) -> None:
    replicas.insert("r1", 1)
    insert_id = damage(replicas["r1"])
    with pytest.raises(Corruption, match=NAMED):
        does(replicas, insert_id)


@pytest.mark.parametrize("token", ["", "mine"])
def test_a_restore_names_it(tmp_path: Path, token: str) -> None:
    with Disaster(tmp_path) as disaster:
        disaster.insert_again("r1", 1, token=token)
        disaster.live_on()
        disaster.wipe()
        disaster.restore("r1")
        damage(disaster["r1"])
        with pytest.raises(Corruption, match=NAMED):
            disaster.restore("r2")


def test_a_node_of_one_commit_of_a_large_insert_names_the_record_to_remove(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without that node alone the record would seem to keep changing, and stop all for ever."""
    monkeypatch.setattr(limits, "INSERT_BYTES_MAX", 2800)  # two partitions in a commit
    values = [{"p": n, "n": n} for n in range(6)]
    with Replicas(tmp_path, define=partitioned) as replicas:
        replica, table = replicas["r1"], replicas.table("r1")
        insert_id = table.insert(values).insert_id
        batch = replica.table.insert_batch(insert_id, 1)
        replica.keeper.multi([SetData(batch, b"")])
        with pytest.raises(Corruption, match=NAMED) as raised:
            table.drop_partitions(["2"], settings={"alter_sync": 0})
        named = re.search(r"remove (\S+) with all below it", str(raised.value))
        assert str(raised.value).startswith(f"{batch} in ZooKeeper")
        assert named is not None
        delete_tree(replica.keeper, named[1])
        table.drop_partitions(["2"], settings={"alter_sync": 0})
        assert read_record(replica, insert_id) is None
