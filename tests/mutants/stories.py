"""What happens step by step until a planted bug has surely shown: then everybody comes to work, the
world comes to rest, and all checks look. A change of what random worlds do changes nothing here.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Literal

from rmt_pipeline.exchange.peers import FetchRequest
from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import Corruption, OutcomeUnknown, Unavailable
from rmt_pipeline.protocol.inserts.ids import BY_ROWS
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.life.restore import restore
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.upkeep.check import refetch
from rmt_pipeline.replica.work.step import Step
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.zookeeper.keeper import Create, Delete, Op, Refused, Stat
from tests.crash.scenarios import drop_it
from tests.simulation.altering import add_column, alter
from tests.simulation.dropping import WAITS, drop
from tests.simulation.keeping import attach, fetch, freeze, unfreeze
from tests.simulation.ledger import Change, ClientInsert, Read
from tests.simulation.replacing import put, put_beside
from tests.simulation.restoring import lose
from tests.simulation.run import LATER_S
from tests.simulation.scene import Scene, commits, fetch_step, locks, merging, publishes
from tests.simulation.size import Size
from tests.simulation.workload import Workload, clean_up
from tests.support.cluster import TABLE, Context, SimWaker
from tests.support.executor import Executor
from tests.support.sim_rows import FILE, rows_on, stage_rows
from tests.support.world import Killed

Story = Callable[[Scene], None]
SIZE = Size(hosts=2, partitions=2, clients=0, inserts_each=0, rows_max=2)


def insert(scene: Scene, number: int, shared: ClientInsert | None = None) -> ClientInsert:
    """One that somebody is about to make, of two rows in each of two partitions; with `shared`,
    those in the first one are of that insert.
    """
    rows = {
        partition: [f"{number:03}.{partition}.{row}" for row in range(2)] for partition in "ab"
    }
    one = ClientInsert(number, rows, token="", gives_up=True)
    if shared is not None:
        rows["a"] = shared.rows["a"]
        for both in (one, shared):
            both.shared.update(rows["a"])
    scene.run.ledger.inserts.append(one)
    return one


def making(one: ClientInsert, *, quorum: int = 1) -> Callable[[Context], None]:
    settings = QuerySettings(insert_quorum=str(quorum))

    def run(context: Context) -> None:
        now_s = int(context.clock.now_s())
        staged = [
            stage_rows(context.store, partition, rows, created_s=now_s, insert_id=BY_ROWS)
            for partition, rows in one.rows.items()
        ]
        one.answers.append(context.table().commit(staged, token=one.token, settings=settings))

    return run


def inserts(scene: Scene, *numbers: int, at: str = "r1") -> None:
    for number in numbers:
        scene.do(at, making(insert(scene, number)))


def dies(scene: Scene, act: Callable[[Context], None], after: Callable[[Op], bool]) -> None:
    """A process of r1 dies right after its first multi with such an operation."""

    def run(context: Context) -> None:
        keeper = context.keeper()
        multi = keeper.multi

        def last(ops: Sequence[Op]) -> list[str]:
            done = multi(ops)
            if any(map(after, ops)):
                scene.world.end_process(context.process, kill_others=True)
                raise Killed
            return done

        keeper.multi = last  # type: ignore[method-assign]
        act(context)

    process = scene.cluster.spawn(scene.cluster.sites["r1"], "dies", run)
    scene.let(lambda: not process.is_alive)


def an_insert(scene: Scene) -> None:
    inserts(scene, 0)


def a_block_of_another_insert(scene: Scene) -> None:
    """On another replica; and merges to follow."""
    first = insert(scene, 0)
    scene.do("r1", making(first))
    scene.do("r2", making(insert(scene, 1, shared=first)))
    scene.work("r1", "r2")
    scene.merge("r1")


def who_inserts_dies_after_the_first_commit(scene: Scene) -> None:
    dies(scene, making(insert(scene, 0)), after=commits)


def who_inserts_dies_with_its_numbers(scene: Scene) -> None:
    inserts(scene, 0)
    dies(scene, making(insert(scene, 1)), after=locks)


def who_inserts_for_two_dies_after_the_commit(scene: Scene) -> None:
    """Its server is back before r2 fetches: else the quorum fails, and nobody waits for it."""
    dies(scene, making(insert(scene, 0), quorum=2), after=commits)
    scene.let(lambda: scene.cluster.sites["r1"].paths.is_active in scene.nodes)
    scene.run.restarts = False


def an_insert_without_an_answer(how: Literal["lost", "late", "done"]) -> Story:
    """Its commit was not sent, is still under way, or has happened. Its session goes on."""

    def story(scene: Scene) -> None:
        said, late = [], list[Sequence[Op]]()

        def run(context: Context) -> None:
            keeper = context.keeper()
            multi = keeper.multi

            def unanswered(ops: Sequence[Op]) -> list[str]:
                while late:  # before what the session says next
                    with suppress(Refused):
                        multi(late.pop())
                if said or not any(map(commits, ops)):
                    return multi(ops)
                said.append(how)
                if how == "done":
                    multi(ops)
                elif how == "late":
                    late.append(ops)
                raise OutcomeUnknown("no answer")

            keeper.multi = unanswered  # type: ignore[method-assign]
            making(insert(scene, 0))(context)

        with suppress(OutcomeUnknown, Unavailable):
            scene.do("r1", run)
        assert said

    story.__name__ = f"an_insert_whose_commit_is_{how}"
    return story


def goes_away(scene: Scene, replica: str = "r1") -> None:
    """Its server, not its host: other processes live on."""
    site = scene.cluster.sites[replica]
    assert site.server is not None
    site.is_out = True
    scene.world.end_process(site.server, kill_others=True)
    scene.let(lambda: TABLE.replica(replica).is_active not in scene.nodes)


def a_quorum_fails_while_its_insert_waits(scene: Scene) -> None:
    """Whoever inserted lives on, while his replica is away and the other one gives the part up."""
    waiting = scene.cluster.spawn(
        scene.cluster.sites["r1"], "insert", making(insert(scene, 0), quorum=2)
    )
    scene.let(lambda: bool(scene.children(TABLE.quorum_parallel)))
    goes_away(scene)
    scene.pull("r2")
    scene.step("r2", "fetch")
    assert scene.children(TABLE.quorum_failed_parts)
    scene.boot("r1")
    scene.let(lambda: not waiting.is_alive)


def who_has_the_rows_comes_back_before_their_quorum_fails(scene: Scene) -> None:
    dies(scene, making(insert(scene, 0), quorum=2), after=commits)
    goes_away(scene)
    scene.pull("r2")
    held = scene.hold("r2", fetch_step, fails)
    scene.boot("r1")
    scene.release(held)


def fails(op: Op) -> bool:
    """Notes that a quorum failed."""
    return isinstance(op, Create) and op.path.startswith(f"{TABLE.quorum_failed_parts}/")


def the_log_goes_before_who_pulls_has_read_it(scene: Scene) -> None:
    """It knows where the queue ended before; others pulled the rest since, and it was removed."""
    inserts(scene, 0)
    scene.pull("r1")
    waker, waiting = SimWaker(scene.world), []

    def slow(context: Context) -> None:
        replica, keeper = context.replica(), context.keeper()
        get_many = keeper.get_many

        def read(paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
            if not waiting and replica.table.log in paths:
                waiting.extend(paths)
                waker.wait_s(1e6)
            return get_many(paths)

        keeper.get_many = read  # type: ignore[method-assign]
        pull_log(replica)

    process = scene.cluster.spawn(scene.cluster.sites["r1"], "slow", slow)
    scene.let(lambda: bool(waiting))
    inserts(scene, 1, 2, 3, 4)
    scene.work("r1", "r2")
    scene.world.now_s += LATER_S
    scene.do("r2", clean_up)
    waker.wake()
    scene.let(lambda: not process.is_alive)


def what_is_dropped_of_an_insert_in_part(scene: Scene) -> None:
    """Its first partition, before the second one is in."""
    fits, limits.INSERT_BYTES_MAX, seen = limits.INSERT_BYTES_MAX, 1, list[Op]()

    def second(op: Op) -> bool:
        seen.extend([op] if commits(op) else [])
        return len(seen) > 1

    try:
        held = scene.hold("r1", making(insert(scene, 0)), second)
        scene.do("r2", drop("a"))
        scene.release(held)
    finally:
        limits.INSERT_BYTES_MAX = fits
    scene.run.commit_bytes_max = 1


def what_is_merged_is_read_before_it_is_forgotten(scene: Scene) -> None:
    inserts(scene, 0, 1)
    scene.work("r1", "r2")
    scene.merge("r1")
    scene.work("r1", "r2")

    scene.do("r1", reading(scene))


def reading(
    scene: Scene, meanwhile: Callable[[Context], None] | None = None
) -> Callable[[Context], None]:
    """`meanwhile` happens while what is read is pinned."""

    def run(context: Context) -> None:
        with context.table().snapshot() as snapshot:
            if meanwhile is not None:
                meanwhile(context)
            disk = context.process.host.disk
            rows = [row for part in snapshot.parts for row in rows_on(disk, part.name)]
        scene.run.ledger.reads.append(Read(context.site.replica, rows))

    return run


def what_is_read_is_replaced_and_read_again(scene: Scene) -> None:
    """The first reader still reads: what he reads does not leave the disk."""
    inserts(scene, 0)
    scene.work("r1", "r2")
    replace, again = put(scene.run.ledger, insert(scene, 1).rows), reading(scene)

    def replaced(context: Context) -> None:
        replace(context)
        again(context)

    scene.do("r1", reading(scene, meanwhile=replaced))


def an_insert_comes_before_a_rewrite_has_its_numbers(scene: Scene) -> None:
    """The rows that stay were read before it."""
    inserts(scene, 0)
    scene.work("r1", "r2")
    rewrite = put_beside(scene.run.ledger, insert(scene, 1).rows, "none of these rows")
    held = scene.hold("r1", rewrite, locks)
    inserts(scene, 2)
    scene.release(held)


def a_merge_is_fetched_while_its_source_is(scene: Scene) -> None:
    """The follower has neither yet; the replica that merged has both."""
    inserts(scene, 0, 1)
    scene.work("r1")
    scene.merge("r1")
    scene.work("r1")
    scene.pull("r2")
    held = scene.hold("r2", fetch_step, publishes)
    scene.step("r2", "fetch")
    scene.step("r2", "merge")
    scene.release(held)


def what_is_between_comes_in_late(scene: Scene) -> None:
    """The replica that is asked to merge has the first and the last of three parts."""
    inserts(scene, 0)
    inserts(scene, 1, at="r2")
    inserts(scene, 2)
    scene.pull("r1")
    scene.merge("r1")


def a_drop_comes_before_an_insert_commits(scene: Scene) -> None:
    inserts(scene, 0)
    held = scene.hold("r1", making(insert(scene, 1)), commits)
    scene.do("r2", drop("a", "b"))
    scene.release(held)


def a_table_is_created_again_before_an_insert_commits(scene: Scene) -> None:
    """And an insert into the new one has its number."""
    held = scene.hold("r1", making(insert(scene, 0)), commits)
    for site in scene.cluster.sites.values():
        site.is_out, site.is_created = True, False
        assert site.server is not None
        scene.world.end_process(site.server, kill_others=True)
        scene.do(site.replica, lambda context: drop_it(context.keeper(), context.site.replica))
        for name in site.host.disk.list(""):
            site.host.disk.remove_tree(name)
    assert TABLE.root not in scene.nodes
    scene.cluster.boot("r1")
    scene.let(lambda: scene.cluster.sites["r1"].is_serving)
    scene.boot("r2")
    new = scene.hold("r2", making(insert(scene, 1)), commits)
    scene.release(held)
    scene.release(new)


def zookeeper_loses_a_table(scene: Scene) -> None:
    """Of which each replica has an insert that the other has yet to fetch."""
    inserts(scene, 0)
    inserts(scene, 1, at="r2")
    all_is_restored(scene)


def zookeeper_loses_a_table_of_which_a_try_of_an_insert_died(scene: Scene) -> None:
    """When its parts had their names. The next try was answered."""
    one = insert(scene, 0)
    held = scene.hold("r1", making(one), commits)
    scene.world.end_process(held.process, kill_others=True)
    scene.do("r1", making(one))
    all_is_restored(scene)


def zookeeper_loses_a_table_that_one_replica_has_mutated(scene: Scene) -> None:
    """The other one has the rows as they were."""
    inserts(scene, 0)
    scene.work("r1", "r2")
    workload = Workload(scene.cluster, scene.run.ledger, SIZE)
    workload.spawn_mutation(Change("000."), at=scene.cluster.sites["r1"])
    scene.let(lambda: bool(scene.children(TABLE.mutations)))
    scene.do("r1", lambda context: assign_mutations(context.replica()))
    scene.work("r1")
    all_is_restored(scene)


def all_is_restored(scene: Scene) -> None:
    lose(scene.cluster, scene.run.ledger)
    for replica in scene.cluster.sites:
        scene.do(replica, lambda context: restore(context.replica(), b"test"))


def a_part_is_lost_before_its_server_starts(scene: Scene) -> None:
    inserts(scene, 0)
    scene.work("r1", "r2")
    site = scene.cluster.sites["r1"]
    scene.cluster.switch_off(site, for_s=0.0)
    site.host.disk.lose(scene.parts("r1")[0])


def a_replica_is_slow_and_the_log_is_cleaned(scene: Scene) -> None:
    """It lives, and has more to pull than is kept of the log for those that don't."""
    inserts(scene, 0)
    scene.pull("r2")
    inserts(scene, *range(1, 8))
    scene.do("r1", clean_up)
    scene.pull("r2")


def a_file_that_cannot_be_read_any_more(scene: Scene) -> None:
    """Of one replica; the other one has the part whole. Then somebody merges it."""
    inserts(scene, 0, 1)
    scene.work("r1", "r2")
    part, ledger = scene.parts("r1")[0], scene.run.ledger
    ledger.hit.add(part)
    ledger.lost_parts += 1
    scene.cluster.sites["r1"].host.disk.spoil(f"{part}/{FILE}")
    scene.merge("r2")


def a_file_that_cannot_be_read_for_a_moment(scene: Scene) -> None:
    """Of the only copy of a part, by whoever checks it."""
    inserts(scene, 0)
    part = PartName.parse(scene.parts("r1")[0])

    def fails(part: PartName) -> Manifest:
        scene.world.reads_failed.append(("h1", str(part)))
        raise Corruption("input/output error", part=part)

    assert scene.do("r1", lambda context: refetch(context.replica(), part, fails))


def a_fetch_fails_once(scene: Scene) -> None:
    inserts(scene, 0)
    site = scene.cluster.sites["r1"]
    scene.pull("r2")
    site.is_serving = False
    [done, *_] = scene.step("r2", "fetch").done
    assert done.error
    site.is_serving = True


def a_merge(scene: Scene) -> None:
    inserts(scene, 0, 1)
    scene.work("r1", "r2")
    scene.merge("r1")


def a_merge_whose_sources_one_replica_has_not_yet(scene: Scene) -> None:
    """It fetches what comes of the merge, which covers all else that is in its queue."""
    inserts(scene, 0, 1)
    scene.work("r1")
    scene.merge("r1")
    scene.work("r1")
    scene.pull("r2")


def a_replica_comes_back_after_its_log_is_gone(scene: Scene) -> None:
    """Who has it all has still to carry out a merge."""
    inserts(scene, 0)
    scene.work("r1", "r2")
    goes_away(scene, "r2")
    inserts(scene, 1, 2, 3, 4, 5)
    scene.merge("r1")
    scene.pull("r1")
    scene.world.now_s += LATER_S
    scene.do("r1", clean_up)
    assert scene.nodes[TABLE.replica("r2").is_lost].data == b"1"
    scene.cluster.sites["r2"].is_out = False
    scene.boot("r2")


def a_merge_that_comes_out_otherwise(scene: Scene) -> None:
    """On the replica that makes it second."""
    a_merge(scene)
    scene.work("r1")
    scene.pull("r2")

    def otherwise(context: Context) -> Step:
        tools = context.tools()
        tools.merger.merged = lambda rows: sorted(rows, reverse=True)  # type: ignore[attr-defined]
        return Executor(context.replica(), tools, "merge").step(None)

    scene.do("r2", otherwise)


def the_disk_is_cleaned_up_before_an_insert_commits(scene: Scene) -> None:
    """It has taken long, so that its parts are no longer young."""
    inserts(scene, 0)
    held = scene.hold("r1", making(insert(scene, 1)), commits)
    scene.world.now_s += LATER_S
    scene.do("r1", clean_up)
    scene.release(held)


def a_part_that_nobody_knows(scene: Scene) -> None:
    """Its insert had a number, and was never committed."""
    inserts(scene, 0)
    dies(scene, making(insert(scene, 1)), after=locks)
    disk = scene.cluster.sites["r1"].host.disk
    disk.copy("a_0_0_0", "a_1_1_0")


def a_mutation(scene: Scene) -> None:
    inserts(scene, 0)
    workload = Workload(scene.cluster, scene.run.ledger, SIZE)
    workload.spawn_mutation(Change("000.a"), at=scene.cluster.sites["r1"])
    scene.let(lambda: bool(scene.children(TABLE.mutations)))


def mutations_are_cleaned_up_before_they_are_done(scene: Scene) -> None:
    inserts(scene, 0)
    workload = Workload(scene.cluster, scene.run.ledger, SIZE)
    for count, suffix in enumerate(("+1", "+2"), 1):
        workload.spawn_mutation(Change("000.", suffix), at=scene.cluster.sites["r1"])
        scene.let(lambda count=count: len(scene.children(TABLE.mutations)) == count)  # type: ignore[misc]
    scene.do("r1", clean_up)


def two_mutations_one_after_the_other(scene: Scene) -> None:
    """The parts have the first one when the second one is assigned."""
    inserts(scene, 0)
    scene.work("r1", "r2")
    workload = Workload(scene.cluster, scene.run.ledger, SIZE)
    for count, suffix in enumerate(("+1", "+2"), 1):
        workload.spawn_mutation(Change("000.", suffix), at=scene.cluster.sites["r1"])
        scene.let(lambda count=count: len(scene.children(TABLE.mutations)) == count)  # type: ignore[misc]
        scene.do("r1", lambda context: assign_mutations(context.replica()))
        scene.work("r1", "r2")


def a_partition_is_moved(scene: Scene) -> None:
    """To another table."""
    tables = scene.another_table()
    inserts(scene, 0)
    scene.do("r1", tables.statement("move", "a"))


def an_insert_comes_before_its_partition_has_moved(scene: Scene) -> None:
    """The parts that move are staged by then."""
    tables = scene.another_table()
    inserts(scene, 0)
    held = scene.hold("r1", tables.statement("move", "a"), locks)
    inserts(scene, 1)
    scene.release(held)


def a_partition_comes_from_a_replica_that_is_behind(scene: Scene) -> None:
    """It waits in vain, for nobody works here."""
    tables = scene.another_table()
    inserts(scene, 0)
    inserts(scene, 1, at="r2")
    with suppress(Unavailable):
        scene.do("r1", tables.statement("replace", "a"))


def a_partition_is_attached_twice(scene: Scene) -> None:
    """To another table. The source is the same as it was."""
    tables = scene.another_table()
    inserts(scene, 0)
    for _ in range(2):
        scene.do("r1", tables.statement("attach", "a"))


def a_partition_is_dropped_while_parts_come(
    scene: Scene, before: Literal["move", "attach"] = "move"
) -> None:
    """Their numbers are smaller than the drop's, which is in the log before them."""
    tables = scene.another_table()
    inserts(scene, 0)
    scene.do("r1", tables.statement(before, "a"))
    inserts(scene, 1)
    scene.work("r1")
    held = scene.hold(
        "r1",
        tables.statement("attach", "a"),
        lambda op: op.path.startswith(f"{tables.target.table.log}/"),
    )
    scene.do("r2", lambda context: drop("a")(context.beside(tables.target)))
    if before == "attach":
        scene.do("r1", lambda context: drops(context.beside(tables.target)))
    scene.release(held)


def drops(context: Context) -> None:
    """Carry out what the log says to drop."""
    pull_log(context.replica())
    while Executor(context.replica(), context.tools(), "fetch").step(None).did_something:
        pass


def what_an_attach_relies_on_is_dropped(scene: Scene) -> None:
    """A part of the source was attached before, and so is not to come again; the drop is carried
    out before the others come.
    """
    a_partition_is_dropped_while_parts_come(scene, "attach")


def a_partition_is_detached(scene: Scene) -> None:
    """Both have a copy."""
    inserts(scene, 0)
    scene.work("r1", "r2")
    scene.do("r1", drop("a", detach=True))
    scene.work("r1", "r2")


def a_detached_part_is_attached_on_both(scene: Scene) -> None:
    a_partition_is_detached(scene)
    for replica in ("r1", "r2"):
        scene.do(replica, attach("a"))


def who_attaches_dies_before_the_commit(scene: Scene) -> None:
    a_partition_is_detached(scene)
    dies(scene, attach("a"), after=locks)


def a_partition_is_unfrozen(scene: Scene) -> None:
    """The other one is not."""
    inserts(scene, 0)
    scene.do("r1", freeze(scene.run.ledger, "x", None))
    scene.do("r1", unfreeze(scene.run.ledger, "x", "a"))


def parts_are_merged_while_they_are_fetched(scene: Scene) -> None:
    """Who fetches them dies when one is there; then it is said again."""
    tables = scene.another_table()
    inserts(scene, 0, 1)
    scene.work("r1", "r2")

    def dies_behind_one(context: Context) -> None:
        there = context.beside(tables.target)
        tools = there.tools()
        peers = tools.peers.fetch

        def one(requests: Sequence[FetchRequest], store: PartStore) -> Iterator[Any]:
            yield from peers(requests[:1], store)
            scene.world.end_process(context.process, kill_others=True)
            raise Killed

        tools.peers.fetch = one  # type: ignore[method-assign]
        there.tools = lambda: tools  # type: ignore[method-assign]
        there.table().fetch_partition(TABLE.root, "a")

    process = scene.cluster.spawn(scene.cluster.sites["r1"], "dies", dies_behind_one)
    scene.let(lambda: not process.is_alive)
    scene.merge("r1")
    scene.work("r1", "r2")
    scene.do("r1", fetch(tables, "a"))


def an_alter(scene: Scene) -> None:
    inserts(scene, 0)
    scene.cluster.spawn(scene.cluster.sites["r1"], "alter", alter(add_column("x")))
    scene.let(lambda: scene.nodes[TABLE.columns].version > 0)


def a_drop(scene: Scene) -> None:
    inserts(scene, 0)
    scene.do("r1", drop("a", "b"))


def a_drop_of_several_blocks(scene: Scene) -> None:
    inserts(scene, 0, 1)
    scene.do("r1", drop("a", "b"))


def a_drop_that_is_waited_for(scene: Scene, *, detach: bool = False) -> None:
    inserts(scene, 0)
    scene.work("r1", "r2")
    act = drop("a", "b", detach=detach, query=WAITS[1], ledger=scene.run.ledger)
    process = scene.cluster.spawn(scene.cluster.sites["r1"], "drop", act)
    scene.let(lambda: bool(scene.run.ledger.drops))
    scene.work("r1")
    scene.let(lambda: not process.is_alive)
    assert scene.run.ledger.drops_answered


def a_detach_that_is_waited_for(scene: Scene) -> None:
    a_drop_that_is_waited_for(scene, detach=True)


def a_drop_comes_before_a_merge_is_assigned(scene: Scene) -> None:
    """By who has not seen the drop."""
    inserts(scene, 0, 1)
    scene.work("r1", "r2")
    held = scene.hold("r1", merging, commits)
    scene.do("r2", drop("a", "b"))
    scene.release(held)


def rows_come_while_a_replica_is_at_a_drop(scene: Scene) -> None:
    """They are behind the drop in the log."""
    inserts(scene, 0)
    scene.work("r1", "r2")
    scene.do("r1", drop("a"))
    scene.work("r1")
    scene.pull("r2")
    held = scene.hold("r2", fetch_step, forgets)
    inserts(scene, 1)
    scene.pull("r2")
    scene.step("r2", "fetch")
    scene.release(held)


def forgets(op: Op) -> bool:
    return isinstance(op, Delete) and "/parts/" in op.path


def an_insert_comes_after_a_drop_has_its_numbers(scene: Scene) -> None:
    """And is in the log before the drop is."""
    inserts(scene, 0)
    held = scene.hold("r1", drop("a", "b"), commits)
    inserts(scene, 1, at="r2")
    scene.release(held)


STORIES: dict[str, Story] = {
    story.__name__: story
    for story in (
        an_insert,
        an_insert_without_an_answer("lost"),
        an_insert_without_an_answer("late"),
        an_insert_without_an_answer("done"),
        a_merge_whose_sources_one_replica_has_not_yet,
        a_replica_comes_back_after_its_log_is_gone,
        mutations_are_cleaned_up_before_they_are_done,
        a_block_of_another_insert,
        who_inserts_dies_after_the_first_commit,
        who_inserts_dies_with_its_numbers,
        who_inserts_for_two_dies_after_the_commit,
        a_quorum_fails_while_its_insert_waits,
        who_has_the_rows_comes_back_before_their_quorum_fails,
        the_log_goes_before_who_pulls_has_read_it,
        what_is_merged_is_read_before_it_is_forgotten,
        what_is_read_is_replaced_and_read_again,
        an_insert_comes_before_a_rewrite_has_its_numbers,
        a_merge_is_fetched_while_its_source_is,
        what_is_between_comes_in_late,
        a_drop_comes_before_an_insert_commits,
        a_table_is_created_again_before_an_insert_commits,
        zookeeper_loses_a_table,
        zookeeper_loses_a_table_of_which_a_try_of_an_insert_died,
        zookeeper_loses_a_table_that_one_replica_has_mutated,
        a_part_is_lost_before_its_server_starts,
        a_replica_is_slow_and_the_log_is_cleaned,
        a_file_that_cannot_be_read_any_more,
        a_file_that_cannot_be_read_for_a_moment,
        what_is_dropped_of_an_insert_in_part,
        a_fetch_fails_once,
        a_merge,
        a_merge_that_comes_out_otherwise,
        the_disk_is_cleaned_up_before_an_insert_commits,
        a_part_that_nobody_knows,
        a_mutation,
        two_mutations_one_after_the_other,
        a_partition_is_moved,
        an_insert_comes_before_its_partition_has_moved,
        a_partition_comes_from_a_replica_that_is_behind,
        a_partition_is_attached_twice,
        a_partition_is_dropped_while_parts_come,
        what_an_attach_relies_on_is_dropped,
        a_detached_part_is_attached_on_both,
        who_attaches_dies_before_the_commit,
        a_partition_is_unfrozen,
        parts_are_merged_while_they_are_fetched,
        an_alter,
        a_drop,
        a_drop_of_several_blocks,
        a_drop_that_is_waited_for,
        a_detach_that_is_waited_for,
        a_drop_comes_before_a_merge_is_assigned,
        rows_come_while_a_replica_is_at_a_drop,
        an_insert_comes_after_a_drop_has_its_numbers,
    )
}


def tell(story: str) -> None:
    """To its end. Raises what a check says."""
    with Scene(form="runs") as scene:
        STORIES[story](scene)
        scene.live_on()
