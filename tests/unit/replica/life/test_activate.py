"""Being active is one process's at a time, and who is refused is told why."""

from collections.abc import Callable

import pytest

from rmt_pipeline.protocol.errors import ReplicaDropped
from rmt_pipeline.protocol.nodes.formats import ReplicaAddress
from rmt_pipeline.replica.life.drop import drop_replica
from rmt_pipeline.replica.life.start import (
    ReplicaIsAlreadyActive,
    _deactivate,
    activate,
)
from rmt_pipeline.zookeeper.keeper import Delete
from tests.support.between_requests import BeforeRequest
from tests.support.local_replicas import Replicas

ADDRESS = ReplicaAddress("r1", 9009, 9000, "default", "t")
REQUESTS = range(2)


def activated_while(replicas: Replicas, number: int, happens: Callable[[], object]) -> None:
    replica = replicas["r1"]
    between = BeforeRequest(replicas.zookeeper.connect(), number, happens)
    replica.keeper.session = between
    activate(replica, "r1", "2", ADDRESS)
    assert between.has_come


@pytest.mark.parametrize("number", REQUESTS)
def test_another_server_that_is_faster_is_the_one(replicas: Replicas, number: int) -> None:
    replicas.stop("r1")

    def other() -> None:
        replica = replicas["r1"]
        mine, replica.keeper.session = replica.session, replicas.zookeeper.connect()
        activate(replica, "another host", "1", ADDRESS)
        replica.keeper.session = mine

    with pytest.raises(ReplicaIsAlreadyActive, match="is active in another process"):
        activated_while(replicas, number, other)


@pytest.mark.parametrize("number", REQUESTS)
def test_a_replica_that_is_dropped_meanwhile_is_not_said_to_be_active(
    replicas: Replicas, number: int
) -> None:
    replicas.stop("r1")

    def dropped() -> None:
        drop_replica(replicas.zookeeper.connect(), replicas["r1"].table, "r1")

    with pytest.raises(ReplicaDropped):
        activated_while(replicas, number, dropped)


def test_what_is_left_of_oneself_may_go_by_itself_meanwhile(replicas: Replicas) -> None:
    """The session of before ends just then."""
    session = replicas["r1"].keeper.session_id
    activated_while(replicas, 1, lambda: replicas.zookeeper.expire(session))
    replica = replicas["r1"]
    assert replica.session.get(replica.paths.is_active)[0] == b"r1\n2\n"


def test_what_another_server_has_there_since_is_not_taken_for_what_is_left_of_oneself(
    replicas: Replicas,
) -> None:
    """Its node is in the first version, too."""
    session = replicas["r1"].keeper.session_id

    def other() -> None:
        replicas.zookeeper.expire(session)
        replica = replicas["r1"]
        mine, replica.keeper.session = replica.session, replicas.zookeeper.connect()
        activate(replica, "another host", "1", ADDRESS)
        replica.keeper.session = mine

    with pytest.raises(ReplicaIsAlreadyActive, match="is active in another process"):
        activated_while(replicas, 1, other)
    nodes = replicas.zookeeper.nodes
    assert nodes[replicas["r1"].paths.is_active].data == b"another host\n1\n"


@pytest.mark.parametrize("number", range(2))
def test_who_takes_his_own_back_leaves_that_of_another_server(
    replicas: Replicas, number: int
) -> None:
    """SYSTEM RESTART REPLICA has removed his own, and the other one was faster to be active."""
    replica = replicas["r1"]
    mine = replica.session

    def other() -> None:
        mine.multi([Delete(replica.paths.is_active)])
        replica.keeper.session = replicas.zookeeper.connect()
        activate(replica, "another host", "1", ADDRESS)
        replica.keeper.session = between

    between = BeforeRequest(mine, number, other)
    replica.keeper.session = between
    _deactivate(replica)
    assert between.has_come
    assert mine.get(replica.paths.is_active)[0] == b"another host\n1\n"


def test_who_takes_his_own_back_is_not_active(replicas: Replicas) -> None:
    replica = replicas["r1"]
    _deactivate(replica)
    assert replica.session.exists(replica.paths.is_active) is None
