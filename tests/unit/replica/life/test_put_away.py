"""A table that was dropped, and is still there to be taken back, gives its path to a new one."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from rmt_pipeline.protocol.errors import Conflict, ReplicaAlreadyExists
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.life.create import create_replica
from rmt_pipeline.replica.life.detach import DROPPED
from rmt_pipeline.replica.life.drop import drop_put_away
from rmt_pipeline.zookeeper.keeper import Create, Delete, Keeper, Refused
from rmt_pipeline.zookeeper.paths import TablePaths
from tests.support.between_requests import BeforeRequest
from tests.support.local_replicas import ROOT, Replicas, definition_of

TABLE = TablePaths(ROOT)
REQUESTS_MAX = 200
NEW = "made for another table"


def put_away(replicas: Replicas, *, active: str = "") -> None:
    """Both replicas, but for one that is active all the same."""
    session = replicas.zookeeper.connect()
    for name in ("r1", "r2"):
        if name != active:
            replicas.stop(name)
        session.multi([Create(TABLE.replica(name).detached, DROPPED.encode())])


def new_one(name: str) -> TableDefinition:
    return replace(definition_of(name), uuid=f"{NEW} on {name}")


def create(session: Keeper, name: str) -> None:
    create_replica(session, new_one(name), name.encode())


def made(replicas: Replicas, name: str) -> int | None:
    stat = replicas.zookeeper.connect().exists(TABLE.replica(name).root)
    return None if stat is None else stat.created_zxid


def version(replicas: Replicas, name: str) -> int:
    return replicas.zookeeper.connect().get(TABLE.replica(name).detached)[1].version


def test_a_table_whose_replicas_are_all_dropped_is_none_to_join(tmp_path: Path) -> None:
    with Replicas(tmp_path) as replicas:
        put_away(replicas)
        before = made(replicas, "r1")
        create(replicas.zookeeper.connect(), "r1")
        assert made(replicas, "r1") != before
        assert made(replicas, "r2") is None


def test_one_of_them_that_is_active_was_taken_back(tmp_path: Path) -> None:
    with Replicas(tmp_path) as replicas:
        put_away(replicas, active="r1")
        before = made(replicas, "r1")
        with pytest.raises(ReplicaAlreadyExists):
            create(replicas.zookeeper.connect(), "r1")
        assert made(replicas, "r1") == before


def test_two_that_make_a_new_one_at_once_make_one(tmp_path: Path) -> None:
    """Both have read the note; whoever comes second does not remove what the first one made."""
    for number in range(REQUESTS_MAX):
        with Replicas(tmp_path / str(number)) as replicas:
            put_away(replicas)
            first = list[int | None]()

            def other(replicas: Replicas = replicas, told: list[int | None] = first) -> None:
                session = replicas.zookeeper.connect()
                with suppress(Conflict):
                    create(session, "r2")
                    told.append(made(replicas, "r2"))
                session.close()

            session = BeforeRequest(replicas.zookeeper.connect(), number, other)
            try:
                create(session, "r1")
            except Conflict:
                create(session, "r1")
            assert made(replicas, "r1") is not None
            if first:
                assert made(replicas, "r2") == first[0]
            if not session.has_come:
                assert number > 10
                return


def test_one_that_came_back_since_its_removal_had_begun_is_left_alone(tmp_path: Path) -> None:
    """It was put away once more, which whoever looked before does not know."""
    with Replicas(tmp_path) as replicas:
        put_away(replicas)
        before = made(replicas, "r1")
        drop_put_away(replicas.zookeeper.connect(), TABLE, "r1", None)
        assert made(replicas, "r1") == before


def test_what_is_taken_back_meanwhile_is_not_removed(tmp_path: Path) -> None:
    """UNDROP takes the note away, and the server makes the replica active."""
    for number in range(REQUESTS_MAX):
        with Replicas(tmp_path / str(number)) as replicas:
            put_away(replicas)
            before, noted = made(replicas, "r1"), version(replicas, "r1")
            taken_back = list[bool]()

            def take_back(replicas: Replicas = replicas, told: list[bool] = taken_back) -> None:
                other = replicas.zookeeper.connect()
                with suppress(Refused):  # it is gone
                    lost = other.get(TABLE.replica("r1").is_lost)[0]
                    other.multi([Delete(TABLE.replica("r1").detached)])
                    told.append(lost != b"1")

            session = BeforeRequest(replicas.zookeeper.connect(), number, take_back)
            drop_put_away(session, TABLE, "r1", noted)
            if not session.has_come:
                assert made(replicas, "r1") is None
                assert number > 3
                return
            if taken_back == [True]:
                assert made(replicas, "r1") == before
