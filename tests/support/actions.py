"""What a replica may be asked to do, each with a table made for it. Others look at what happens
then: which requests it sends, and what comes of it when something happens between two of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from rmt_pipeline.protocol.alter.commands import AddColumn
from rmt_pipeline.protocol.log.codec import decode
from rmt_pipeline.protocol.log.entry import AlterMetadata
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.replica.alter.request import request_alter
from rmt_pipeline.replica.assign.explain import explain_merges
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.insert.result import QuorumNotReached
from rmt_pipeline.replica.life.clone import clone_if_lost
from rmt_pipeline.replica.missing import why_missing
from rmt_pipeline.replica.mutations.mutations import create_mutation
from rmt_pipeline.replica.mutations.progress import mutation_progress
from rmt_pipeline.replica.mutations.request import mutation_reports
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.quorum import clean_quorums, has_failed
from rmt_pipeline.replica.readable import readable_parts
from rmt_pipeline.replica.replica import Memory
from rmt_pipeline.replica.upkeep.check import check_part
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.replica.upkeep.compare import compare_replicas
from rmt_pipeline.replica.upkeep.lag import lag_of
from rmt_pipeline.replica.upkeep.lost import replace_lost_parts
from rmt_pipeline.zookeeper.keeper import Delete, SetData
from tests.support.between_requests import BeforeRequest, BetweenAnswers
from tests.support.local_replicas import ROOT, ClockWaker, Replicas, in_memory

FIRST = PartName("all", 0, 0, 0)
LATER = PartName("all", 2, 2, 0)
"""Of the insert that waits for its quorum."""
NOW = QuerySettings(alter_sync=0)
REQUESTS_MAX = 200
Did = Callable[[Replicas], object]


@dataclass(frozen=True, slots=True)
class Action:
    """What r1 does, of a table with two parts that all have; r2 and r3 are there. `holds` once it
    has been said again, when nothing happens beside it; None: it is not said again.
    """

    name: str
    does: Did
    prepared: Did = lambda _: None
    holds: Callable[[Replicas], bool] | None = None
    meanwhile: Did | None = None
    """What r2 does; None: r3 is dropped."""
    between: type[BeforeRequest] = BeforeRequest
    every: int = 3
    """Of its requests r1 itself is dropped before every third one, or every one."""
    stride: int = 1
    """What happens beside it happens before every so manieth request."""
    makes: Callable[[Path], Replicas] | None = None
    """Another table than that."""


def rows(replicas: Replicas, name: str = "r1") -> list[int]:
    found = replicas.table(name).dataset({"broken_parts_wait_ms": 0}).to_table()
    return sorted(found.column("n").to_pylist())


def children(replicas: Replicas, path: str) -> set[str]:
    return set(replicas.zookeeper.nodes[f"{ROOT}/{path}"].children)


def waits_in_vain(replicas: Replicas) -> None:
    """r2 has inserted rows that no other replica has fetched, and its server is gone."""
    with pytest.raises(QuorumNotReached):
        replicas.table("r2").insert(
            [{"n": 5}], settings={"insert_quorum": "2", "insert_quorum_timeout": "1000"}
        )
    pull_log(replicas["r1"])
    replicas.stop("r2")


def merge_assigned(replicas: Replicas, name: str = "r1") -> object:
    """Of all parts."""
    return optimize_partition(replicas[name], "all", final=True, skip_merged=False)


def marked_lost(replicas: Replicas) -> None:
    """r1, whose process remembers nothing."""
    replicas["r2"].session.multi([SetData(replicas["r1"].paths.is_lost, b"1")])
    replicas["r1"].memory = Memory()


def is_lost(replicas: Replicas) -> None:
    """r1, which has merged the two parts that r2 has not."""
    merge_assigned(replicas, "r2")
    replicas.work_off("r2")
    marked_lost(replicas)


def is_lost_and_source_has_to_drop(replicas: Replicas) -> None:
    """r2 has yet to fetch a part, and to drop it; r3 has it and has not heard of the drop."""
    replicas.insert("r3", 9)
    replicas.table("r3").drop_partitions(["all"], settings=NOW)
    pull_log(replicas["r2"])
    marked_lost(replicas)


def is_lost_and_source_has_to_alter(replicas: Replicas) -> None:
    """r2 has taken up a column, and has yet to take up the next one; r1 knows of neither."""
    r2 = replicas["r2"]
    r2.update_definition = in_memory(r2)
    for added in (AddColumn(Column("x", "Int64")), AddColumn(Column("y", "Int64"))):
        replicas.work_off("r2")
        request_alter(
            lambda: r2,
            lambda _, added=added: [added],  # type: ignore[misc]
            NOW,
            lambda: ClockWaker(replicas.clock),
        )
    r2.session.multi([SetData(replicas["r1"].paths.is_lost, b"1")])


def queued_alters_are_the_logs(replicas: Replicas) -> bool:
    """What is to become of r1 is a structure that the table had, and the version is its own."""
    keeper, table, paths = replicas["r1"].keeper, replicas["r1"].table, replicas["r1"].paths
    log = [table.log_entry(name) for name in keeper.children(table.log)]
    queue = [paths.queue_entry(name) for name in keeper.children(paths.queue)]
    done, to_do = (
        {
            (entry.alter_version, entry.metadata_text, entry.columns_text)
            for entry in (decode(keeper.get(node)[0]) for node in nodes)
            if isinstance(entry, AlterMetadata)
        }
        for nodes in (log, queue)
    )
    return bool(to_do) and to_do <= done


def no_bytes(replicas: Replicas) -> None:
    """The first part is on no disk, and all have tried to fetch it."""
    for name in ("r1", "r2", "r3"):
        replicas.stores[name].remove(FIRST)
        check_part(replicas[name], FIRST)
    for name in ("r1", "r2", "r3"):
        replicas.step(name, "fetch")


def mutated(replicas: Replicas) -> None:
    create_mutation(replicas["r1"], "DELETE WHERE n = 1")


def long_ago(replicas: Replicas) -> None:
    """Much to clean: covered parts, log entries, a mutation, a quorum that failed."""
    waits_in_vain(replicas)
    has_failed(replicas["r1"], LATER)
    replicas.come_back("r2")
    mutated(replicas)
    assign_mutations(replicas["r1"])
    replicas.work_off()
    replicas.clock.passed_s += 200_000
    replicas.set(min_replicated_logs_to_keep=1, max_replicated_logs_to_keep=2)


def log_is_gone(replicas: Replicas) -> None:
    """As `long_ago`, and nobody has to come across the failed part any more."""
    long_ago(replicas)
    for value in range(2):
        replicas.insert("r1", 8 + value)
    replicas.work_off()
    log = replicas["r1"].table.log
    old = sorted(children(replicas, "log"))[:-1]
    replicas["r1"].keeper.multi([Delete(f"{log}/{name}") for name in old])


def cleaned(replicas: Replicas, name: str = "r1") -> None:
    for _ in range(2):
        carry_out(replicas[name], plan_clean_up(replicas[name]))


ACTIONS = [
    Action(
        "a quorum fails",
        lambda replicas: has_failed(replicas["r1"], LATER),
        waits_in_vain,
        lambda replicas: children(replicas, "quorum/failed_parts") == {str(LATER)},
    ),
    Action(
        "quorums are cleaned up",
        lambda replicas: clean_quorums(replicas["r1"]),
        log_is_gone,
        lambda replicas: children(replicas, "quorum/failed_parts") == set(),
    ),
    Action(
        "quorums are cleaned up twice at once",
        lambda replicas: clean_quorums(replicas["r1"]),
        log_is_gone,
        lambda replicas: children(replicas, "quorum/failed_parts") == set(),
        lambda replicas: clean_quorums(replicas["r2"]),
    ),
    Action(
        "all is cleaned up twice at once",
        cleaned,
        log_is_gone,
        lambda replicas: rows(replicas) == [2, 3, 8, 9],
        lambda replicas: cleaned(replicas, "r2"),
    ),
    Action("all is cleaned up", cleaned, long_ago, lambda replicas: rows(replicas) == [2, 3]),
    Action(
        "a clone",
        lambda replicas: (clone_if_lost(replicas["r1"]), replicas.work_off("r1")),
        is_lost,
        lambda replicas: rows(replicas) == [1, 2, 3],
    ),
    Action(
        "a clone whose source drops",
        lambda replicas: (clone_if_lost(replicas["r1"]), replicas.work_off("r1")),
        is_lost_and_source_has_to_drop,
        lambda replicas: rows(replicas) == [],
        lambda replicas: replicas.work_off("r2"),
        BetweenAnswers,
    ),
    Action(
        "a clone whose source alters",
        lambda replicas: clone_if_lost(replicas["r1"]),
        is_lost_and_source_has_to_alter,
        queued_alters_are_the_logs,
        lambda replicas: replicas.work_off("r2"),
        BetweenAnswers,
    ),
    Action(
        "a part is given up for lost",
        lambda replicas: replace_lost_parts(replicas["r1"]),
        no_bytes,
        lambda replicas: children(replicas, "lost_parts") == {str(FIRST)},
    ),
    Action(
        "why parts are missing",
        lambda replicas: why_missing(replicas["r1"], [FIRST]),
        no_bytes,
        lambda replicas: "is lost" in why_missing(replicas["r1"], [FIRST])[FIRST],
    ),
    Action(
        "a fetch",
        lambda replicas: replicas.step("r1", "fetch"),
        lambda replicas: (
            replicas.stores["r1"].remove(FIRST),
            check_part(replicas["r1"], FIRST),
        ),
        lambda replicas: rows(replicas) == [1, 2, 3],
    ),
    Action(
        "a merge",
        lambda replicas: (merge_assigned(replicas), replicas.work_off("r1")),
        holds=lambda replicas: rows(replicas) == [1, 2, 3],
    ),
    Action(
        "a mutation",
        lambda replicas: (assign_mutations(replicas["r1"]), replicas.work_off("r1")),
        mutated,
        lambda replicas: rows(replicas) == [2, 3],
    ),
    Action(
        "how far mutations are",
        lambda replicas: (
            mutation_progress(replicas["r1"]),
            mutation_reports(replicas["r1"]),
        ),
        mutated,
    ),
    Action("why nothing is merged", lambda replicas: explain_merges(replicas["r1"])),
    Action("how late it is", lambda replicas: lag_of(replicas["r1"])),
    Action("replicas are compared", lambda replicas: compare_replicas(replicas["r1"])),
    Action(
        "a read of what is broken",
        lambda replicas: readable_parts(replicas["r1"]),
        no_bytes,
        every=1,
    ),
    Action(
        "an insert",
        lambda replicas: replicas.table("r1").insert([{"n": 7}]),
        holds=lambda replicas: rows(replicas) == [1, 2, 3, 7],
    ),
    Action(
        "a drop",
        lambda replicas: replicas.table("r1").drop_partitions(["all"], settings=NOW),
        holds=lambda replicas: replicas.work_off("r1") is not None and rows(replicas) == [],
    ),
]
