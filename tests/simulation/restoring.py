"""ZooKeeper loses the table in a storm, or goes back to what it was a while ago, and SYSTEM RESTORE
REPLICA is said on every server (P37).

It happens while no client waits for an answer: what an insert of before is known by is in its
parts, until they are merged. And while no part is on a disk that nobody has announced: with every
process of the servers, as when all machines are switched off; or servers, workers and upkeep of
some live on, in their sessions but for the one that kept the replica active, and with all that they
remember of the nodes of before. (When ZooKeeper goes back, no session outlives that.)
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress

from rmt_pipeline.protocol.inserts import ids
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.life.restore import restore
from rmt_pipeline.replica.life.restoring import NothingToRestore
from rmt_pipeline.replica.readable import note_active
from rmt_pipeline.replica.replica import Memory, Replica
from rmt_pipeline.replica.upkeep.rewound import remember_log, remember_replicas
from rmt_pipeline.store import layout
from rmt_pipeline.zookeeper.keeper import Delete
from tests.simulation.checkers import outside_store
from tests.simulation.ledger import Ledger, inserted_as, is_inside
from tests.support.cluster import TABLE_SETTINGS, Cluster, Context, Site
from tests.support.fake_keeper import FakeZooKeeper, Node
from tests.support.world import Process

LOOKS = 100


LIVE_ON = 0.6  # of the servers, where any do


def restore_some(
    cluster: Cluster,
    ledger: Ledger,
    times: int,
    *,
    some_live_on: bool = False,
    goes_back: bool = False,
    last_changes: Callable[[], None] | None = None,
) -> None:
    """`last_changes` are made shortly before ZooKeeper loses the table. Then parts of merges and
    mutations may be there that nobody has announced, too. `goes_back`: it has an older copy.
    """
    world, is_changed = cluster.world, last_changes is not None
    for _ in range(times):
        world.sleep_s(world.rng.uniform(0.3, 2.0))
        copy = dict(world.zookeeper.nodes)
        if goes_back:
            world.sleep_s(world.rng.uniform(0.0, 1.0))
        if last_changes is not None and _wait_until_quiet(cluster, ledger, is_changed):
            last_changes()
        if _wait_until_quiet(cluster, ledger, is_changed):
            if not goes_back:
                lose(cluster, ledger, _drawn(cluster) if some_live_on else ())
                restore_everywhere(cluster)
            elif _is_older(cluster, copy):
                go_back(cluster, ledger, copy, _drawn(cluster) if some_live_on else ())
                restore_everywhere(cluster, begun=False, until_all_ended=some_live_on)
        if world.is_calm:
            break


def _wait_until_quiet(cluster: Cluster, ledger: Ledger, is_changed: bool) -> bool:
    """Return whether it was, before the calm and before long."""
    for _ in range(LOOKS):
        if cluster.world.is_calm or is_quiet(cluster, ledger, is_changed):
            break
        cluster.world.sleep_s(0.02)
    return not cluster.world.is_calm and is_quiet(cluster, ledger, is_changed)


def is_quiet(cluster: Cluster, ledger: Ledger, is_changed: bool) -> bool:
    nodes = cluster.world.zookeeper.nodes
    return all(insert.is_over for insert in ledger.inserts) and all(
        site.is_created
        and site.paths.parts in nodes
        and {
            str(part)
            for part in outside_store(site).parts()
            if not (is_changed and (part.level or part.mutation))
        }
        <= nodes[site.paths.parts].children
        for site in cluster.sites.values()
    )


def _drawn(cluster: Cluster) -> list[Site]:
    rng = cluster.world.rng
    return [site for site in cluster.sites.values() if rng.random() < LIVE_ON]


def lose(cluster: Cluster, ledger: Ledger, living: Collection[Site] = ()) -> None:
    """`living`: what has a server there goes on."""
    world = cluster.world
    _end(cluster, ledger, living)
    world.note("zookeeper", "loses the table", "")
    table = [path for path in world.zookeeper.nodes if path.startswith(cluster.table.root)]
    session = world.zookeeper.connect()
    session.multi([Delete(path) for path in sorted(table, reverse=True)])
    world.zookeeper.expire(session.session_id)


def _is_older(cluster: Cluster, copy: Mapping[str, Node]) -> bool:
    """Whether something was logged since, and nobody was restoring the table then."""
    log = copy.get(cluster.table.log)
    now = cluster.world.zookeeper.nodes[cluster.table.log].creations
    return (log is None or log.creations < now) and cluster.table.restoring not in copy


def go_back(
    cluster: Cluster,
    ledger: Ledger,
    copy: Mapping[str, Node],
    living: Collection[Site] = (),
) -> None:
    """`living`: what has a server there goes on, in new sessions. What it noted last of the log is
    on its disk by then: servers do not sync it, and a host that loses its power within a moment of
    it could not tell that ZooKeeper is older.
    """
    world = cluster.world
    _end(cluster, ledger, living)
    for site in living:
        if site.host.disk.modified_s(site.path(layout.LOG_SEEN)) is not None:
            site.host.disk.fsync(site.path(layout.LOG_SEEN))
            site.host.disk.fsync_directory(site.root)
    for process in [one for host in world.everybody for one in host.processes]:
        for session in process.sessions:
            world.expire(session)
    world.note("zookeeper", "goes back", f"to a log of {copy[cluster.table.log].creations}")
    world.zookeeper.go_back(copy)


def _end(cluster: Cluster, ledger: Ledger, living: Collection[Site] = ()) -> None:
    world, sites = cluster.world, list(cluster.sites.values())
    for site in sites:  # as each server does while it runs
        replica = replica_of(cluster, site, world.zookeeper)
        remember_log(replica)
        remember_replicas(replica)
        note_active(replica)
        world.zookeeper.expire(replica.session.session_id)
        if site in living:
            cluster.end_passing(site)
            active = world.zookeeper.nodes.get(site.paths.is_active)
            if active is not None:
                world.zookeeper.expire(active.owner)
        else:
            cluster.switch_off(site, for_s=world.rng.uniform(0.0, 1.0))
    ledger.lose_zookeeper(
        known={part for site in sites for part in blocks_known_by(site)},
        held={block for site in sites for block in _blocks_held_by(site, ledger)},
        drops={one for site in sites for one in outside_store(site).drops.ranges()},
        reached=versions_of(
            ledger, (part for site in sites for part in outside_store(site).parts())
        ),
        structure=max(site.definition.metadata_version for site in sites if site.definition),
    )


def blocks_known_by(site: Site) -> set[PartName]:
    """Blocks that the parts of this disk are known by."""
    store = outside_store(site)
    return {part for part in store.parts() if store.manifest(part).insert_id == ids.BY_ROWS}


def _blocks_held_by(site: Site, ledger: Ledger) -> Iterator[PartName]:
    """Those of which rows are in a part of this disk."""
    for part in outside_store(site).parts():
        for row in map(inserted_as, site.rows(part)):
            yield from (one for one in ledger.blocks.get(row, ()) if part.contains(one))


def versions_of(ledger: Ledger, parts: Iterable[PartName]) -> dict[PartName, int]:
    """By block, up to which version one of these parts that stand for it has its mutations."""
    found = dict.fromkeys(ledger.all_blocks(), 0)
    for part in parts:
        for block in filter(lambda one: is_inside(one, part), found):
            found[block] = max(found[block], part.mutation)
    return found


def restore_everywhere(
    cluster: Cluster, *, begun: bool = True, until_all_ended: bool = False
) -> None:
    """On one server after the other, or on several at once, until all have announced their parts.
    Who is the last, and dies, is gone on with when a server starts. Unless it has `begun`, the
    replicas' nodes are there, and nobody is waited for yet. `until_all_ended`: who says it twice
    begins it again, perhaps after all have announced theirs, and is told to say it once more.
    """
    world, nodes = cluster.world, cluster.world.zookeeper.nodes
    waiting = {site.replica for site in cluster.sites.values() if not begun}

    def is_left(site: Site) -> bool:
        said = nodes.get(cluster.table.restoring_replica(site.replica))
        if said is not None:
            waiting.discard(site.replica)
        if site.replica in waiting:
            return True
        return site.paths.host not in nodes or (said is not None and not said.data)

    def say(context: Context) -> None:
        with suppress(NothingToRestore):
            restored = restore(context.replica(), b"test")
            assert restored.left_out == (), restored.words()
        waiting.discard(context.site.replica)

    said: list[Process] = []
    while True:
        left = [site for site in cluster.sites.values() if is_left(site)]
        if not left:
            if not until_all_ended or not any(process.is_alive for process in said):
                return
            world.sleep_s(0.05)
            continue
        site = world.rng.choice(left)
        if cluster.is_down(site):
            world.sleep_s(0.05)
            continue
        process = cluster.spawn(site, "restore", say)
        said.append(process)
        while world.rng.random() < 0.9 and process.is_alive:
            world.sleep_s(0.05)


def replica_of(cluster: Cluster, site: Site, zookeeper: FakeZooKeeper) -> Replica:
    """In a process to which nothing happens."""
    assert site.definition is not None
    replica = Replica(
        definition=site.definition,
        keeper=zookeeper.connect(),
        store=outside_store(site),
        clock=zookeeper.clock,
        ids=cluster.world,
        settings=TABLE_SETTINGS,
        worker=f"test of {site.replica}",
        memory=Memory(),
    )
    replica.update_definition = lambda change: change(replica.definition)
    return replica
