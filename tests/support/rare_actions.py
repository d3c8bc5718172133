"""What a replica is rarely asked to do: requests without an answer, restores of all kinds, what
dead processes have left.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.alter.commands import DropColumn
from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.protocol.nodes.records import Claim
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.assign.duty import MergeDuty, MutationDuty
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.insert.report import insert_reports
from rmt_pipeline.replica.insert.result import QuorumNotReached
from rmt_pipeline.replica.life import known_inserts
from rmt_pipeline.replica.life.detach import forget_note
from rmt_pipeline.replica.life.drop import drop_dead_replica, drop_replica
from rmt_pipeline.replica.mutations.mutations import create_mutation
from rmt_pipeline.replica.mutations.plan import plan_mutation
from rmt_pipeline.replica.partitions.detached import detached_directories
from rmt_pipeline.replica.quorum import clean_quorums
from rmt_pipeline.replica.readable import note_active, sequential_parts
from rmt_pipeline.replica.sync import SyncMode, sync_replica
from rmt_pipeline.replica.upkeep.check import recover_parts
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.replica.upkeep.lost import replace_lost_parts
from rmt_pipeline.replica.work.queue_status import queue_status
from rmt_pipeline.replica.work.running import running_merges
from rmt_pipeline.syntax.mutation import parse_commands
from rmt_pipeline.zookeeper.keeper import Create, Delete, Op
from tests.support.actions import FIRST, NOW, Action, Did, merge_assigned, mutated
from tests.support.local_replicas import Replicas, by_tens
from tests.support.lost_answers import dies_at_a_commit, faulty, logs, unlocks
from tests.support.more_actions import (
    MUTATION,
    NAMES,
    QUICK,
    WithSource,
    altered,
    alters,
    attached_from,
    can_alter,
    created_anew,
    detached,
    is_restored,
    killed,
    moved,
    mutated_everywhere,
    mutated_on_r2,
    news,
    of_partitions,
    queued_news,
    replaced,
    starts,
    that_loses_zookeeper,
    waits,
    wiped,
)
from tests.support.partitioned import insert
from tests.support.parts import clone
from tests.support.restoring import Disaster

SECOND = PartName("all", 1, 1, 0)


# --- without an answer ---


def unanswered(
    does: Did, *hits: Callable[[Op], bool], landed: bool, times: int = 1
) -> Callable[[Replicas], object]:
    def act(replicas: Replicas) -> object:
        with faulty(replicas["r1"].keeper, *hits, landed=landed, times=times):
            return does(replicas)

    return act


def inserts(replicas: Replicas) -> object:
    return replicas.table("r1").insert([{"n": 7}], token="a token")


def creates(what: str) -> Callable[[Op], bool]:
    return lambda op: isinstance(op, Create) and what in op.path


def drops_all(replicas: Replicas) -> object:
    return replicas.table("r1").drop_partitions(["all"], settings=NOW)


def mutates(replicas: Replicas) -> object:
    return replicas.table("r1").mutate("DELETE WHERE n = 1", settings=NOW)


UNANSWERED = [
    ("an insert", inserts, unlocks),
    ("a drop", drops_all, logs),
    ("a drop of a part", lambda of: of.table("r1").drop_part(FIRST, settings=NOW), logs),
    ("a mutation", mutates, creates("/mutations/")),
    ("an ALTER", alters("r1"), creates("/alters/")),
    ("a merge that is assigned", merge_assigned, logs),
]


def with_answers_lost() -> list[Action]:
    return [
        Action(
            f"{name} whose answer is lost{'' if landed else ', as it is itself'}",
            unanswered(does, hit, landed=landed),
            can_alter,
        )
        for name, does, hit in UNANSWERED
        for landed in (True, False)
    ]


# --- starts ---


def has_not_ended(replicas: Replicas) -> None:
    """The session of the process of before."""
    assert isinstance(replicas, Disaster)
    replicas.connect("r1")


def was_detached(replicas: Replicas) -> None:
    killed(replicas)
    replicas.zookeeper.connect().multi([Create(replicas["r1"].paths.detached, b"by somebody")])


def log_is_gone(replicas: Replicas) -> None:
    """Before r1 has copied it."""
    killed(replicas)
    replicas.insert("r2", 8)
    replicas.insert("r2", 9)
    replicas.work_off("r2", "r3")
    session, log = replicas["r2"].session, replicas["r1"].table.log
    old = sorted(session.children(log))[:-1]
    session.multi([Delete(f"{log}/{name}") for name in old])


def of_a_build_without_creations(replicas: Replicas) -> None:
    killed(replicas)
    session, paths = replicas.zookeeper.connect(), replicas["r1"].paths
    there = [*map(paths.creation, session.children(paths.creations)), paths.creations]
    session.multi([Delete(path) for path in there])


def with_unknown_parts(replicas: Replicas) -> None:
    """More than may be set aside without a person."""
    killed(replicas)
    session, paths = replicas.zookeeper.connect(), replicas["r1"].paths
    session.multi([Delete(paths.part(part)) for part in (FIRST, SECOND)])
    replicas.clock.passed_s += 10_000


# --- restores ---


def all_but_r1_restored(replicas: Replicas) -> None:
    wiped(replicas)
    for name in ("r2", "r3"):
        is_restored(replicas, name)


def with_another_structure(replicas: Replicas) -> None:
    """r1 alone has taken the ALTER up."""
    assert isinstance(replicas, Disaster)
    for name in NAMES:
        replicas.connect(name)
    alters("r1")(replicas)
    replicas.step("r1", "fetch")
    all_but_r1_restored(replicas)


def has_other_rows(replicas: Replicas) -> None:
    """r1, under the name of the first part."""
    store = replicas.stores["r1"]
    store.remove(FIRST)
    store.publish(clone(store, SECOND, "attach", "x"), FIRST)


def with_other_rows(replicas: Replicas) -> None:
    has_other_rows(replicas)
    all_but_r1_restored(replicas)


def after_a_drop(replicas: Replicas) -> None:
    """r2 and r3 have carried it out."""
    replicas.table("r2").drop_part(FIRST, settings=NOW)
    replicas.work_off("r2", "r3")
    all_but_r1_restored(replicas)


def without_r3(replicas: Replicas) -> None:
    """It is gone for good once it has announced its parts."""
    all_but_r1_restored(replicas)
    drop_dead_replica(replicas.zookeeper.connect(), replicas["r1"].table, "r3")


def died_when_it_opened_it(replicas: Replicas) -> None:
    """After a request that only the fourth step of a restore makes."""
    all_but_r1_restored(replicas)
    with (
        suppress(RmtError),
        faulty(replicas["r1"].session, logs, landed=True),
    ):
        is_restored(replicas)
    replicas.stop("r1")
    assert isinstance(replicas, Disaster)
    replicas.connect("r1")


def unknown_to_others(replicas: Replicas) -> None:
    """They work with an older copy of ZooKeeper, from before r1 was created."""
    assert isinstance(replicas, Disaster)
    older = replicas.copy_of_zookeeper(without=replicas["r1"].paths.root)
    replicas.insert("r1", 9)
    replicas.note()
    replicas.go_back_to(older)
    for name in ("r2", "r3"):
        replicas[name].store.marks.forget_log_seen()
        replicas.start(name)


# --- quorums ---


def alone_for(quorum: int) -> Callable[[Replicas], object]:
    def act(replicas: Replicas) -> object:
        settings = {
            "insert_quorum": str(quorum),
            "insert_quorum_parallel": "0",
            "insert_quorum_timeout": "1000",
        }
        return replicas.table("r2").insert([{"n": 5}], settings=settings)

    return act


def waits_alone(quorum: int) -> Did:
    def act(replicas: Replicas) -> None:
        with suppress(QuorumNotReached):
            alone_for(quorum)(replicas)

    return act


# --- the rest ---


def turns(replicas: Replicas) -> object:
    duty = MutationDuty(replicas["r1"])
    return [duty.turn(lambda: None, progress=is_new) for is_new in (False, False, True)]


def column_was_added(replicas: Replicas) -> None:
    altered(replicas)
    for name in NAMES:
        replicas.step(name, "fetch")


def half_removed(replicas: Replicas) -> None:
    """The process that dropped the last replica has died."""
    session, table = replicas.zookeeper.connect(), replicas["r1"].table
    replicas.drop("r2", "r3")
    with suppress(RmtError), faulty(session, creates("/dropped"), landed=True):
        drop_replica(session, table, "r1")
    replicas.zookeeper.expire(session.session_id)


def fetches_from_there(replicas: Replicas, part: PartName | None = None) -> object:
    assert isinstance(replicas, WithSource)
    return replicas.table("r1").fetch_partition(
        replicas.source["r1"].table.root, "" if part else "1", part=part, settings=QUICK
    )


def detached_of_all_kinds(replicas: Replicas) -> None:
    replicas.table("r1").drop_partitions(["all"], detach=True, settings=NOW)
    replicas.work_off("r1")


def others_work(replicas: Replicas) -> None:
    """While r1 waits."""
    for name in NAMES:
        replicas.meanwhile.append(lambda name=name: replicas.work_off(name))  # type: ignore[misc]


def drops_for_all(replicas: Replicas) -> object:
    return replicas.table("r1").drop_partitions(["all"], settings=QuerySettings(alter_sync=2))


def claimed_by_another(replicas: Replicas) -> None:
    queued_news(replicas)
    session, paths = replicas.zookeeper.connect(), replicas["r1"].paths
    claim = Claim("another worker", (PartName("all", 0, 2, 1),)).encode()
    for node in session.children(paths.queue)[-1:]:
        session.multi([Create(paths.claim(node), claim, ephemeral=True)])


def forces_restore(replicas: Replicas) -> None:
    replicas["r1"].session.multi([Create(replicas["r1"].paths.force_restore_data)])


def is_needed_in_vain(replicas: Replicas) -> None:
    """What r2 has brought by a replacement is gone with it; nobody has an entry for the part."""
    replicas.table("r2").replace([{"n": 2}], partition="all", settings=NOW)
    replicas.stop("r2")
    drop_replica(replicas["r1"].session, replicas["r1"].table, "r2")
    for name in ("r1", "r3"):
        replicas.step(name, "fetch")


# --- inserts that were cut off ---


def by_tens_that_lose_zookeeper(directory: Path) -> Disaster:
    return Disaster(directory, NAMES, define=by_tens)


@contextmanager
def small_commits() -> Iterator[None]:
    """Each partition is a commit of its own."""
    fits, limits.INSERT_BYTES_MAX = limits.INSERT_BYTES_MAX, 1
    try:
        yield
    finally:
        limits.INSERT_BYTES_MAX = fits


def inserts_in_part(replicas: Replicas, name: str = "r1") -> object:
    rows = [{"n": value} for value in (1, 2, 11, 12, 21, 22, 31)]
    with small_commits():
        return replicas.table(name).insert(rows, token="a token")


def cut_off(replicas: Replicas, name: str = "r1", commits: int = 2) -> None:
    """It dies at its commit after so many others."""
    with dies_at_a_commit(replicas[name], after=commits):
        inserts_in_part(replicas, name)


def restored_after(*cut: str, in_batches: bool) -> Did:
    """These have each begun the insert, and r1 is the last to be restored."""

    def act(replicas: Replicas) -> None:
        for name, commits in zip(cut, (2, 1), strict=False):
            cut_off(replicas, name, commits)
        replicas.work_off("r2", "r3")
        with small_batches() if in_batches else nullcontext():
            all_but_r1_restored(replicas)

    return act


@contextmanager
def small_batches() -> Iterator[None]:
    """No more than one line of an insert's record fits into one."""
    fits, known_inserts._LINES_TOGETHER = known_inserts._LINES_TOGETHER, 1
    try:
        yield
    finally:
        known_inserts._LINES_TOGETHER = fits


def restored_in_batches(replicas: Replicas) -> object:
    with small_batches():
        return is_restored(replicas)


def came_again(replicas: Replicas) -> None:
    """What was dropped is inserted again; then ZooKeeper goes back to before that."""
    assert isinstance(replicas, Disaster)
    replicas.insert("r1", 9)
    replicas.work_off()
    older = replicas.copy_of_zookeeper()
    for name in NAMES:
        replicas.table(name).drop_partitions(["all"], settings=NOW)
        replicas.work_off()
    replicas.insert("r1", 9)
    replicas.work_off()
    replicas.note()
    replicas.go_back_to(older)
    for name in ("r2", "r3"):
        is_restored(replicas, name)


def cut_off_long_ago(replicas: Replicas) -> None:
    cut_off(replicas)
    store = replicas.stores["r1"]
    store.remove(max(store.parts()))
    replicas.clock.passed_s += 10_000


def cleans(replicas: Replicas) -> object:
    return carry_out(replicas["r1"], plan_clean_up(replicas["r1"]))


# --- much at once ---


def much(replicas: Replicas) -> None:
    """What others have done, of which r1 has seen nothing."""
    for value in (7, 8):
        replicas.insert("r2", value)
    merge_assigned(replicas, "r2")
    replicas.work_off("r2")
    create_mutation(replicas["r2"], "UPDATE n = n + 10 WHERE n = 7")
    assign_mutations(replicas["r2"])
    replicas.work_off("r2", "r3")
    replicas.insert("r3", 9)
    [last] = [part for part in replicas.stores["r3"].parts() if part.block_min == 5]
    replicas.table("r3").drop_part(last, settings=NOW)


def replaces_rows(replicas: Replicas) -> object:
    return replicas.table("r1").replace(
        [{"p": 1, "n": 9}], partition="1", token="a token", settings=QUICK
    )


def replaces_some(replicas: Replicas) -> object:
    return replicas.table("r1").replace(
        [{"p": 1, "n": 2}, {"p": 3, "n": 2}], where="n < 3", settings=QUICK
    )


def attaches(replicas: Replicas) -> object:
    return replicas.table("r1").attach("all", settings=NOW)


def left_attached(replicas: Replicas) -> None:
    """ATTACH has committed, and died before it removed what it was made of."""
    detached(replicas)
    root = Path(replicas.stores["r1"].disk.local_path(""))
    shutil.copytree(root / "detached", root / "kept")
    attaches(replicas)
    shutil.rmtree(root / "detached", ignore_errors=True)
    (root / "kept").rename(root / "detached")


def undoes(replicas: Replicas) -> object:
    first = min(one.insert_id for one in insert_reports(replicas["r2"]))
    return replicas.table("r1").undo(first, settings=NOW)


def plans(replicas: Replicas) -> object:
    commands = parse_commands("DELETE WHERE n < 3")
    return plan_mutation(replicas["r1"], commands, QuerySettings())


def syncs(mode: SyncMode) -> Did:
    return lambda of: sync_replica(of["r1"], mode, 60.0, waits(of))


def in_several_blocks(replicas: Replicas) -> object:
    """Of which one is there."""
    return insert(replicas, (1, 3), (4, 1), (5, 1), settings={"insert_deduplicate": "1"})


# --- what guards rarely keep away ---


def with_unknown_merge(replicas: Replicas) -> None:
    """ZooKeeper knows of nothing that r1 has."""
    merge_assigned(replicas)
    replicas.work_off()
    killed(replicas)
    session, paths = replicas.zookeeper.connect(), replicas["r1"].paths
    session.multi([Delete(f"{paths.parts}/{name}") for name in session.children(paths.parts)])
    replicas.clock.passed_s += 10_000


def stays_without_quorum(replicas: Replicas) -> None:
    """r2 has inserted for three, and is dropped once r1 has fetched it."""
    with suppress(QuorumNotReached):
        replicas.table("r2").insert(
            [{"n": 5}], settings={"insert_quorum": "3", "insert_quorum_timeout": "1000"}
        )
    replicas.work_off()
    drop_replica(replicas.zookeeper.connect(), replicas["r1"].table, "r3")


def replaced_by_condition(replicas: Replicas) -> None:
    replicas.table("r1").replace(
        [{"p": 1, "n": 4}], where="n < 9", token="an earlier token", settings=QUICK
    )


def replaces_by_condition(replicas: Replicas) -> object:
    return replicas.table("r1").replace(
        [{"p": 1, "n": 5}], where="n < 9", token="a token", settings=QUICK
    )


def half_attached(replicas: Replicas) -> None:
    """ATTACH has died when it had taken the parts."""
    detached(replicas)
    with dies_at_a_commit(replicas["r1"]):
        attaches(replicas)


def given_up_among_others(replicas: Replicas) -> None:
    """r1 gave its copy up for that of r2 before the one died that opened the table."""
    has_other_rows(replicas)
    wiped(replicas)
    for name in ("r1", "r2"):
        is_restored(replicas, name)
    session = replicas["r3"].session
    noted = faulty(
        session, lambda op: b"given up among" in getattr(op, "data", b""), landed=True
    )
    with suppress(RmtError, AssertionError), noted:
        is_restored(replicas, "r3")
    replicas.stop("r3")
    drop_dead_replica(replicas.zookeeper.connect(), replicas["r1"].table, "r3")


def failed_before(replicas: Replicas) -> None:
    """A merge is tried in vain: a part that it needs is broken."""
    merge_assigned(replicas)
    for name in NAMES:
        directory = Path(replicas.stores[name].directory(FIRST))
        for file in directory.glob("*.parquet"):
            file.write_bytes(b"broken")
    merges(replicas)
    replicas.clock.passed_s += 100


def merges(replicas: Replicas) -> object:
    return replicas.step("r1")


RARE = [
    *with_answers_lost(),
    Action(
        "a start beside its last session", starts, has_not_ended, makes=that_loses_zookeeper
    ),
    Action("a start of what was detached", starts, was_detached, makes=that_loses_zookeeper),
    Action("a start when the log is gone", starts, log_is_gone, makes=that_loses_zookeeper),
    Action(
        "a start of one without a creation",
        starts,
        of_a_build_without_creations,
        makes=that_loses_zookeeper,
    ),
    Action(
        "a start with unknown parts", starts, with_unknown_parts, makes=that_loses_zookeeper
    ),
    Action(
        "a restore of the last one",
        is_restored,
        all_but_r1_restored,
        makes=that_loses_zookeeper,
    ),
    Action(
        "a restore with another structure",
        is_restored,
        with_another_structure,
        makes=that_loses_zookeeper,
    ),
    Action(
        "a restore with other rows", is_restored, with_other_rows, makes=that_loses_zookeeper
    ),
    Action("a restore after a drop", is_restored, after_a_drop, makes=that_loses_zookeeper),
    Action(
        "a restore without one that is gone",
        is_restored,
        without_r3,
        makes=that_loses_zookeeper,
    ),
    Action(
        "a restore after one that died",
        is_restored,
        died_when_it_opened_it,
        makes=that_loses_zookeeper,
    ),
    Action(
        "a restore of who is late", is_restored, unknown_to_others, makes=that_loses_zookeeper
    ),
    Action("a fetch for a quorum alone", lambda of: of.step("r1", "fetch"), waits_alone(2)),
    Action("a fetch for a larger quorum", lambda of: of.step("r1", "fetch"), waits_alone(3)),
    Action("a read of the quorum", lambda of: sequential_parts(of["r1"]), waits_alone(2)),
    Action("what is active is noted", lambda of: note_active(of["r1"]), news),
    Action("a turn of mutations", turns, mutated),
    Action("a turn when mutations are done", turns, mutated_everywhere),
    Action("a turn of merges", lambda of: MergeDuty(of["r1"]).turn()),
    Action("a column is dropped", alters("r1", DropColumn("x")), column_was_added),
    Action(
        "a dead replica is dropped",
        lambda of: drop_dead_replica(of["r1"].session, of["r1"].table, "r2"),
        lambda of: of.stop("r2"),
    ),
    Action("a table is created over leftovers", created_anew, half_removed),
    Action(
        "a note that it is detached goes",
        lambda of: forget_note(of["r2"].session, of["r2"].definition),
    ),
    Action("a partition is fetched", fetches_from_there, makes=WithSource),
    Action(
        "a part is fetched from there",
        lambda of: fetches_from_there(of, PartName("1", 0, 0, 0)),
        makes=WithSource,
    ),
    Action(
        "detached parts are dropped",
        lambda of: of.table("r1").drop_detached("all"),
        detached_of_all_kinds,
    ),
    Action(
        "a table is optimized", lambda of: of.table("r1").optimize(final=True, settings=NOW)
    ),
    Action("a mutation is asked for", mutates),
    Action("mutations are told", lambda of: of.table("r1").mutations(), mutated_on_r2),
    Action(
        "a mutation is killed everywhere",
        lambda of: of.table("r1").kill_mutation(MUTATION, wait_s=3.0),
        mutated_on_r2,
    ),
    Action("a drop is waited for", drops_for_all, others_work),
    Action("a part is recovered by force", lambda of: recover_parts(of["r1"]), forces_restore),
    Action(
        "a lost part is asked for",
        lambda of: replace_lost_parts(of["r1"]),
        is_needed_in_vain,
    ),
    Action("an insert goes on", inserts_in_part, cut_off, makes=by_tens_that_lose_zookeeper),
    Action(
        "a clean-up after an insert that was cut off",
        cleans,
        cut_off_long_ago,
        makes=by_tens_that_lose_zookeeper,
    ),
    *(
        Action(
            f"a restore of what {' and '.join(cut)} began{', in batches' if in_batches else ''}",
            restored_in_batches if in_batches else is_restored,
            restored_after(*cut, in_batches=in_batches),
            makes=by_tens_that_lose_zookeeper,
        )
        for cut in (("r1",), ("r2",), ("r1", "r2"))
        for in_batches in (True, False)
    ),
    Action(
        "a restore of rows that came again", is_restored, came_again, makes=that_loses_zookeeper
    ),
    Action("much is done", lambda of: of.work_off("r1"), much),
    Action("what was attached is cleaned up", cleans, left_attached),
    Action(
        "what is detached is told",
        lambda of: [
            (one.directory, one.rows, one.why) for one in detached_directories(of["r1"])
        ],
        left_attached,
    ),
    Action("a mutation is planned", plans),
    *(Action(f"a replica catches up, {mode}", syncs(mode), much) for mode in SyncMode),
    Action("an insert of which some is there", in_several_blocks, makes=of_partitions),
    Action("rows are replaced by a condition on some", replaces_some, makes=of_partitions),
    Action("rows are replaced once more", replaces_rows, replaces_rows, makes=of_partitions),
    Action(
        "what others have begun is told",
        lambda of: running_merges(of["r1"]),
        claimed_by_another,
    ),
    *(
        Action(
            f"{name} whose answer is lost{'' if landed else ', as it is itself'}",
            unanswered(does, logs, landed=landed),
            prepared,
            makes=makes,
        )
        for name, does, prepared, makes in (
            ("an ATTACH", attaches, detached, None),
            ("an undoing", undoes, lambda _: None, None),
            ("a replacement of rows", replaces_rows, lambda _: None, of_partitions),
            ("a replacement", replaced("r1"), lambda _: None, WithSource),
            ("an ATTACH FROM", attached_from, lambda _: None, WithSource),
            ("a move", moved, lambda _: None, WithSource),
        )
        for landed in (True, False)
    ),
    Action(
        "a start with an unknown merge", starts, with_unknown_merge, makes=that_loses_zookeeper
    ),
    Action(
        "a drop of nothing",
        lambda of: of.table("r1").drop_partitions(["another"], settings=NOW),
    ),
    Action(
        "quorums without one replica", lambda of: clean_quorums(of["r1"]), stays_without_quorum
    ),
    Action("a drop of what waits alone", drops_all, waits_alone(2)),
    Action("a drop of what waits", drops_all, stays_without_quorum),
    Action(
        "rows are replaced by a condition once more",
        replaces_by_condition,
        replaced_by_condition,
        makes=of_partitions,
    ),
    Action("an ATTACH after one that died", attaches, half_attached),
    Action(
        "a restore of what was given up before",
        is_restored,
        given_up_among_others,
        makes=that_loses_zookeeper,
    ),
    Action("a merge that failed is tried", merges, failed_before),
    Action("why nothing works is told", lambda of: queue_status(of["r1"]), failed_before),
]
