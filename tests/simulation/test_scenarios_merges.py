"""Scenarios of spec §16 about merges and mutations on several replicas; see `test_scenarios`."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from rmt_pipeline.protocol.nodes.formats import MutationEntry
from rmt_pipeline.replica.assign.merges import (
    Assigned,
    Nothing,
    assign_merge,
    merge_view,
    optimize_partition,
    select_and_assign,
)
from rmt_pipeline.replica.mutations.mutations import (
    MutationStatus,
    create_mutation,
    kill_mutation,
    load_mutations,
)
from rmt_pipeline.replica.mutations.mutations import status_of_mutations as status
from tests.simulation.scene import (
    Scene,
    commits,
    inserting,
    locks,
    new_partition,
    writes_mutation,
)
from tests.support.cluster import TABLE, Context
from tests.support.sim_keeper import SimKeeper
from tests.support.world import World

DELETE = "DELETE WHERE startsWith(row, 'x')"


def test_of_two_merges_from_the_same_state_one_is_assigned() -> None:
    """M3."""
    with Scene() as scene:
        for row in "xyz":
            scene.insert("r1", row)
        scene.work("r1", "r2")
        view = scene.do("r1", lambda context: merge_view(context.replica()))
        theirs = scene.do("r2", lambda context: merge_view(context.replica()))
        parts = view.active.in_partition("a")
        first = scene.do("r1", lambda context: assign_merge(context.replica(), view, parts[:2]))
        second = scene.do(
            "r2", lambda context: assign_merge(context.replica(), theirs, parts[1:])
        )
        assert isinstance(first, Assigned)
        assert second == Nothing("another replica assigned something to the log first", True)


def test_optimizing_nothing_and_one_part() -> None:
    """M10."""
    with Scene() as scene:
        assert isinstance(scene.merge("r1"), Nothing)
        scene.insert("r1", "x")
        scene.work("r1")
        assigned = scene.merge("r1")
        assert isinstance(assigned, Assigned)
        assert str(assigned.result) == "a_0_0_1"


def test_rows_in_flight_before_a_mutation_are_mutated_and_later_ones_are_not() -> None:
    """U1, U2."""
    with Scene() as scene:
        held = scene.hold("r1", inserting("x1"), commits)
        mutation = scene.do("r2", lambda context: create_mutation(context.replica(), DELETE))
        scene.insert("r2", "x2")
        scene.work("r1", "r2")
        [one] = scene.do(
            "r2", lambda context: status(context.replica(), load_mutations(context.replica()))
        )
        assert not one.is_done
        assert "block 0" in one.waits_for
        scene.release(held)
        scene.run.ledger.mutations[mutation] = MutationEntry.decode(
            scene.nodes[TABLE.mutation(mutation)].data
        )
        scene.cluster.workers = 1
        for site in scene.cluster.sites.values():
            scene.cluster.boot_workers(site)
        scene.let(lambda: scene.rows("r1") == scene.rows("r2") == ["x2"])


def test_a_block_that_commits_between_the_reads_of_a_status_holds_the_mutation_up() -> None:
    """U2, P30. Whichever of locks and log is read first: then the block between commits."""
    with Scene() as scene:
        held = scene.hold("r1", inserting("x"), commits)
        scene.do("r2", lambda context: create_mutation(context.replica(), DELETE))

        def look(context: Context) -> list[MutationStatus]:
            mutations = load_mutations(context.replica())
            fire = firing_after(context.keeper(), held.waker.wake, scene.world)
            fire("children_many")
            fire("get_many")
            fire("get")
            fire("children_stat")
            return status(context.replica(), mutations)

        [one] = scene.do("r2", look)
        assert not one.is_done
        scene.let(lambda: not held.process.is_alive)
        assert [str(part) for part in held.results[0].parts] == ["a_0_0_0"]


def test_a_partition_that_appears_while_a_mutation_is_created_is_in_it() -> None:
    """U3."""
    with Scene() as scene:
        scene.insert("r1", "x")
        held = scene.hold(
            "r1", lambda context: create_mutation(context.replica(), DELETE), locks
        )
        scene.do("r2", lambda context: context.keeper().multi(new_partition()))
        mutation = scene.release(held)
        entry = MutationEntry.decode(scene.nodes[TABLE.mutation(mutation)].data)
        assert [partition for partition, _ in entry.block_numbers] == ["a", "b"]


def test_of_two_mutations_at_once_ids_and_numbers_grow_together() -> None:
    """U3, P29."""
    with Scene() as scene:
        scene.insert("r1", "x")
        held = scene.hold(
            "r1", lambda context: create_mutation(context.replica(), DELETE), writes_mutation
        )
        other = scene.do("r2", lambda context: create_mutation(context.replica(), DELETE))
        mine = scene.release(held)
        numbers = [
            MutationEntry.decode(scene.nodes[TABLE.mutation(name)].data).version_in("a")
            for name in sorted((mine, other))
        ]
        assert mine > other
        assert numbers == sorted(numbers)


def test_a_killed_mutation_lets_the_next_one_through() -> None:
    """U5. Parts carry its version although nothing was done."""
    with Scene() as scene:
        scene.insert("r1", "x")
        scene.work("r1", "r2")
        first = scene.do("r1", lambda context: create_mutation(context.replica(), DELETE))
        scene.do("r1", lambda context: kill_mutation(context.replica(), first))
        update = "UPDATE row = concat(row, '+') WHERE startsWith(row, 'x')"
        scene.do("r1", lambda context: create_mutation(context.replica(), update))
        scene.cluster.workers = 1
        for site in scene.cluster.sites.values():
            scene.cluster.boot_workers(site)
        scene.let(lambda: scene.rows("r1") == scene.rows("r2") == ["x+"])


def test_a_full_queue_takes_no_merge() -> None:
    """M9."""
    with Scene() as scene:
        for row in "wxyz":
            scene.insert("r1", row)
        scene.work("r1")
        scene.do("r1", first_two_merged)
        entries = len(scene.children(TABLE.log))

        def choose(context: Context) -> Assigned | Nothing:
            replica = context.replica()
            replica.settings = replace(replica.settings, max_replicated_merges_in_queue=1)
            return select_and_assign(replica, aggressive=True)

        outcome = scene.do("r1", choose)
        assert isinstance(outcome, Nothing)
        assert "max_replicated_merges_in_queue is 1" in outcome.reason
        assert len(scene.children(TABLE.log)) == entries


def first_two_merged(context: Context) -> Assigned | Nothing:
    view = merge_view(context.replica())
    return assign_merge(context.replica(), view, view.active.in_partition("a")[:2])


def test_no_merge_spans_the_number_of_a_mutation_that_is_being_written() -> None:
    """P15, P29. Or rows with a greater number would be mutated with the others."""
    with Scene() as scene:
        scene.insert("r1", "x1")
        held = scene.hold(
            "r1", lambda context: create_mutation(context.replica(), DELETE), writes_mutation
        )
        scene.insert("r1", "x2")
        scene.work("r1", "r2")
        assert isinstance(scene.merge("r2"), Nothing)
        scene.release(held)
        assert isinstance(scene.merge("r2"), Nothing), "x1 has to be mutated first"


def test_a_block_that_commits_between_the_reads_of_the_predicate_is_seen() -> None:
    """M2, P15. Whichever of locks and log is read first: then the block between commits."""
    with Scene() as scene:
        scene.insert("r1", "x")
        held = scene.hold("r2", inserting("y"), commits)
        scene.insert("r1", "z")
        scene.work("r1")

        def merge(context: Context) -> Assigned | Nothing:
            fire = firing_after(context.keeper(), held.waker.wake, scene.world)
            fire("children_many")
            fire("get_many")
            fire("get")
            fire("children_stat")
            return optimize_partition(context.replica(), "a", final=True, skip_merged=False)

        scene.do("r1", merge)
        scene.work("r1", "r2")
        assert scene.rows("r1") == scene.rows("r2") == ["x", "y", "z"]


def firing_after(
    keeper: SimKeeper, fire: Callable[[], None], world: World
) -> Callable[[str], None]:
    """After the first answer about the log or the numbers in flight others have a second."""
    fired: list[bool] = []

    def watch(method: str) -> None:
        right = getattr(keeper, method)

        def asked(paths: str | Sequence[str], *args: object) -> object:
            answer = right(paths, *args)
            about = paths if isinstance(paths, str) else next(iter(paths), "")
            if not fired and about in (TABLE.log, TABLE.partition("a")):
                fired.append(True)
                fire()
                world.sleep_s(1.0)
            return answer

        setattr(keeper, method, asked)

    return watch
