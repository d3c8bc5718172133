"""Short scenarios, one per action. The effects of the processes whose names begin with `owner` are
the places where a fault may strike.
"""

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import pytest

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.alter.commands import AlterCommand, ClearColumn
from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.log.entry import MERGE_REGULAR
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.assign.merges import (
    Choice,
    assign_merges,
    merge_view,
    optimize_partition,
)
from rmt_pipeline.replica.life.drop import drop_replica, remove_leftovers
from rmt_pipeline.replica.partitions.from_path import DetachedPartitionExists
from rmt_pipeline.replica.upkeep.check import refetch
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.store import layout
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.zookeeper.keeper import Create, Delete
from rmt_pipeline.zookeeper.paths import sequence_number
from tests.simulation.altering import add_column, alter, drop_column
from tests.simulation.checkers import what_is_left, what_is_missing
from tests.simulation.dropping import drop, drop_some_part
from tests.simulation.keeping import (
    Action,
    attach,
    fetch,
    freeze,
    frozen_rows,
    throw_away,
    unfreeze,
)
from tests.simulation.ledger import SUFFIX, Change, ClientInsert, Snapshot
from tests.simulation.run import CALM_STEPS_MAX, LATER_S, Run, build, no_ids_fit
from tests.simulation.size import Size
from tests.simulation.workload import Workload, check_parts, clean_up
from tests.support.cluster import TABLE, Context, Site
from tests.support.schedule import Strike
from tests.support.sim_keeper import SimKeeper
from tests.support.world import Process

SIZE = Size(hosts=2, partitions=2, clients=0, inserts_each=0, rows_max=2)
REST_STEPS_MAX = 1500
UNKNOWN_PART = "a_3_3_0"
CLEAR = ClearColumn("x", "a")


@dataclass(frozen=True, slots=True)
class Scenario:
    """`prepare` runs without faults, `act` with them."""

    owner: str
    prepare: Callable[[Run], None]
    act: Callable[[Run], None]
    workers: int = 1
    switch: float = 0.0
    """How often another process runs in between."""
    tables: int = 1
    do_ids_fit: bool = True
    """Into the multi of a drop or a replacement."""

    def play(self, schedule: Strike) -> Run:
        schedule.switch = self.switch
        run = build(schedule, replace(SIZE, workers=self.workers, between=self.tables - 1))
        for cluster, _ in run.books:
            for site in cluster.sites.values():
                site.form = "runs"  # a process for each pool, which is interrupted by its name
        with schedule.truce():
            self.prepare(run)
        with pytest.MonkeyPatch.context() as patch:
            if not self.do_ids_fit:
                no_ids_fit(run, patch)
            self.act(run)
            rest(run)
        return run


def rest(run: Run) -> bool:
    """Until nothing is left to do; in vain when a fault has struck and nobody cares yet."""
    return run.world.run(REST_STEPS_MAX, lambda: what_is_left(run.cluster, run.ledger) is None)


def boot(run: Run, *replicas: str) -> None:
    for cluster, _ in run.books:
        cluster.boot(*(replicas or cluster.sites))
    assert run.world.run(CALM_STEPS_MAX, lambda: what_is_missing(run.cluster) is None)


def insert(
    run: Run,
    *,
    number: int = 0,
    at: str = "r1",
    block_rows_max: int = 0,
    token: str = "",
    gives_up: bool = False,
    quorum: int = 0,
    is_parallel: bool = True,
) -> None:
    rows = {
        partition: [f"{number:03}.{partition}.{row}" for row in range(2)] for partition in "ab"
    }
    one = ClientInsert(
        number,
        rows,
        token=token,
        gives_up=gives_up,
        block_rows_max=block_rows_max or 2,
        quorum=quorum,
        is_parallel=is_parallel,
    )
    workload = Workload(run.cluster, run.ledger, SIZE)
    workload.spawn_insert(one, at=run.cluster.sites[at])


def three_inserts(run: Run) -> None:
    boot(run)
    for number, at in enumerate(("r1", "r2", "r1")):
        insert(run, number=number, at=at)
        assert rest(run)


def insert_another(run: Run) -> None:
    """Its parts are claimed with their pull, since the follower has fetched others before."""
    insert(run, number=7)


def insert_on_two(run: Run) -> None:
    insert(run, quorum=2)


def insert_alone_on_two(run: Run) -> None:
    insert(run, quorum=2, is_parallel=False)


def insert_that_fails(run: Run, *, is_parallel: bool = True) -> None:
    """The host that inserts is switched off as soon as the rows are in the log, and comes back to
    parts of which r2 knows that nobody has them.
    """
    insert(run, quorum=2, is_parallel=is_parallel, gives_up=True)
    nodes = run.world.zookeeper.nodes
    if run.world.run(REST_STEPS_MAX, lambda: bool(nodes[TABLE.log].children)):
        run.cluster.switch_off(run.cluster.sites["r1"], for_s=3.0)


def insert_alone_that_fails(run: Run) -> None:
    insert_that_fails(run, is_parallel=False)


def insert_first_again(run: Run) -> None:
    """The rows of the first insert once more, on the other replica, cut in another way."""
    del run.ledger.inserts[0]
    insert(run, number=0, at="r2", block_rows_max=1)


def insert_in_part_and_again(run: Run) -> None:
    """One partition in each commit, by a client that never asks again. What may be forgotten of it
    is; then somebody inserts the same rows on the other replica, cut in another way.
    """
    fits, limits.INSERT_BYTES_MAX = limits.INSERT_BYTES_MAX, 1
    try:
        insert(run, token="a token", gives_up=True)
        rest(run)
        with run.world.schedule.truce():
            run.cluster.spawn(run.cluster.sites["r2"], "forget", forget_blocks)
            rest(run)
            run.ledger.forgotten |= run.ledger.all_blocks()
            del run.ledger.inserts[0]
            insert(run, at="r2", token="a token", block_rows_max=1)
            rest(run)
    finally:
        limits.INSERT_BYTES_MAX = fits


def forget_blocks(context: Context) -> None:
    """As clean-up once all ids are old: those of blocks go, and the record only of a whole insert
    would, which is not meant here.
    """
    replica = context.replica()
    plan = plan_clean_up(replica)
    blocks = tuple(context.keeper().children(TABLE.blocks))
    ids = replace(plan.ids, blocks=replace(plan.ids.blocks, remove=blocks))
    carry_out(replica, replace(plan, ids=ids))


def assign(run: Run) -> None:
    def optimize(context: Context) -> None:
        optimize_partition(context.replica(), "a", final=True, skip_merged=False)

    run.cluster.spawn(run.cluster.sites["r1"], "optimize", optimize)


def assign_two(run: Run) -> None:
    """Merges of both partitions, with one multi: they are made and published together."""

    def assign_both(context: Context) -> None:
        replica = context.replica()
        view = merge_view(replica)
        parts = [tuple(view.active.in_partition(partition)) for partition in "ab"]
        assign_merges(replica, view, [Choice(one, MERGE_REGULAR) for one in parts])

    run.cluster.spawn(run.cluster.sites["r1"], "optimize", assign_both)


def merged(run: Run) -> None:
    three_inserts(run)
    assign(run)
    assert rest(run)


def clean(run: Run) -> None:
    run.world.now_s += LATER_S
    run.cluster.spawn(run.cluster.sites["r1"], "clean up", clean_up)


def only_r1(run: Run) -> None:
    boot(run, "r1")
    for number in range(3):
        insert(run, number=number)
        assert rest(run)
    assign(run)
    assert rest(run)


def join_r2(run: Run) -> None:
    run.cluster.boot("r2")


def lose_everywhere(run: Run) -> None:
    """The first part of a partition leaves both disks, and both replicas notice: nobody has it. A
    clean-up sees to it, here or by the loop of either.
    """
    first, *_ = run.finished.active(run.cluster.sites["r1"])
    run.ledger.lose(first)
    for site in run.cluster.sites.values():
        site.host.disk.lose(str(first))
        run.cluster.spawn(site, "check", check_parts)
    nodes, attempts = run.world.zookeeper.nodes, TABLE.replica("r1").attempts
    assert run.world.run(REST_STEPS_MAX, lambda: bool(nodes[attempts].children))


def lost_everywhere(run: Run) -> None:
    three_inserts(run)
    lose_everywhere(run)


def unreadable_for_a_moment(run: Run) -> None:
    """The only copy of a part, on r1, is given up: nobody could read it, and now anybody can."""
    boot(run)
    site = run.cluster.sites["r2"]
    run.cluster.switch_off(site, for_s=1.0)
    insert(run)
    assert run.world.run(REST_STEPS_MAX, lambda: not run.ledger.clients)
    part, *_ = run.finished.active(run.cluster.sites["r1"])

    def fails(part: PartName) -> Manifest:
        run.world.reads_failed.append(("h1", str(part)))
        raise Corruption("input/output error", part=part)

    def give_up(context: Context) -> None:
        assert refetch(context.replica(), part, fails)

    given_up = run.cluster.spawn(run.cluster.sites["r1"], "give up", give_up)
    assert run.world.run(REST_STEPS_MAX, lambda: not given_up.is_alive, every=1)


def clean_at_r1(run: Run) -> None:
    run.cluster.spawn(run.cluster.sites["r1"], "clean up", clean_up)


def start_over(run: Run) -> None:
    """The server of r1 comes back to a disk that lost a promised part, and has one that nobody
    knows, of an insert that never was committed: the first is fetched anew, the other one set
    aside.
    """
    site = run.cluster.sites["r1"]
    run.cluster.switch_off(site, for_s=0.0)
    session = run.world.zookeeper.connect()
    [lock] = session.multi([Create(TABLE.lock_prefix("a"), ephemeral=True, sequence=True)])
    session.multi([Delete(lock)])
    session.close()
    assert sequence_number(lock) == 3, f"{UNKNOWN_PART} is of another number than {lock}"
    first, *_ = run.finished.active(site)
    site.host.disk.copy(str(first), UNKNOWN_PART)
    site.host.disk.lose(str(first))
    run.ledger.lost_parts += 1
    run.world.now_s += LATER_S


def fall_behind(run: Run) -> None:
    """r2 is away for so long that its place in the log is given up; r1 goes on."""
    three_inserts(run)
    run.cluster.switch_off(run.cluster.sites["r2"], for_s=LATER_S)
    for number in range(3, 8):
        insert(run, number=number)
        run.world.run(REST_STEPS_MAX, lambda: not run.ledger.clients)
    run.world.now_s += LATER_S / 2
    run.cluster.spawn(run.cluster.sites["r1"], "clean up", clean_up)
    lost = TABLE.replica("r2").is_lost
    is_lost = run.world.run(
        REST_STEPS_MAX, lambda: run.world.zookeeper.nodes[lost].data == b"1"
    )
    assert is_lost, "r2 is not so far behind"


def come_back(run: Run) -> None:
    run.world.now_s = max(run.world.now_s, run.cluster.sites["r2"].host.down_until_s)


def one_insert(run: Run) -> None:
    boot(run)
    insert(run)
    assert rest(run)


def mutate(run: Run) -> None:
    """Deletes the rows of the first insert in one partition, and changes those in the other."""
    workload = Workload(run.cluster, run.ledger, SIZE)
    for change in (Change("000.a"), Change("000.b", f"{SUFFIX}1")):
        workload.spawn_mutation(change, at=run.cluster.sites["r1"])


def mutate_nothing(run: Run) -> None:
    """No row is meant: every part only gets its new name, all of them together."""
    workload = Workload(run.cluster, run.ledger, SIZE)
    workload.spawn_mutation(Change("999"), at=run.cluster.sites["r1"])


def mutated(run: Run) -> None:
    one_insert(run)
    for _ in range(2):
        mutate(run)
        assert rest(run)


def mutating(run: Run) -> None:
    """A mutation is written, and no part has it yet."""
    three_inserts(run)
    mutate(run)
    nodes = run.world.zookeeper.nodes
    assert run.world.run(REST_STEPS_MAX, lambda: bool(nodes[TABLE.mutations].children))


def kill(run: Run) -> None:
    workload = Workload(run.cluster, run.ledger, SIZE)
    run.cluster.spawn(run.cluster.sites["r1"], "kill", workload.kill_newest)


def drop_r2(run: Run) -> None:
    """As `DROP TABLE`, which a person repeats until it says that it is done."""
    site = run.cluster.sites["r2"]
    site.is_out = True
    run.cluster.switch_off(site, for_s=0.0)
    drop_until_gone(run, site)


def drop_until_gone(run: Run, site: Site) -> None:
    process = run.cluster.spawn(
        site, "drop", lambda context: drop_it(context.keeper(), site.replica)
    )

    def again() -> None:
        nodes = run.world.zookeeper.nodes
        if TABLE.replica(site.replica).root in nodes or TABLE.dropped in nodes:
            run.world.at(run.world.now_s + 0.1, lambda: drop_until_gone(run, site))

    process.on_end.append(again)


def drop_it(keeper: SimKeeper, replica: str) -> None:
    if keeper.exists(TABLE.dropped) is not None:
        remove_leftovers(keeper, TABLE)
    drop_replica(keeper, TABLE, replica)


def drop_and_create_again(run: Run) -> None:
    """The only replica goes and the table with it; then there is another table in its place."""
    site = run.cluster.sites["r1"]
    site.is_out, site.is_created = True, False
    run.cluster.switch_off(site, for_s=0.0)
    drop_until_gone(run, site)
    run.world.run(REST_STEPS_MAX, lambda: TABLE.root not in run.world.zookeeper.nodes)
    run.cluster.boot("r1")


def alter_at_r1(*commands: AlterCommand) -> Callable[[Run], None]:
    def spawn(run: Run) -> None:
        run.cluster.spawn(run.cluster.sites["r1"], "alter", alter(*commands))

    return spawn


def widened(run: Run) -> None:
    """A table that has a column more than when its rows were inserted."""
    one_insert(run)
    alter_at_r1(add_column("x"))(run)
    assert rest(run)


def drop_at_r1(*partitions: str, detach: bool = False) -> Callable[[Run], None]:
    """The rows of the last insert are said again at once: in dropped partitions they are new."""

    def act(run: Run) -> None:
        site = run.cluster.sites["r1"]
        run.cluster.spawn(site, "drop", drop(*partitions, detach=detach))
        run.world.run(REST_STEPS_MAX, lambda: bool(run.ledger.drops))
        last = run.ledger.inserts.pop()
        insert(run, number=last.number, at="r2")

    return act


def and_again(act: Callable[[Run], Process]) -> Callable[[Run], None]:
    """The rows of the last insert are said again as soon as the command is answered, or its process
    has died.
    """

    def acted(run: Run) -> None:
        process = act(run)
        run.world.run(REST_STEPS_MAX, lambda: not process.is_alive, every=1)
        last = run.ledger.inserts[2]
        del run.ledger.inserts[2]
        insert(run, number=last.number, at="r2")

    return acted


def drop_all_at_r1(run: Run) -> Process:
    action = drop("a", "b", ledger=run.ledger)
    return run.cluster.spawn(run.cluster.sites["r1"], "drop", action)


def replace_at_r1(form: str) -> Callable[[Run], Process]:
    def act(run: Run) -> Process:
        workload = Workload(run.cluster, run.ledger, SIZE)
        return workload.spawn_swap(form, "ab", at=run.cluster.sites["r1"], taken="001")

    return act


def drop_part_at_r1(run: Run) -> None:
    site = run.cluster.sites["r1"]
    run.cluster.spawn(site, "drop", drop_some_part(random.Random(1), detach=True))


def swap_at_r1(form: str, partitions: str = "ab") -> Callable[[Run], None]:
    """Rows come in the place of others, or beside them."""

    def act(run: Run) -> None:
        workload = Workload(run.cluster, run.ledger, SIZE)
        workload.spawn_swap(form, partitions, at=run.cluster.sites["r1"], taken="001")

    return act


def swap_beside_inserts(run: Run) -> None:
    """One insert is under way when rows are replaced, and a merge is assigned."""
    insert(run, number=7)
    assign(run)
    run.world.run(40)
    swap_at_r1("replace", "a")(run)


def until_it_is_done(name: str, action: Callable[[Run], Action]) -> Callable[[Run], None]:
    """On r1, by a person who repeats it until it says that it is done."""

    def act(run: Run) -> None:
        site, done = run.cluster.sites["r1"], list[bool]()
        run.ledger.clients += 1

        def once(context: Context) -> None:
            action(run)(context)
            done.append(True)
            run.ledger.clients -= 1

        def begin() -> None:
            run.cluster.spawn(site, name, once).on_end.append(again)

        def again() -> None:
            if not done:
                soonest_s = max(run.world.now_s, site.host.down_until_s)
                run.world.at(soonest_s + 0.1, begin)

        begin()

    return act


def detached(run: Run) -> None:
    """Partition a, on both."""
    three_inserts(run)
    run.cluster.spawn(run.cluster.sites["r1"], "drop", drop("a", detach=True))
    assert rest(run)


def attach_all(run: Run) -> Action:
    del run
    return attach(None)


def nothing_is_detached(run: Run) -> Action:
    def act(context: Context) -> None:
        throw_away(run.ledger, "a")(context)
        names = map(str, context.store.detached_parts.names())
        left = [name for name in names if name.startswith("a_")]
        assert not left, f"{left} are there after DROP DETACHED"

    return act


def bring_a(run: Run) -> Action:
    """Who was not told that all is there is told so when he says it again."""
    tables = run.tables
    assert tables is not None

    def act(context: Context) -> None:
        with suppress(DetachedPartitionExists):
            fetch(tables, "a")(context)
        site = context.beside(tables.target).site
        names = site.host.disk.list(site.path(layout.DETACHED))
        plain = [name for name in names if name.startswith("a_")]
        rows = sorted(row for name in plain for row in site.rows(f"{layout.DETACHED}/{name}"))
        there = [row for row, blocks in run.ledger.blocks.items() if blocks[0].partition == "a"]
        assert rows == sorted(there), f"{plain} have {rows}"

    return act


def freeze_all(run: Run) -> Action:
    """And what was frozen is noted, by whichever try."""

    def act(context: Context) -> None:
        freeze(run.ledger, "x", None)(context)
        for one in context.table().frozen_parts.snapshot("x"):
            for part in one.parts:
                key = Snapshot(context.site.replica, "x", part.name)
                run.ledger.frozen[key] = frozen_rows(context, key)
        rows = {row for some in run.ledger.frozen.values() for row in some}
        assert rows == run.ledger.blocks.keys(), f"{sorted(rows)} are frozen"

    return act


def unfreeze_a(run: Run) -> Action:
    """What the snapshot has of b stays."""

    def act(context: Context) -> None:
        unfreeze(run.ledger, "x", "a")(context)
        there = context.site.host.disk.list("shadow/x/data/default/t")
        left = [name for name in there if name.startswith("a_")]
        assert not left, f"{left} are there after UNFREEZE"

    return act


def frozen(run: Run) -> None:
    three_inserts(run)
    until_it_is_done("freeze", freeze_all)(run)
    assert rest(run)


def drop_beside_inserts(run: Run) -> None:
    """One insert is under way when the drop is decided, and another one comes right after."""
    insert(run, number=7)
    run.world.run(40)
    drop_at_r1("a", "b")(run)


SCENARIOS: dict[str, Scenario] = {
    "create": Scenario("h1/server", lambda run: None, lambda run: run.cluster.boot("r1", "r2")),
    "join and clone": Scenario("h2/server", only_r1, join_r2),
    "start over": Scenario("h1/server", three_inserts, start_over),
    "clone": Scenario("h2/server", fall_behind, come_back),
    "insert": Scenario("h1/insert 0.1", boot, insert),
    "insert again elsewhere": Scenario("h2/insert 0.1", three_inserts, insert_first_again),
    "insert in part": Scenario("h1/insert 0.1", boot, insert_in_part_and_again),
    "insert on two": Scenario("h1/insert 0.1", boot, insert_on_two),
    "insert alone on two": Scenario("h1/insert 0.1", boot, insert_alone_on_two),
    "fetch for a quorum": Scenario("h2/fetch", boot, insert_on_two),
    "fetch for one that waits alone": Scenario("h2/fetch", boot, insert_alone_on_two),
    "fail a quorum": Scenario("h2/fetch", boot, insert_that_fails),
    "fail one that waits alone": Scenario("h2/fetch", boot, insert_alone_that_fails),
    "come back to a failed quorum": Scenario("h1/server", boot, insert_that_fails),
    "pull and fetch": Scenario("h2/fetch", boot, insert),
    "claim with the pull": Scenario("h2/fetch", three_inserts, insert_another),
    "assign": Scenario("h1/optimize", three_inserts, assign),
    "merge": Scenario("h1/merge", three_inserts, assign),
    "merge on the follower": Scenario("h2/merge", three_inserts, assign),
    "assign two merges": Scenario("h1/optimize", three_inserts, assign_two),
    "merge together": Scenario("h1/merge", three_inserts, assign_two),
    "merge together on the follower": Scenario(
        "h2/merge", three_inserts, assign_two, switch=0.4
    ),
    "two fetch": Scenario("h2/fetch", boot, insert, workers=2, switch=0.4),
    "two merge": Scenario("h2/merge", three_inserts, assign, workers=2, switch=0.4),
    "create mutations": Scenario("h1/mutate", one_insert, mutate),
    "mutate": Scenario("h1/merge", one_insert, mutate),
    "mutate nothing": Scenario("h1/merge", one_insert, mutate_nothing),
    "mutate on the follower": Scenario("h2/merge", one_insert, mutate),
    "kill a mutation": Scenario("h1/kill", mutating, kill),
    "alter": Scenario("h1/alter", one_insert, alter_at_r1(add_column("x"))),
    "alter with a mutation": Scenario("h1/alter", widened, alter_at_r1(drop_column("x"))),
    "take up an ALTER": Scenario("h2/fetch", one_insert, alter_at_r1(add_column("x"))),
    "two take up an ALTER": Scenario(
        "h2/fetch", widened, alter_at_r1(drop_column("x")), workers=2, switch=0.4
    ),
    "rewrite for an ALTER": Scenario("h2/merge", widened, alter_at_r1(drop_column("x"))),
    "clean up": Scenario("h1/clean up", merged, clean),
    "replace a lost part": Scenario(
        "h1/clean up",
        lost_everywhere,
        clean_at_r1,
    ),
    "put a part back": Scenario("h1/fetch", unreadable_for_a_moment, lambda _: None),
    "clean up after mutations": Scenario("h1/clean up", mutated, clean),
    "drop partitions": Scenario("h1/drop", three_inserts, drop_at_r1("a", "b")),
    "drop a partition beside inserts": Scenario("h1/drop", one_insert, drop_beside_inserts),
    "insert while it is dropped": Scenario("h1/insert 7", one_insert, drop_beside_inserts),
    "drop a part": Scenario("h1/drop", three_inserts, drop_part_at_r1),
    "carry out a drop": Scenario("h1/fetch", three_inserts, drop_at_r1("a")),
    "carry out a detach on the follower": Scenario(
        "h2/fetch", three_inserts, drop_at_r1("a", detach=True)
    ),
    "two carry out a drop": Scenario(
        "h2/fetch", three_inserts, drop_at_r1("a", "b"), workers=2, switch=0.4
    ),
    "replace partitions": Scenario("h1/swap", three_inserts, swap_at_r1("replace")),
    "replace by a condition": Scenario("h1/swap", three_inserts, swap_at_r1("condition")),
    "attach from a table": Scenario("h1/swap", three_inserts, swap_at_r1("attach")),
    "replace a partition beside inserts": Scenario(
        "h1/swap", three_inserts, swap_beside_inserts
    ),
    "carry out a replacement": Scenario("h1/fetch", three_inserts, swap_at_r1("replace")),
    "carry out a replacement on the follower": Scenario(
        "h2/fetch", three_inserts, swap_at_r1("replace")
    ),
    "two carry out a replacement": Scenario(
        "h2/fetch", three_inserts, swap_at_r1("replace"), workers=2, switch=0.4
    ),
    "drop partitions and see to ids": Scenario(
        "h1/drop", three_inserts, and_again(drop_all_at_r1), do_ids_fit=False
    ),
    "carry out a drop and see to ids": Scenario(
        "h1/fetch", three_inserts, and_again(drop_all_at_r1), do_ids_fit=False
    ),
    "replace partitions and see to ids": Scenario(
        "h1/swap", three_inserts, and_again(replace_at_r1("replace")), do_ids_fit=False
    ),
    "replace by a condition and see to ids": Scenario(
        "h1/swap", three_inserts, and_again(replace_at_r1("condition")), do_ids_fit=False
    ),
    "clear a column of a partition": Scenario("h1/alter", widened, alter_at_r1(CLEAR)),
    "rewrite for a column that is cleared": Scenario("h2/merge", widened, alter_at_r1(CLEAR)),
    "attach what is detached": Scenario(
        "h1/attach", detached, until_it_is_done("attach", attach_all)
    ),
    "attach on the follower": Scenario(
        "h2/fetch", detached, until_it_is_done("attach", attach_all)
    ),
    "drop what is detached": Scenario(
        "h1/throw away", detached, until_it_is_done("throw away", nothing_is_detached)
    ),
    "fetch from another table": Scenario(
        "h1/bring", three_inserts, until_it_is_done("bring", bring_a), tables=2
    ),
    "freeze": Scenario("h1/freeze", three_inserts, until_it_is_done("freeze", freeze_all)),
    "unfreeze": Scenario("h1/unfreeze", frozen, until_it_is_done("unfreeze", unfreeze_a)),
    "drop a replica": Scenario("h2/drop", three_inserts, drop_r2),
    "drop the last replica": Scenario(
        "h1/drop", lambda run: boot(run, "r1"), drop_and_create_again
    ),
}
