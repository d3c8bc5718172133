"""A table that was dropped and created again is another one, also at the same place."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.jobs.mutate import LocalMutator
from rmt_pipeline.protocol.errors import ReplicaDropped, UnknownTable
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.work.carry import Tools
from rmt_pipeline.store.layout import StageKind
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.store.staging import Staging
from tests.support.executor import Executor
from tests.support.hosts import TABLE, World
from tests.support.local_replicas import DirectPeers
from tests.support.local_session import create, local_session, rows

CREATE = (
    "CREATE TABLE t ({}) ENGINE = ReplicatedMergeTree('/tables/t', '{{replica}}') ORDER BY n"
)


def test_who_opened_the_first_table_does_nothing_to_the_second(tmp_path):
    """Its columns may be others, and what was learnt of the first one's nodes is not true."""
    with local_session(tmp_path) as session:
        server = session.context.server
        create(session, CREATE.format("n UInt8"))
        first = server.table("t")
        first.insert([{"n": 1}])
        session.execute("DROP TABLE t SYNC")
        create(session, CREATE.format("n UInt8, s String"))
        server.table("t").insert([{"n": 2, "s": "b"}])
        with pytest.raises(UnknownTable, match=r"default\.t was dropped and created again"):
            first.insert([{"n": 3}])
        with pytest.raises(UnknownTable, match="open it again"):
            _ = first.replica
        assert rows(session, "SELECT n, s FROM t") == [(2, "b")]
        assert server.table("t").store.staged() == []


@pytest.mark.parametrize("renamed", [False, True])
@pytest.mark.parametrize("sync", [False, True])
def test_what_a_worker_stages_late_is_not_where_the_next_table_is(
    tmp_path, monkeypatch, *, renamed: bool, sync: bool
):
    """P42.

    1. A worker has claimed a fetch, and has yet to make its staging directory. 2. DROP TABLE, and
    CREATE TABLE of the same name, or of the one that the table had at first. 3. The worker makes
    its directory, and gives the part its name, in the place of a table that has never had such a
    part.
    """
    world, begin = World(tmp_path), PartStore.begin
    for name in ("r1", "r2"):
        world.context(name).create_table(TABLE)
    served = [world.served(name) for name in ("r1", "r2")]
    table, host = world.context("r1").table("t"), world.context("r2")
    table.insert([{"n": 1}])
    if renamed:
        host.rename_tables((("default", "t"), ("default", "u")))
    old = host.table("u" if renamed else "t").replica
    pull_log(old)
    tools = Tools(
        DirectPeers({"r1": table.store}), LocalMerger(world.clock), LocalMutator(world.clock)
    )
    waiting: list[Callable[[], object]] = [
        lambda: world.context("r2").table("t").store,  # its server takes it up
        lambda: host.create_table(TABLE),
        lambda: host.drop_table("default", "u" if renamed else "t", sync=sync),
    ]

    def late(store: PartStore, kind: StageKind, hint: str) -> Staging:
        while waiting:
            waiting.pop()()
        return begin(store, kind, hint)

    monkeypatch.setattr(PartStore, "begin", late)
    with pytest.raises(ReplicaDropped):
        Executor(old, tools, "fetch").step(None)
    store = world.context("r2").table("t").store
    assert (waiting, store.parts(), store.staged(), len(served)) == ([], [], [], 2)


def test_a_table_that_has_lost_its_file_is_attached_to_its_parts_also_when_its_name_was_used(
    tmp_path,
):
    with local_session(tmp_path) as session:
        server = session.context.server
        for _ in range(2):
            session.execute("DROP TABLE IF EXISTS t SYNC")
            create(session, CREATE.format("n UInt8"))
        server.table("t").insert([{"n": 1}])
        Path(server.server.data, "metadata/default/t.json").unlink()
        attach = CREATE.format("n UInt8").replace("CREATE", "ATTACH", 1)
        session.execute(attach)
        assert rows(session, "SELECT n FROM t") == [(1,)]
