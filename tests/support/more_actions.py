"""More of what a replica may be asked to do."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.alter.commands import AddColumn, AlterCommand
from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.protocol.nodes.formats import ReplicaAddress
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.replica.alter.request import request_alter
from rmt_pipeline.replica.assign.merges import select_and_assign
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.insert.report import insert_reports
from rmt_pipeline.replica.life.create import create_replica
from rmt_pipeline.replica.life.detach import DROPPED, note_detached
from rmt_pipeline.replica.life.drop import drop_put_away, drop_replica
from rmt_pipeline.replica.life.restore import restore
from rmt_pipeline.replica.life.start import start
from rmt_pipeline.replica.mutations.mutations import (
    finalize_mutations,
    kill_mutation,
    load_mutations,
    wait_for_mutation,
)
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.sync import SyncMode, sync_replica
from rmt_pipeline.replica.upkeep.check import check_part, recover_parts
from rmt_pipeline.replica.upkeep.lost import lost_parts, replace_lost_parts
from rmt_pipeline.replica.upkeep.rewound import require_as_seen, require_promises
from rmt_pipeline.replica.upkeep.scrub import checked_parts
from rmt_pipeline.replica.work.queue_status import queue_status
from rmt_pipeline.replica.work.running import running_merges
from rmt_pipeline.zookeeper.keeper import Create, Delete
from tests.support.actions import (
    FIRST,
    NOW,
    Action,
    Did,
    merge_assigned,
    mutated,
    no_bytes,
    rows,
    waits_in_vain,
)
from tests.support.local_replicas import (
    ClockWaker,
    Meanwhile,
    Replicas,
    in_memory,
    partitioned,
)
from tests.support.partitioned import insert
from tests.support.partitioned import rows as pairs
from tests.support.restoring import Disaster
from tests.support.two_tables import source_of

NAMES = ("r1", "r2", "r3")
MUTATION = "0000000000"
X_COMES = AddColumn(Column("x", "Int64"))


class WithSource(Replicas):
    """A table by `p`, and the one beside it from which it takes rows."""

    def __init__(self, directory: Path) -> None:
        self.source = Replicas(directory / "s", NAMES, source_of)
        super().__init__(directory / "t", NAMES, partitioned, beside=self.source)
        for pair in ((1, 10), (1, 11)):
            insert(self.source, pair)
        self.source.work_off()
        by_p(self)


def by_p(replicas: Replicas) -> Replicas:
    for some in ([(1, 1), (2, 2)], [(1, 3)]):
        insert(replicas, *some)
    replicas.work_off()
    return replicas


def of_partitions(directory: Path) -> Replicas:
    return by_p(Replicas(directory, NAMES, partitioned))


def that_loses_zookeeper(directory: Path) -> Disaster:
    disaster = Disaster(directory, NAMES)
    for values in ((1, 2), (3,)):
        disaster.insert("r1", *values)
    disaster.work_off()
    return disaster


def is_restored(replicas: Replicas, name: str = "r1") -> object:
    return restore(replicas[name], name.encode())


def wiped(replicas: Replicas) -> None:
    assert isinstance(replicas, Disaster)
    replicas.wipe()


def restored_by_another(replicas: Replicas) -> None:
    wiped(replicas)
    is_restored(replicas, "r2")


def other_restored(replicas: Replicas) -> None:
    """Or says why not."""
    with suppress(RmtError):
        is_restored(replicas, "r3")


def killed(replicas: Replicas) -> None:
    assert isinstance(replicas, Disaster)
    replicas.stop("r1")
    replicas.connect("r1")


def starts(replicas: Replicas) -> object:
    address = ReplicaAddress("r1", 9009, 9000, "default", "t")
    return start(replicas["r1"], identity="r1", incarnation="2", address=address)


def put_away(replicas: Replicas, names: Sequence[str] = NAMES) -> None:
    """Their tables are dropped, and can be taken back for some minutes."""
    session = replicas.zookeeper.connect()
    for name in names:
        paths = replicas[name].paths
        session.multi([Delete(paths.is_active), Create(paths.detached, DROPPED.encode())])


def two_put_away(replicas: Replicas) -> None:
    put_away(replicas, ("r2", "r3"))


def version_of_note(replicas: Replicas) -> int | None:
    found = replicas.zookeeper.nodes.get(replicas["r2"].paths.detached)
    return None if found is None else found.version


def taken_back(replicas: Replicas) -> None:
    session, paths = replicas.zookeeper.connect(), replicas["r2"].paths
    if session.exists(paths.detached) is not None:
        session.multi([Delete(paths.detached), Create(paths.is_active)])


def created_anew(replicas: Replicas, name: str = "r1") -> object:
    definition = replace(replicas[name].definition, uuid=f"new one of {name}")
    session = replicas[name].session if name == "r1" else replicas.zookeeper.connect()
    return create_replica(session, definition, name.encode())


def only_r1(replicas: Replicas) -> None:
    replicas.drop("r2", "r3")


def drops(replicas: Replicas, name: str) -> object:
    return drop_replica(replicas["r1"].session, replicas["r1"].table, name)


def alters(name: str, command: AlterCommand = X_COMES) -> Did:
    def act(replicas: Replicas) -> object:
        one = replicas[name]
        return request_alter(
            lambda: one, lambda _: [command], NOW, lambda: ClockWaker(replicas.clock)
        )

    return act


def can_alter(replicas: Replicas) -> None:
    for name in NAMES:
        replicas[name].update_definition = in_memory(replicas[name])


def altered(replicas: Replicas) -> None:
    can_alter(replicas)
    alters("r2")(replicas)


def news(replicas: Replicas) -> None:
    """Others have inserted, merged and dropped; r1 has not looked."""
    replicas.insert("r2", 7)
    replicas.work_off("r2")
    merge_assigned(replicas, "r2")


def queued_news(replicas: Replicas) -> None:
    news(replicas)
    pull_log(replicas["r1"])


def mutated_on_r2(replicas: Replicas) -> None:
    mutated(replicas)
    assign_mutations(replicas["r1"])
    replicas.work_off("r2")


def mutated_everywhere(replicas: Replicas) -> None:
    mutated(replicas)
    assign_mutations(replicas["r1"])
    replicas.work_off()


def waits(replicas: Replicas) -> Meanwhile:
    """Each time that r1 waits one replica works."""
    steps = [lambda name=name: replicas.work_off(name) for name in NAMES]
    return Meanwhile(replicas.clock, steps)  # type: ignore[arg-type]


def waits_for_mutation(replicas: Replicas) -> None:
    there = [name for name in NAMES if name == "r1" or name in there_now(replicas)]
    wait_for_mutation(
        replicas["r1"],
        MUTATION,
        there,
        timeout_s=50.0,
        inactive_timeout_s=5.0,
        waker=noting(replicas, *(name for name in NAMES if name in there_now(replicas))),
    )


def there_now(replicas: Replicas) -> frozenset[str]:
    return frozenset(replicas.zookeeper.nodes[replicas["r1"].table.replicas].children)


def noting(replicas: Replicas, *names: str) -> Meanwhile:
    """Each time that r1 waits the next of these works, and notes what is finished."""

    def works(name: str) -> None:
        replicas.work_off(name)
        finalize_mutations(replicas[name], load_mutations(replicas[name]))

    return Meanwhile(replicas.clock, [partial(works, name) for name in names])


def fetched_on_r2(replicas: Replicas) -> None:
    replicas.meanwhile.append(lambda: replicas.step("r2", "fetch"))


def inserted_for_two(replicas: Replicas) -> object:
    return replicas.table("r1").insert([{"n": 7}], settings={"insert_quorum": "2"})


def inserted_in_commits(replicas: Replicas) -> object:
    fits, limits.INSERT_BYTES_MAX = limits.INSERT_BYTES_MAX, 1
    try:
        return insert(replicas, (1, 7), (2, 7), (3, 7), token="a token")
    finally:
        limits.INSERT_BYTES_MAX = fits


def lies_broken(replicas: Replicas) -> None:
    """A part is gone from the disk, and another one is there that nobody knows."""
    replicas.stores["r1"].remove(FIRST)
    later = replicas.insert("r1", 4)
    replicas.stores["r1"].remove(later)


def detached(replicas: Replicas) -> None:
    replicas.table("r1").drop_partitions(["all"], detach=True, settings=NOW)
    replicas.work_off()


def dropped_on_r2(replicas: Replicas) -> None:
    replicas.table("r2").drop_partitions(["all"], settings=NOW)


def undone(replicas: Replicas) -> object:
    found = [one.insert_id for one in insert_reports(replicas["r1"])]
    return replicas.table("r1").undo(found[0] if found else "it is forgotten", settings=NOW)


def given_up(replicas: Replicas) -> None:
    no_bytes(replicas)
    replace_lost_parts(replicas["r1"])
    replace_lost_parts(replicas["r2"])


def replaced(at: str) -> Callable[[Replicas], object]:
    def act(replicas: Replicas) -> object:
        assert isinstance(replicas, WithSource)
        return replicas.table(at).replace_partition(
            "1", replicas.source.table(at), settings=QUICK
        )

    return act


def attached_from(replicas: Replicas) -> object:
    assert isinstance(replicas, WithSource)
    return replicas.table("r1").attach_partition(
        "1", replicas.source.table("r1"), settings=QUICK
    )


def moved(replicas: Replicas) -> object:
    assert isinstance(replicas, WithSource)
    return replicas.source.table("r1").move_partition("1", replicas.table("r1"), settings=QUICK)


QUICK = QuerySettings(alter_sync=0, receive_timeout=0)

MORE = [
    Action(
        "a part is dropped",
        lambda replicas: replicas.table("r1").drop_part(FIRST, settings=NOW),
    ),
    Action(
        "partitions are detached",
        lambda replicas: replicas.table("r1").drop_partitions(
            ["all"], detach=True, settings=NOW
        ),
        holds=lambda replicas: replicas.work_off("r1") is not None and rows(replicas) == [],
    ),
    Action(
        "what was detached is attached",
        lambda replicas: replicas.table("r1").attach("all", settings=NOW),
        detached,
        lambda replicas: rows(replicas) == [1, 2, 3],
    ),
    Action(
        "a drop of others is carried out",
        lambda replicas: replicas.work_off("r1"),
        dropped_on_r2,
        lambda replicas: rows(replicas) == [],
    ),
    Action(
        "an insert that is there already",
        lambda replicas: replicas.table("r1").insert([{"n": 1}, {"n": 2}]),
        holds=lambda replicas: rows(replicas) == [1, 2, 3],
    ),
    Action(
        "an insert for two",
        inserted_for_two,
        fetched_on_r2,
        lambda replicas: rows(replicas) == [1, 2, 3, 7],
    ),
    Action(
        "an insert in several commits",
        inserted_in_commits,
        holds=lambda replicas: [n for _, n in pairs(replicas)].count(7) == 3,
        makes=of_partitions,
    ),
    Action(
        "a fetch for a quorum",
        lambda replicas: replicas.step("r1", "fetch"),
        lambda replicas: (waits_in_vain(replicas), replicas.come_back("r2")),
        lambda replicas: rows(replicas) == [1, 2, 3, 5],
    ),
    Action("an ALTER", alters("r1"), can_alter),
    Action("an ALTER is taken up", lambda replicas: replicas.work_off("r1"), altered),
    Action("a mutation is written", mutated),
    Action("a mutation is waited for", waits_for_mutation, mutated_on_r2),
    Action(
        "mutations are noted as finished",
        lambda replicas: finalize_mutations(replicas["r1"], load_mutations(replicas["r1"])),
        mutated_everywhere,
    ),
    Action(
        "a mutation is killed",
        lambda replicas: kill_mutation(replicas["r1"], MUTATION),
        mutated_on_r2,
    ),
    Action(
        "a merge is chosen",
        lambda replicas: select_and_assign(replicas["r1"], aggressive=True),
    ),
    Action("the log is pulled", lambda replicas: pull_log(replicas["r1"]), news),
    Action(
        "a replica catches up",
        lambda replicas: sync_replica(
            replicas["r1"], SyncMode.DEFAULT, 60.0, waits(replicas), ["r2"]
        ),
        news,
        lambda replicas: rows(replicas) == [1, 2, 3, 7],
    ),
    Action("inserts are told", lambda replicas: insert_reports(replicas["r1"]), news),
    Action("the queue is told", lambda replicas: queue_status(replicas["r1"]), queued_news),
    Action("what runs is told", lambda replicas: running_merges(replicas["r1"]), queued_news),
    Action(
        "another replica is created",
        lambda replicas: create_replica(
            replicas["r1"].session,
            replace(
                replicas["r1"].definition,
                engine=replace(replicas["r1"].definition.engine, replica="r4"),
                uuid="uuid-of-r4",
            ),
            b"r4",
        ),
    ),
    Action("another replica is dropped", lambda replicas: drops(replicas, "r2")),
    Action(
        "the last replica is dropped twice at once",
        lambda replicas: drops(replicas, "r1"),
        only_r1,
        meanwhile=lambda replicas: drop_replica(
            replicas.zookeeper.connect(), replicas["r1"].table, "r1"
        ),
        stride=6,
    ),
    Action(
        "one that was put away is dropped while it is taken back",
        lambda replicas: drop_put_away(
            replicas["r1"].session, replicas["r1"].table, "r2", version_of_note(replicas)
        ),
        two_put_away,
        meanwhile=taken_back,
    ),
    Action(
        "one is created in the place of those put away while one is taken back",
        created_anew,
        put_away,
        meanwhile=taken_back,
        stride=6,
    ),
    Action(
        "two are created at once in the place of those put away",
        created_anew,
        put_away,
        meanwhile=lambda replicas: created_anew(replicas, "r2"),
        stride=6,
    ),
    Action(
        "a note that it is detached",
        lambda replicas: note_detached(
            replicas["r1"].session, replicas["r2"].definition, "by somebody"
        ),
        lambda replicas: replicas.stop("r2"),
        meanwhile=lambda replicas: replicas.come_back("r2"),
    ),
    Action("a start", starts, killed, makes=that_loses_zookeeper),
    Action(
        "a restore", is_restored, wiped, makes=that_loses_zookeeper, meanwhile=other_restored
    ),
    Action(
        "a restore of the second one",
        is_restored,
        restored_by_another,
        makes=that_loses_zookeeper,
        meanwhile=other_restored,
    ),
    Action("parts are recovered", lambda replicas: recover_parts(replicas["r1"]), lies_broken),
    Action(
        "a part is checked",
        lambda replicas: check_part(replicas["r1"], FIRST),
        lambda replicas: replicas.stores["r1"].remove(FIRST),
    ),
    Action("parts are checked", lambda replicas: list(checked_parts(replicas["r1"]))),
    Action(
        "nothing was taken back",
        lambda replicas: (
            require_as_seen(replicas["r1"]),
            require_promises(replicas["r1"]),
        ),
    ),
    Action("lost parts are told", lambda replicas: lost_parts(replicas["r1"]), given_up),
    Action("an insert is undone", undone),
    Action(
        "rows of a partition are replaced",
        lambda replicas: replicas.table("r1").replace(
            [{"p": 1, "n": 9}], partition="1", token="a token", settings=QUICK
        ),
        holds=lambda replicas: pairs(replicas) == [(1, 9), (2, 2)],
        makes=of_partitions,
    ),
    Action(
        "rows are replaced by a condition",
        lambda replicas: replicas.table("r1").replace(
            [{"p": 1, "n": 9}], where="n in (1, 9)", token="a token", settings=QUICK
        ),
        holds=lambda replicas: pairs(replicas) == [(1, 3), (1, 9), (2, 2)],
        makes=of_partitions,
    ),
    Action(
        "a partition is replaced by that of another table",
        replaced("r1"),
        holds=lambda replicas: pairs(replicas) == [(1, 10), (1, 11), (2, 2)],
        makes=WithSource,
    ),
    Action("a partition of another table is attached", attached_from, makes=WithSource),
    Action("a partition is moved", moved, makes=WithSource),
    Action(
        "a replacement of others is carried out",
        lambda replicas: replicas.work_off("r1"),
        replaced("r2"),
        lambda replicas: pairs(replicas) == [(1, 10), (1, 11), (2, 2)],
        makes=WithSource,
    ),
    Action(
        "a partition is frozen",
        lambda replicas: replicas.table("r1").freeze("all", name="x"),
    ),
]
