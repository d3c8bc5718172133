"""A replica that was made while somebody else still removes an earlier one of its name stays."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from rmt_pipeline.protocol.errors import Conflict, ReplicaAlreadyExists, UserError
from rmt_pipeline.replica.life.create import create_replica
from rmt_pipeline.replica.life.drop import drop_dead_replica, drop_replica
from rmt_pipeline.zookeeper.keeper import Create, Delete, Keeper, Op, SetData
from rmt_pipeline.zookeeper.paths import TablePaths
from tests.support.between_requests import BeforeRequest
from tests.support.local_replicas import ROOT, Replicas, definition_of
from tests.support.lost_answers import before

TABLE = TablePaths(ROOT)
REQUESTS_MAX = 200


def create(session: Keeper, who: str) -> None:
    """Make r1 anew, with a creation of its own."""
    create_replica(session, replace(definition_of("r1"), uuid=who), who.encode())


def half_dropped(replicas: Replicas) -> None:
    """The process that dropped r1 died when `host` was gone."""
    replicas.stop("r1")
    session, replica = replicas.zookeeper.connect(), TABLE.replica("r1")
    session.multi([SetData(replica.is_lost, b"1"), Delete(replica.host)])


def whose(replicas: Replicas) -> list[str]:
    """Whose r1 it is: the names of its creations."""
    [names] = replicas.zookeeper.connect().children_many([TABLE.replica("r1").creations])
    return list(names or ())


def test_two_that_make_a_replica_whose_drop_was_cut_off_make_one(tmp_path: Path) -> None:
    """1. Both find that r1 has no `host`. 2. The first one removes it, and makes a new r1. 3. The
    second one removes what it took for the rest of the old r1.
    """
    for number in range(REQUESTS_MAX):
        with Replicas(tmp_path / str(number)) as replicas:
            half_dropped(replicas)
            made = list[bool]()

            def other(replicas: Replicas = replicas, told: list[bool] = made) -> None:
                session = replicas.zookeeper.connect()
                with suppress(Conflict, ReplicaAlreadyExists):
                    create(session, "the other")
                    told.append(True)
                session.close()

            session = BeforeRequest(replicas.zookeeper.connect(), number, other)
            with suppress(Conflict, ReplicaAlreadyExists):
                create(session, "the one")
            assert whose(replicas) == (["the other"] if made else ["the one"])
            if not session.has_come:
                break
    assert 10 < number < REQUESTS_MAX - 1


@pytest.mark.parametrize("names", [["r1", "r2"], ["r1"]], ids=["of two", "the only one"])
@pytest.mark.parametrize("active", [False, True])
def test_who_drops_a_dead_replica_leaves_one_that_was_made_since(
    tmp_path: Path, active: bool, names: list[str]
) -> None:
    """Two people drop the dead r1 at once, and one of them makes it anew."""
    made_anew = 0
    for number in range(3, REQUESTS_MAX):  # who looks later means the new one
        with Replicas(tmp_path / str(number), names) as replicas:
            replicas.stop("r1")
            made = list[bool]()

            def other(replicas: Replicas = replicas, told: list[bool] = made) -> None:
                session = replicas.zookeeper.connect()
                with suppress(Conflict, UserError):
                    drop_dead_replica(session, TABLE, "r1")
                    create(session, "the other")
                    told.append(True)
                    if active:
                        owner = replicas.zookeeper.connect()
                        owner.multi([Create(TABLE.replica("r1").is_active, ephemeral=True)])
                session.close()

            session = BeforeRequest(replicas.zookeeper.connect(), number, other)
            with suppress(Conflict, UserError):
                drop_dead_replica(session, TABLE, "r1")
            if not session.has_come:
                assert whose(replicas) == []
                break
            if made:
                made_anew += 1
                assert whose(replicas) == ["the other"]
                lost = replicas.zookeeper.connect().get(TABLE.replica("r1").is_lost)[0]
                assert lost == (b"1" if "r2" in names else b"0"), "who joins has to clone"
    assert 5 < number < REQUESTS_MAX - 1
    assert made_anew > 1


def test_nor_does_who_finds_only_leftovers_of_its_table_drop_one_of_the_next(
    tmp_path: Path,
) -> None:
    """1. The last replica was dropped, and the process that removed the table died. 2. Somebody
    drops the dead replica, and finds that only the table's end is left. 3. Meanwhile another one
    finishes it, and makes the table anew.
    """
    made_anew = 0
    for number in range(3, REQUESTS_MAX):  # who looks later means the new one
        with Replicas(tmp_path / str(number), ["r1"]) as replicas:
            replicas.stop("r1")
            dying = replicas.zookeeper.connect()

            def dies() -> None:
                raise KeyboardInterrupt

            def is_the_end(op: Op) -> bool:
                return isinstance(op, Delete) and op.path == TABLE.root

            with before(dying, is_the_end, dies), suppress(KeyboardInterrupt):
                drop_replica(dying, TABLE, "r1")
            replicas.zookeeper.expire(dying.session_id)
            made = list[bool]()

            def other(replicas: Replicas = replicas, told: list[bool] = made) -> None:
                session = replicas.zookeeper.connect()
                with suppress(Conflict):
                    create(session, "the other")
                    told.append(True)
                session.close()

            session = BeforeRequest(replicas.zookeeper.connect(), number, other)
            with suppress(Conflict, UserError):
                drop_dead_replica(session, TABLE, "r1")
            if not session.has_come:
                break
            if made:
                made_anew += 1
                assert whose(replicas) == ["the other"]
                lost = replicas.zookeeper.connect().get(TABLE.replica("r1").is_lost)[0]
                assert lost == b"0"
    assert 3 < number < REQUESTS_MAX - 1
    assert made_anew
