"""A server starts a replica while a worker of its host is at work."""

import errno
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from rmt_pipeline.protocol.alter.commands import AddColumn
from rmt_pipeline.protocol.errors import DiskFull, MetadataMismatch
from rmt_pipeline.protocol.nodes.formats import ReplicaAddress
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import Column, TableDefinition
from rmt_pipeline.replica.alter.request import request_alter
from rmt_pipeline.replica.life import start as starts
from rmt_pipeline.replica.life.start import start
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.replica import Replica
from tests.support.between_requests import BetweenAnswers
from tests.support.local_replicas import ClockWaker, Replicas, definition_of, in_memory

ADDRESS = ReplicaAddress("r1", 9009, 9000, "default", "t")
ADDED = Column("x", "Int64")


@pytest.mark.parametrize("number", range(10))
def test_an_alter_that_a_worker_applies_meanwhile_is_no_difference(
    tmp_path: Path, number: int
) -> None:
    """1. A worker applies ALTER 1: its definition is on the disk. 2. The server starts with it, and
    reads R/columns. 3. The worker writes R/columns and R/metadata_version. 4. The server reads that
    this replica is at version 1: the columns are not those of before.
    """
    with Replicas(tmp_path, ["r1"]) as replicas:
        worker = replicas["r1"]
        worker.update_definition = in_memory(worker)
        request_alter(
            lambda: worker,
            lambda _: [AddColumn(ADDED)],
            QuerySettings(alter_sync=0),
            lambda: ClockWaker(replicas.clock),
        )
        pull_log(worker)
        before = worker.definition
        on_disk = replace(before, columns=(*before.columns, ADDED), metadata_version=1)
        session = BetweenAnswers(
            replicas.zookeeper.connect(), number, partial(replicas.work_off, "r1")
        )
        starting = replace(worker, definition=on_disk, keeper=session)
        start(starting, identity="r1", incarnation="2", address=ADDRESS)
        assert session.has_come
        assert starting.definition.columns == on_disk.columns


def test_a_table_of_before_there_were_uuids_is_started_again(tmp_path: Path) -> None:
    """Nothing tells its replica from another one of the same name, and nothing is noted of it."""

    def without(name: str) -> TableDefinition:
        return replace(definition_of(name), uuid="")

    with Replicas(tmp_path, ["r1"], define=without) as replicas:
        replicas.insert("r1", 1)
        replicas.stop("r1")
        replicas.come_back("r1")
        replicas.insert("r1", 2)
        assert replicas.parts("r1") == ["all_0_0_0", "all_1_1_0"]
        assert replicas["r1"].keeper.children_many([replicas["r1"].paths.creations]) in (
            [None],
            [[]],
        )


def test_who_has_other_columns_than_his_replica_is_not_started(tmp_path: Path) -> None:
    """Both are as no ALTER has made them: so it is not one that this replica has yet to write."""
    with Replicas(tmp_path, ["r1"]) as replicas:
        replicas.stop("r1")
        starting = replace(replicas["r1"], keeper=replicas.zookeeper.connect())
        known = starting.definition
        starting.definition = replace(known, columns=(*known.columns, ADDED))
        with pytest.raises(MetadataMismatch):
            start(starting, identity="r1", incarnation="2", address=ADDRESS)
        assert starting.keeper.exists(starting.paths.is_active) is None


@pytest.mark.parametrize("step", ["set_aside_failed", "recover_parts"])
@pytest.mark.parametrize(
    "error", [OSError(errno.EIO, "the disk"), DiskFull("no space"), KeyError()]
)
def test_who_can_not_begin_is_not_active(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, step: str
) -> None:
    """It works nothing: others would wait for it as for one that does, and clients insert here."""
    right = getattr(starts, step)

    def fails(of: Replica) -> object:
        if of.session.exists(of.paths.is_active) is None:
            return right(of)
        raise error

    with Replicas(tmp_path, ["r1"]) as replicas:
        replicas.stop("r1")
        with monkeypatch.context() as failing:
            failing.setattr(starts, step, fails)
            with pytest.raises(type(error)):
                replicas.come_back("r1")
        replica = replicas["r1"]
        assert replica.session.exists(replica.paths.is_active) is None
        start(replica, identity="r1", incarnation="1", address=ADDRESS)
        assert replica.session.exists(replica.paths.is_active) is not None
