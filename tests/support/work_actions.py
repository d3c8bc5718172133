"""What a replica works off, and is asked, while something is in its way: broken bytes, dead
processes, what others have undone, limits.
"""

import datetime as dt
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rmt_pipeline.protocol.alter.commands import (
    AddColumn,
    DropColumn,
    ModifyColumn,
    RenameColumn,
)
from rmt_pipeline.protocol.nodes.records import Attempts
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.replica.assign.explain import explain_merges
from rmt_pipeline.replica.assign.merges import optimize_partition, select_and_assign
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.life.clone import clone_if_lost
from rmt_pipeline.replica.missing import why_missing
from rmt_pipeline.replica.mutations.mutations import kill_mutation
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.readable import readable_parts
from rmt_pipeline.replica.upkeep.lag import lag_of
from rmt_pipeline.zookeeper.keeper import Create, Delete, Op
from tests.support.actions import (
    FIRST,
    LATER,
    NOW,
    Action,
    Did,
    is_lost,
    marked_lost,
    merge_assigned,
    mutated,
    no_bytes,
    waits_in_vain,
)
from tests.support.local_replicas import Replicas, definition_of
from tests.support.more_actions import (
    MUTATION,
    NAMES,
    WithSource,
    alters,
    can_alter,
    detached,
    dropped_on_r2,
    news,
    of_partitions,
    replaced,
)
from tests.support.mortal_disk import Died
from tests.support.partitioned import insert
from tests.support.rare_actions import (
    SECOND,
    fetches_from_there,
    others_work,
    unanswered,
    undoes,
)
from tests.support.refused_actions import cleans as cleans_long_after


def works(replicas: Replicas) -> object:
    """Each pool once."""
    return [replicas.step("r1", "fetch"), replicas.step("r1", "merge")]


def works_late(replicas: Replicas) -> object:
    """And once more, when what failed may be tried again."""
    first = works(replicas)
    replicas.clock.passed_s += 100
    return [first, works(replicas)]


# --- fetches and merges ---


def gone_at_r2(replicas: Replicas) -> None:
    replicas.insert("r2", 7)
    replicas.stores["r2"].remove(LATER)


def dies_at_publishing(pool: str, prepared: Did) -> Did:
    """What it has fetched or made is left."""

    def act(replicas: Replicas) -> None:
        prepared(replicas)
        store = replicas.stores["r1"]
        right = store.publish_all

        def dies(*_: object) -> None:
            raise Died

        store.publish_all = dies  # type: ignore[method-assign]
        try:
            with suppress(Died):
                replicas.step("r1", pool)  # type: ignore[arg-type]
        finally:
            store.publish_all = right  # type: ignore[method-assign]

    return act


def kill_comes_first(replicas: Replicas) -> None:
    """The mutation's entries are in the queue of r1."""
    mutated(replicas)
    assign_mutations(replicas["r1"])
    pull_log(replicas["r1"])
    kill_mutation(replicas["r2"], MUTATION)


def drop_comes_first(replicas: Replicas) -> None:
    news(replicas)
    pull_log(replicas["r1"])
    replicas.table("r2").drop_partitions(["all"], settings=NOW)


def attached_at_r2(replicas: Replicas) -> None:
    """r1 has a detached copy of one of the parts."""
    detached(replicas)
    replicas.table("r2").attach("all", settings=NOW)


def is_lost_and_keeps_no_copies(replicas: Replicas) -> None:
    replicas.set(detach_old_local_parts_when_cloning_replica=False)
    is_lost(replicas)


def attached_half_here(replicas: Replicas) -> None:
    """r1 has a detached copy of one of two parts."""
    attached_at_r2(replicas)
    replicas.table("r1").drop_detached(name="all_1_1_0")


def is_lost_and_source_is_behind(replicas: Replicas) -> None:
    """r2 has inserted behind a drop that it has yet to pull."""
    replicas.table("r3").drop_partitions(["all"], settings=NOW)
    replicas.insert("r2", 8)
    replicas.stop("r3")
    marked_lost(replicas)


# --- replacements of another table's ---


def without_source(*names: str) -> Did:
    """These have lost the part that r2 has taken for the table."""

    def act(replicas: Replicas) -> None:
        assert isinstance(replicas, WithSource)
        replaced("r2")(replicas)
        for name in names:
            replicas.source.stores[name].remove(PartName("1", 0, 0, 0))

    return act


def only_in_source(replicas: Replicas) -> None:
    """r2 is gone; r1 has the rows in the other table."""
    replaced("r2")(replicas)
    replicas.stop("r2")


def replaced_and_dropped(replicas: Replicas) -> None:
    replaced("r2")(replicas)
    replicas.table("r3").drop_partitions(["1"], settings=NOW)


def replaced_twice(replicas: Replicas) -> None:
    replaced("r2")(replicas)
    replicas.work_off("r2", "r3")
    replaced("r3")(replicas)


def replaced_and_merged(replicas: Replicas) -> None:
    """r1 has nothing of the source, and r2 one of the new parts under a larger name alone."""
    without_source("r1")(replicas)
    assert isinstance(replicas, WithSource)
    replicas.source.stores["r1"].remove(PartName("1", 1, 1, 0))
    replicas.work_off("r2")
    optimize_partition(replicas["r2"], "1", final=True, skip_merged=False)
    replicas.work_off("r2")
    last = max(part for part in replicas.stores["r2"].parts() if part.partition == "1")
    replicas["r2"].session.multi([Delete(replicas["r2"].paths.part(last))])


def source_is_behind(replicas: Replicas) -> None:
    assert isinstance(replicas, WithSource)
    insert(replicas.source, (1, 12), at="r2")
    replicas.source.table("r2").drop_part(PartName("1", 0, 0, 0), settings=NOW)


# --- limits ---


def inserts(replicas: Replicas) -> object:
    return replicas.table("r1").insert([{"n": 7}])


def limited(**settings: int) -> Did:
    return lambda replicas: replicas.set(**settings)


def many_mutations(replicas: Replicas) -> None:
    for _ in range(3):
        mutated(replicas)
    replicas.set(number_of_mutations_to_delay=2, number_of_mutations_to_throw=5)


def mutates(replicas: Replicas) -> object:
    return replicas.table("r1").mutate("DELETE WHERE n = 2", settings=NOW)


# --- what is asked ---


def explains(replicas: Replicas) -> object:
    """Without what depends on how large files are."""
    found = explain_merges(replicas["r1"])
    return [(one.partition, one.parts, one.reason.partition(":")[0]) for one in found.ranges]


def with_column(replicas: Replicas) -> None:
    can_alter(replicas)
    alters("r1", AddColumn(Column("x", "Int64", "DEFAULT", "n * 2")))(replicas)
    for name in NAMES:
        replicas.step(name, "fetch")


def with_open_mutation(replicas: Replicas) -> None:
    with_column(replicas)
    replicas.table("r1").mutate("DELETE WHERE x = 2", settings=NOW)


def held_up(replicas: Replicas) -> None:
    """Somebody has a number between the parts, a mutation is open, and an insert waits."""
    session, table = replicas.zookeeper.connect(), replicas["r1"].table
    session.multi([Create(f"{table.partition('all')}/block-", b"", sequence=True)])
    replicas.insert("r1", 7)
    mutated(replicas)
    waits_in_vain(replicas)


def that_expires(directory: Path) -> Replicas:
    """Rows of two parts, none of which is due yet."""
    columns = (Column("n", "UInt64"), Column("t", "DateTime"))
    replicas = Replicas(
        directory, NAMES, lambda name: replace(definition_of(name, columns), ttl="t")
    )
    for value in (1, 2):
        replicas.table("r1").insert([{"n": value, "t": dt.datetime(2030, 1, 1, tzinfo=dt.UTC)}])
    replicas.work_off()
    return replicas


def merged(replicas: Replicas) -> None:
    merge_assigned(replicas)
    replicas.work_off()


def after_all(replicas: Replicas) -> None:
    """Merged, mutated, dropped; and an entry that failed is not in the queue any more."""
    merged(replicas)
    mutated(replicas)
    mutated(replicas)
    assign_mutations(replicas["r1"])
    replicas.work_off()
    replicas.insert("r1", 8)
    replicas.work_off()
    replicas.table("r1").drop_part(replicas.stores["r1"].parts()[-1], settings=NOW)
    replicas.work_off()
    attempts = Attempts(
        tries=1, last_exception="", last_attempt_s=0, postpone_reason=""
    ).encode()
    paths = replicas["r1"].paths
    replicas["r1"].session.multi([Create(paths.attempts_of("queue-0000000000"), attempts)])
    replicas.set(finished_mutations_to_keep=1)


# --- what is carried out, and the answer is lost ---


def finishes(op: Op) -> bool:
    """Of the multi by which an entry leaves the queue, and its part is promised."""
    return isinstance(op, Delete) and "/queue/" in op.path


def answers_lost() -> list[Action]:
    return [
        Action(
            f"{name} carried out, whose answer is lost{'' if landed else ', as it is itself'}",
            unanswered(works, finishes, landed=landed),
            prepared,
            makes=makes,
        )
        for name, prepared, makes in (
            ("a fetch that is", lambda of: of.insert("r2", 7), None),
            (
                "two fetches that are",
                lambda of: (of.insert("r2", 7), of.insert("r2", 8)),
                None,
            ),
            ("a merge that is", merge_assigned, None),
            ("a drop that is", dropped_on_r2, None),
            ("a replacement that is", replaced("r2"), WithSource),
        )
        for landed in (True, False)
    ]


WORK = [
    *answers_lost(),
    Action("a fetch of what is gone there", works_late, gone_at_r2),
    Action("a fetch after one that died", works, dies_at_publishing("fetch", news)),
    Action("a merge after one that died", works, dies_at_publishing("merge", merge_assigned)),
    Action("an ATTACH of others of which half is here", works, attached_half_here),
    Action(
        "a clone whose source is behind",
        lambda of: clone_if_lost(of["r1"]),
        is_lost_and_source_is_behind,
    ),
    Action("a replacement that was merged", works_late, replaced_and_merged, makes=WithSource),
    Action(
        "a drop of a part is waited for",
        lambda of: of.table("r1").drop_part(FIRST, settings=QuerySettings(alter_sync=2)),
        others_work,
    ),
    Action(
        "one of two detached parts is attached",
        lambda of: of.table("r1").attach("all", part=SECOND, settings=NOW),
        detached,
    ),
    Action(
        "a table is optimized with a clean-up",
        lambda of: of.table("r1").optimize(final=True, cleanup=True, settings=NOW),
    ),
    Action(
        "a clone that keeps no copies",
        lambda of: clone_if_lost(of["r1"]),
        is_lost_and_keeps_no_copies,
    ),
    Action("what a kill has undone", works, kill_comes_first),
    Action("what a drop has undone", works_late, drop_comes_first),
    Action("an ATTACH of others", works, attached_at_r2),
    *(
        Action(
            f"a replacement that {' and '.join(names)} lack",
            works_late,
            prepared,
            makes=WithSource,
        )
        for names in (("r1",), ("r1", "r2", "r3"))
        for prepared in [without_source(*names)]
    ),
    Action("a replacement of who is gone", works_late, only_in_source, makes=WithSource),
    Action(
        "a replacement that was dropped", works_late, replaced_and_dropped, makes=WithSource
    ),
    Action("a replacement of a replacement", works_late, replaced_twice, makes=WithSource),
    Action(
        "a partition is fetched of whom is behind",
        fetches_from_there,
        source_is_behind,
        makes=WithSource,
    ),
    Action(
        "a partition is fetched once more",
        fetches_from_there,
        fetches_from_there,
        makes=WithSource,
    ),
    Action("an insert is slowed", inserts, limited(parts_to_delay_insert=1)),
    Action(
        "an insert of too many parts",
        inserts,
        limited(parts_to_delay_insert=1, parts_to_throw_insert=2),
    ),
    Action("a mutation is slowed", mutates, many_mutations),
    Action("a column is renamed", alters("r1", RenameColumn("x", "y")), with_column),
    Action(
        "a column gets another type", alters("r1", ModifyColumn("x", "String")), with_column
    ),
    Action(
        "a column that a mutation needs is dropped",
        alters("r1", DropColumn("x")),
        with_open_mutation,
    ),
    Action(
        "why nothing is merged while much is in the way",
        explains,
        held_up,
    ),
    Action(
        "a merge is chosen while much is in the way",
        lambda of: select_and_assign(of["r1"], aggressive=True),
        held_up,
    ),
    Action(
        "a merge is chosen where nothing is due",
        lambda of: select_and_assign(of["r1"], aggressive=False),
        makes=that_expires,
    ),
    Action("how late it is with much to do", lambda of: lag_of(of["r1"]), drop_comes_first),
    Action(
        "what can be read while much is to do", lambda of: readable_parts(of["r1"]), gone_at_r2
    ),
    Action(
        "why parts are missing while one is away",
        lambda of: why_missing(of["r1"], [FIRST]),
        lambda of: (no_bytes(of), of.stop("r3")),
    ),
    Action("an insert that was merged is undone", undoes, merged),
    Action("all is cleaned up long after", cleans_long_after, after_all),
    Action(
        "a table is optimized without duplicates",
        lambda of: of.table("r1").optimize(final=True, deduplicate=True, settings=NOW),
    ),
    Action(
        "a table is optimized that is merged",
        lambda of: of.table("r1").optimize(final=True, settings=NOW),
        merged,
    ),
    Action(
        "a partition is optimized",
        lambda of: of.table("r1").optimize("1", settings=NOW),
        makes=of_partitions,
    ),
]
