"""INSERT with a quorum on two real servers over a real ZooKeeper, one of which stops."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from rmt_pipeline.config import Config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import OutcomeUnknown
from rmt_pipeline.replica.insert.quorum import TooFewLiveReplicas
from rmt_pipeline.replica.insert.result import Outcome
from rmt_pipeline.table import Table
from tests.support.local_work import working
from tests.support.serving import Served, config_at, create, definition_of
from tests.support.waiting import until

pytestmark = pytest.mark.zookeeper


@pytest.fixture
def config(tmp_path, zookeeper_server) -> Config:
    return config_at(tmp_path, zookeeper_server.hosts)


class Two:
    """The table on r1 and r2; r2 is worked by loops of its own."""

    def __init__(self, config: Config, root: str, opened: ExitStack) -> None:
        self._config = config
        self.servers: dict[str, Served] = {}
        self.tables: dict[str, Table] = {}
        for name in ("r1", "r2"):
            client = opened.enter_context(ServerContext.open(config, name))
            definition = definition_of(root, name)
            create(config, client.keeper(), definition, name)
            served = opened.enter_context(Served(config, name))
            served.until(served.is_active)
            self.servers[name] = served
            self.tables[name] = client.table("t")
        worker = opened.enter_context(ServerContext.open(config, "r2"))
        self.definition = definition_of(root, "r2")
        self.worker = worker


@pytest.fixture
def two(config, chroot) -> Iterator[Two]:
    with ExitStack() as opened:
        yield Two(config, f"{chroot}/t", opened)


def values(table: Table) -> list[int]:
    return sorted(table.dataset().to_table().column("n").to_pylist())


@pytest.mark.parametrize("is_parallel", ["1", "0"])
def test_what_is_acknowledged_is_on_both(two: Two, is_parallel: str) -> None:
    settings = {"insert_quorum_parallel": is_parallel, "insert_quorum_timeout": 60_000}
    with working(two.worker, two.definition):
        for value in range(5):
            two.tables["r1"].insert([{"n": value}], quorum=2, settings=settings)
            assert values(two.tables["r2"]) == list(range(value + 1))
    replica = two.tables["r1"].replica
    assert replica.keeper.children(replica.table.quorum_parallel) == []
    assert replica.keeper.exists(replica.table.quorum_status) is None


def test_while_one_is_stopped_inserts_are_refused_and_what_waited_is_answered_later(
    two: Two,
) -> None:
    settings = {"insert_quorum_timeout": 500}
    rows = [{"n": 1}]
    with pytest.raises(OutcomeUnknown, match="all_0_0_0 is on r1"):
        two.tables["r1"].insert(rows, quorum=2, settings=settings)  # nobody works for r2
    two.servers["r2"].stop()
    table = two.tables["r1"]
    until(lambda: table.replica.keeper.exists(r2_active(table)) is None)
    with pytest.raises(TooFewLiveReplicas):
        table.insert([{"n": 2}], quorum=2)
    assert table.insert([{"n": 3}]).outcome is Outcome.INSERTED
    with Served(two._config, "r2") as again:
        again.until(again.is_active)
        with working(two.worker, two.definition):
            again_said = table.insert(
                rows, quorum=2, settings={"insert_quorum_timeout": 60_000}
            )
        assert again_said.outcome is Outcome.DUPLICATE
        assert values(two.tables["r2"]) == [1, 3]


def r2_active(table: Table) -> str:
    return table.replica.table.replica("r2").is_active
