"""DROP TABLE by a simulated operator, and CREATE of the same path."""

import random

from tests.support.cluster import LASTING, Cluster, Site
from tests.support.world import SESSION_TIMEOUT_S

STOPPED = 0.5  # of what runs on a server while its table is dropped


def remove_some(cluster: Cluster, times: int) -> None:
    """On one server, or on all; then it is created again, by and by. When all is over it is
    everywhere. Who is created while the last of the others is dropped would have nobody to
    clone, and a person has to decide.
    """
    world, rng = cluster.world, cluster.world.rng
    for _ in range(times):
        world.sleep_s(rng.uniform(0.3, 2.0))
        if world.is_calm:
            break
        there = [site for site in cluster.sites.values() if not site.is_out]
        if not all(site.is_created for site in there):
            continue
        if rng.random() < 0.4:
            there = [site for site in there if _is_beside_others(cluster, site)]
            there = rng.sample(there, min(1, len(there)))
        rng.shuffle(there)
        before = {site.replica: site.drops for site in there}
        while todo := [site for site in there if site.drops == before[site.replica]]:
            dropping = []
            for site in todo:
                _stop_some(cluster, site)
                dropping.append(cluster.drop_table(site))
                while rng.random() < 0.7 and dropping[-1].is_alive:
                    world.sleep_s(0.05)
            while any(process.is_alive for process in dropping):
                world.sleep_s(0.05)
        _create_again(cluster, rng.randint(0, len(there)))
    _create_again(cluster, len(cluster.sites))


def _stop_some(cluster: Cluster, site: Site) -> None:
    """What has the table in hand may go on when there is another one in its place, in a session
    that lives.
    """
    world = cluster.world
    rng = random.Random(f"{world.steps} {site.replica}")
    for process in site.host.processes:
        name = process.name.removeprefix(f"{cluster.root} ")
        if name not in LASTING and rng.random() < STOPPED:
            process.frozen_until_s = world.now_s + rng.uniform(0.5, SESSION_TIMEOUT_S)
            world.note(str(process), "is stopped", "")


def _is_beside_others(cluster: Cluster, site: Site) -> bool:
    """Whether another replica has a state of its own, which a lost one could take over."""
    nodes = cluster.world.zookeeper.nodes
    states = [
        nodes.get(other.paths.is_lost) for other in cluster.sites.values() if other is not site
    ]
    return any(node is not None and node.data != b"1" for node in states)


def _create_again(cluster: Cluster, some: int) -> None:
    """On so many of the servers on which it was dropped, once nothing is left of it."""
    while any(site.unfinished is not None for site in cluster.sites.values()):
        cluster.world.sleep_s(0.05)
    for site in cluster.sites.values():
        if some and site.drops and site.is_out:
            some -= 1
            cluster.boot(site.replica)
