"""A replica joins a table that changes while it is looked at."""

from dataclasses import replace
from pathlib import Path

import pytest

from rmt_pipeline.protocol.errors import MetadataMismatch
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.replica.life.create import create_replica
from rmt_pipeline.replica.life.drop import drop_replica
from rmt_pipeline.zookeeper.keeper import Create, Op
from rmt_pipeline.zookeeper.paths import TablePaths
from tests.support.local_replicas import ROOT, Replicas, definition_of
from tests.support.lost_answers import before

TABLE = TablePaths(ROOT)


def makes_r3(op: Op) -> bool:
    return isinstance(op, Create) and op.path == TABLE.replica("r3").root


def test_a_table_that_was_made_anew_meanwhile_is_looked_at_again(tmp_path: Path) -> None:
    """1. r3 reads the table's structure. 2. Its replicas are dropped and it with them; somebody
    makes another table in its place. 3. r3 does not join it with the structure of the old one.
    """
    with Replicas(tmp_path) as replicas:
        keeper, other = replicas.zookeeper.connect(), replicas.zookeeper.connect()

        def make_anew() -> None:
            replicas.close()
            for name in ("r1", "r2"):
                drop_replica(other, TABLE, name)
            create_replica(other, definition_of("r1", [Column("n", "Int8")]), b"r1")

        with (
            before(keeper, makes_r3, make_anew),
            pytest.raises(MetadataMismatch, match="`n` UInt64 here, `n` Int8 there"),
        ):
            create_replica(keeper, definition_of("r3"), b"r3")
        assert keeper.children(TABLE.replicas) == ["r1"]


def test_one_that_had_no_answer_and_no_uuid_is_created_once(tmp_path: Path) -> None:
    with Replicas(tmp_path) as replicas:
        keeper = replicas.zookeeper.connect()
        wanted = replace(definition_of("r3"), uuid="")
        first = create_replica(keeper, wanted, b"r3")
        assert create_replica(keeper, wanted, b"r3").uuid == first.uuid == ""
