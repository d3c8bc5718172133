"""ZooKeeper goes back to what it was in a storm, in worlds drawn from seeds: nothing is
set aside, nobody inserts, and the table comes back from the disks with every row (P37).
"""

import pytest

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import ReplicaDropped
from rmt_pipeline.protocol.nodes.formats import ReplicaAddress
from rmt_pipeline.replica.life.restore import restore
from rmt_pipeline.replica.life.restoring import NothingToRestore
from rmt_pipeline.replica.life.start import start
from rmt_pipeline.replica.readable import note_active
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.rewound import (
    ZooKeeperIsOlder,
    remember_log,
    remember_replicas,
)
from rmt_pipeline.system import SystemClock
from rmt_pipeline.zookeeper.keeper import Create, Delete
from tests.simulation.checkers import Finished, outside_store
from tests.simulation.restoring import replica_of
from tests.simulation.run import STORM_STEPS, Run, build, forgetful, live_on
from tests.support.cluster import Site
from tests.support.fake_keeper import FakeZooKeeper, Node
from tests.support.schedule import Swarm

SEEDS = range(1, 12)
ROUNDS_MAX = 4
Nodes = dict[str, Node]


def older(run: Run, nodes: Nodes, zxid: int) -> FakeZooKeeper:
    """Another one with these nodes, in which no session is left."""
    found = FakeZooKeeper(run.world.zookeeper.clock)
    found.nodes, found.zxid = nodes, zxid
    held = [Delete(path) for path, node in nodes.items() if node.owner]
    if held:
        found.connect().multi(held)
    return found


def begin(run: Run, site: Site, zookeeper: FakeZooKeeper) -> Replica:
    replica = replica_of(run.cluster, site, zookeeper)
    address = ReplicaAddress(site.host.name, 9009, 9000, "default", "t")
    start(replica, identity=site.replica, incarnation="again", address=address)
    return replica


def storm(seed: int) -> tuple[Run, Nodes, int]:
    """A world after its calm, and what ZooKeeper was in between: of this seed or of the next one
    that is drawn, if nothing was logged after the copy.
    """
    while True:
        run, nodes, zxid = _storm(seed)
        log = run.cluster.table.log
        before, after = nodes.get(log), run.finished.nodes[log]
        if before is None or before.stat.next_sequence < after.stat.next_sequence:
            return run, nodes, zxid
        seed += len(SEEDS)


def _storm(seed: int) -> tuple[Run, Nodes, int]:
    run = build(Swarm(seed))
    with pytest.MonkeyPatch.context() as patch, forgetful():
        patch.setattr(limits, "INSERT_BYTES_MAX", run.commit_bytes_max)
        try:
            run.world.run(run.world.rng.randrange(STORM_STEPS // 2, STORM_STEPS))
            copy = dict(run.world.zookeeper.nodes), run.world.zookeeper.zxid
            live_on(run)
            for site in run.finished.sites:  # as each server does while it runs
                replica = replica_of(run.cluster, site, run.world.zookeeper)
                remember_log(replica)
                remember_replicas(replica)
                note_active(replica)
        finally:
            run.world.end()
    return run, *copy


def test_what_a_session_saw_is_not_known_any_more_once_zookeeper_has_gone_back() -> None:
    zookeeper = FakeZooKeeper(SystemClock())
    before, other = zookeeper.connect(), zookeeper.connect()
    before.multi([Create("/a", b"")])
    copy = dict(zookeeper.nodes)
    before.multi([Create("/a/b", b"")])
    zookeeper.expire(before.session_id)
    other.multi([Create("/c", b"")])
    assert before.node_seen("/a/b") is not None
    assert before.node_seen("/c") is None
    zookeeper.go_back(copy)
    assert before.node_seen("/a") is None


@pytest.mark.parametrize("seed", SEEDS)
def test_what_zookeeper_has_forgotten_comes_back_from_the_disks(seed: int) -> None:
    run, nodes, zxid = storm(seed)
    sites = run.finished.sites
    there = {site.replica: run.finished.texts(site) for site in sites}
    kept = {site.replica: outside_store(site).detached() for site in sites}
    run.world.zookeeper = older(run, nodes, zxid)
    sites.sort(key=lambda site: site.paths.host in nodes)  # who came since is refused at first

    for site in sites:
        with pytest.raises((ZooKeeperIsOlder, ReplicaDropped)):
            begin(run, site, run.world.zookeeper)
        assert outside_store(site).detached() == kept[site.replica]

    for _ in range(ROUNDS_MAX):
        for site in sites:
            try:
                restored = restore(replica_of(run.cluster, site, run.world.zookeeper), b"test")
            except (NothingToRestore, ZooKeeperIsOlder):
                continue
            assert restored.left_out == (), restored.words()
    for site in sites:
        begin(run, site, run.world.zookeeper)
    after = Finished(run.cluster, run.ledger)
    for site in sites:
        assert after.texts(site) == there[site.replica], f"rows of {site.replica}"
        assert outside_store(site).detached() == kept[site.replica]
