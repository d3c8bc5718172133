"""Worlds in which mutations are created and killed while rows come, parts merge and hosts die.

The mutations are for no row, so that every promise about rows must hold as without them; what they
do to parts' names, to merges and to the queue is all there.
"""

import pytest

from rmt_pipeline.protocol.formats import MutationEntry
from rmt_pipeline.protocol.part_set import PartSet
from rmt_pipeline.replica.mutations import create_mutation, kill_mutation
from tests.simulation import run as runs
from tests.simulation.checkers import CHECKERS, paths_of, what_is_left
from tests.support.cluster import TABLE, Cluster, Context
from tests.support.schedule import Swarm
from tests.support.world import Host, World

SEEDS = 70  # 69 found a queue entry that was in neither of two listings
MUTATIONS = 4
COMMAND = "DELETE WHERE row = 'nobody'"


def mutate(context: Context) -> None:
    create_mutation(context.replica(), COMMAND)


def kill(context: Context) -> None:
    ids = context.keeper().children(TABLE.mutations)
    if ids:
        kill_mutation(context.replica(), ids[-1])


def alter_now_and_then(world: World, cluster: Cluster) -> None:
    """In a process of a machine that never fails; each statement runs on some host."""
    for number in range(MUTATIONS):
        world.sleep_s(world.rng.uniform(0.0, 1.0))
        if world.is_calm:
            return
        site = world.rng.choice(list(cluster.sites.values()))
        action = kill if number == MUTATIONS - 1 and world.rng.random() < 0.5 else mutate
        cluster.spawn(site, action.__name__, action)


def mutations_of(world: World) -> dict[str, MutationEntry]:
    nodes = world.zookeeper.nodes
    return {
        name: MutationEntry.decode(nodes[TABLE.mutation(name)].data)
        for name in sorted(nodes[TABLE.mutations].children)
    }


def what_is_unfinished(run: runs.Run) -> str | None:
    left = what_is_left(run.cluster, run.ledger)
    if left is not None:
        return left
    newest = max(mutations_of(run.world), default="")
    for site in run.finished.sites:
        pointer = run.world.zookeeper.nodes[paths_of(site).mutation_pointer].data.decode()
        if pointer < newest:
            return f"{site.replica} has not finished mutation {newest}"
    return None


def every_part_has_its_mutations(run: runs.Run) -> None:
    for site in run.finished.sites:
        for part in PartSet(run.finished.promised(site)):
            for name, entry in mutations_of(run.world).items():
                version = entry.version_in(part.partition)
                assert (
                    version is None
                    or part.data_version >= version
                    or (part.block_min > version)
                ), f"{site.replica}: {part} lacks mutation {name} with version {version}"


@pytest.mark.parametrize("seed", range(1, 1 + SEEDS))
def test_mutations_reach_every_part_and_cost_no_row(seed: int) -> None:
    run = runs.build(Swarm(seed))
    try:
        world, cluster = run.world, run.cluster
        desk = Host("statements", world.hosts["h1"].disk, [0.0])
        world.start_process(desk, "alter").spawn(lambda: alter_now_and_then(world, cluster))
        world.run(runs.STORM_STEPS)
        runs.settle(run)
        world.run(runs.CALM_STEPS_MAX, lambda: what_is_unfinished(run) is None)
        assert what_is_unfinished(run) is None
        runs.check(run, CHECKERS)
        every_part_has_its_mutations(run)
    finally:
        run.world.end()
