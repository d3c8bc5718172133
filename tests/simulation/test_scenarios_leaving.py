"""Scenarios of rows that leave a table: an insert is undone, OPTIMIZE takes out what is twice
there, TTL takes what has expired; see `test_scenarios`.
"""

from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.mutations.mutations import create_mutation
from tests.simulation.altering import alter
from tests.simulation.dropping import WAITS
from tests.simulation.expiring import Expiry, Ttl, modify_ttl
from tests.simulation.ledger import Change, ClientInsert
from tests.simulation.scene import Scene
from tests.simulation.undoing import undo
from tests.support.cluster import TABLE, Context
from tests.support.sim_rows import GONE, stage_rows
from tests.support.world import EPOCH_S

SOON, LATE = Ttl(1), Ttl(1000)


def insert(scene: Scene, number: int, *, rows: int = 2, of: int | None = None) -> ClientInsert:
    """On r1, in partition a. `of`: rows of that insert, once more."""
    named = [f"{number if of is None else of:03}.a.{row}" for row in range(rows)]
    one = ClientInsert(number, {"a": named}, token=f"token {number}", gives_up=True)
    ledger = scene.run.ledger
    if of is None:
        ledger.inserts.append(one)
    else:
        ledger.insert_copy(one, ledger.inserts[of])

    def run(context: Context) -> None:
        staged = stage_rows(
            context.store,
            "a",
            named,
            created_s=int(context.clock.now_s()),
            definition=context.definition,
        )
        one.answers.append(context.table().commit([staged], token=one.token))

    scene.do("r1", run)
    return one


def test_an_undo_takes_its_rows_alone() -> None:
    """What was merged with rows of others stays; what was not goes everywhere."""
    with Scene(form="runs") as scene:
        first, _, last = [insert(scene, number) for number in range(3)]
        scene.work("r1", "r2")
        scene.do("r2", undo(last, WAITS[0], scene.run.ledger))
        scene.work("r1", "r2")
        assert (
            scene.rows("r1") == scene.rows("r2") == [f"00{n}.a.{k}" for n in "01" for k in "01"]
        )
        scene.merge("r1")
        scene.work("r1", "r2")
        scene.do("r1", undo(first, WAITS[0], scene.run.ledger))
        scene.live_on()


def test_optimize_deduplicate_keeps_one_of_each() -> None:
    with Scene(form="runs") as scene:
        insert(scene, 0)
        insert(scene, 1, of=0)
        scene.work("r1", "r2")
        assert len(scene.rows("r2")) == 4
        scene.do("r2", deduplicating)
        scene.work("r1", "r2")
        assert scene.rows("r1") == scene.rows("r2") == ["000.a.0", "000.a.1"]
        scene.live_on()


def deduplicating(context: Context) -> None:
    context.table().optimize("a", final=True, deduplicate=True, settings=WAITS[0])


def test_a_merge_takes_what_had_expired_when_it_was_decided() -> None:
    """However late it is made."""
    with Scene(form="runs", ttl=LATE) as scene:
        insert(scene, 0)
        insert(scene, 1)
        scene.work("r1", "r2")
        scene.world.now_s = EPOCH_S + 50
        scene.merge("r1")
        scene.world.now_s = EPOCH_S + 900
        scene.work("r2")
        scene.work("r1")
        assert scene.rows("r1") == scene.rows("r2") == ["001.a.0", "001.a.1"]
        assert len(scene.parts("r1")) == 3, "the merge is carried out"
        scene.live_on()


def test_values_go_that_had_expired_when_a_merge_was_decided() -> None:
    """Of rows that stay; also those that are mutated before and after."""
    with Scene(form="runs", value_ttl=LATE) as scene:
        for number in (0, 1):
            insert(scene, number)
        change = Change("00", "+1")
        scene.run.ledger.changes[change.command()] = change
        scene.do("r1", lambda context: create_mutation(context.replica(), change.command()))
        scene.do("r1", lambda context: assign_mutations(context.replica()))
        scene.work("r1", "r2")
        scene.world.now_s = EPOCH_S + 50
        scene.merge("r1")
        scene.world.now_s = EPOCH_S + 900
        scene.work("r2", "r1")
        gone = [f"000.a.{row}+1{GONE}" for row in range(2)]
        assert scene.rows("r1") == scene.rows("r2") == [*gone, "001.a.0+1", "001.a.1+1"]
        scene.live_on()


def test_a_materialized_ttl_takes_what_had_expired() -> None:
    with Scene(form="runs", ttl=LATE) as scene:
        insert(scene, 0)
        insert(scene, 1)
        scene.world.now_s = EPOCH_S + 50
        change = Expiry(LATE, int(EPOCH_S) + 50)
        scene.run.ledger.changes[change.command()] = change
        scene.do("r1", lambda context: create_mutation(context.replica(), change.command()))
        scene.live_on()


def test_who_does_not_know_a_longer_ttl_yet_takes_no_rows_that_stay_by_it() -> None:
    """P20. r1 has taken up the ALTER, and decides a merge; r2 carries it out before it has."""
    with Scene(form="runs", ttl=SOON) as scene:
        insert(scene, 1)
        insert(scene, 2)
        scene.work("r1", "r2")
        scene.cluster.spawn(scene.cluster.sites["r1"], "alter", alter(modify_ttl(LATE)))
        scene.let(lambda: scene.nodes[TABLE.metadata].version > 0)
        scene.work("r1")
        scene.world.now_s = EPOCH_S + 100
        scene.merge("r1")
        scene.pull("r2")
        scene.step("r2", "merge")
        assert scene.parts("r2")[-1] == "a_1_1_0", "it is carried out"
        scene.work("r2")
        scene.work("r1")
        assert len(scene.rows("r1")) == len(scene.rows("r2")) == 4
        scene.live_on()
