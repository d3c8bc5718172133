"""What docs/growth.md reckons with: the constants, and whether they hold at three sizes.

    python -m benchmarks.model [--sizes 2x30 4x30 8x30]

Two `rmt serve --work` over one ZooKeeper, tables x inserts into each, of ten rows each and without
merges, so that all parts stay. The constants are taken at the first size, after a table that is not
counted has been worked; what they say of the others is put beside what is there. Nodes and bytes are
counted in the tree, but for the log, which is trimmed; requests as ZooKeeper counts them, memory as
the kernel does. Requests depend on how many inserts one look finds, and on looks that race; memory
on when Python gives some back.
"""

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from benchmarks.cluster import Cluster
from benchmarks.insert import definition, small, wait_active
from rmt_pipeline.context import ServerContext
from rmt_pipeline.table import Table
from rmt_pipeline.zookeeper.keeper import Keeper

REPLICAS = 2
QUIET_S = 5.0
INSERT_REQUESTS, FOLLOW_REQUESTS = (
    3.15,
    5.0,
)  # tests/unit/replica/test_requests.py has them exact
LOOK_REQUESTS, LOOK_EVERY_S = 11, 5.0  # for merges, while there is something new
CLEAN_UP_REQUESTS, CLEAN_UP_EVERY_S = 25, 30.0
NO_MERGES = ("max_bytes_to_merge_at_max_space_in_pool", "1")


@dataclass(frozen=True, slots=True)
class Counted:
    """What there is of all tables, and what their inserts cost."""

    nodes: float
    bytes: float
    memory_mb: float = 0.0
    """Of one server."""

    def less(self, other: "Counted") -> "Counted":
        return Counted(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(self)))

    def each(self, count: float) -> "Counted":
        return Counted(*(getattr(self, f.name) / count for f in fields(self)))


@dataclass(frozen=True, slots=True)
class Constants:
    """Of a table without parts, and of each part of it, with all that an insert leaves."""

    table: Counted
    part: Counted

    def expected(self, tables: int, parts: int) -> Counted:
        """Of so many tables with so many parts each."""
        return Counted(
            *(
                tables * (getattr(self.table, one.name) + parts * getattr(self.part, one.name))
                for one in fields(Counted)
            )
        )


def tree(keeper: Keeper, top: str) -> Counted:
    """Nodes below, and the bytes of their paths and data, as ZooKeeper counts its own."""
    level, nodes, size = [top], 0, 0
    while level:
        nodes += len(level)
        reads = keeper.get_many(level)
        size += sum(len(path) for path in level)
        size += sum(len(read[0]) for read in reads if read is not None)
        listed = keeper.children_many(level)
        level = [
            f"{path}/{name}"
            for path, names in zip(level, listed, strict=True)
            for name in names or ()
            if not path.endswith("/log")
        ]
    return Counted(nodes, size)


def memory_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def now(cluster: Cluster, looking: ServerContext) -> Counted:
    found = tree(looking.keeper(), "/bench")
    memory = sum(memory_mb(cluster.pid(name)) for name in ("r1", "r2")) / REPLICAS
    return replace(found, memory_mb=memory)


def settle(cluster: Cluster) -> int:
    """Wait until hardly anything is asked any more. What was asked until then."""
    before = cluster.requests()
    while True:
        time.sleep(QUIET_S)
        found = cluster.requests()
        if found - before < 10 * QUIET_S:
            return found
        before = found


def made(
    cluster: Cluster, servers: Sequence[ServerContext], names: Sequence[str]
) -> list[Table]:
    for name in names:
        one = definition(name)
        one = replace(one, settings=(*one.settings, NO_MERGES))
        for server in servers:
            server.create_table(replace(one))
    for name in names:
        wait_active(*(server.table(name) for server in servers))
    settle(cluster)
    return [servers[0].table(name) for name in names]


@dataclass(frozen=True, slots=True)
class Found:
    tables: Counted
    parts: Counted
    requests: int
    seconds: float


def measured(tables: int, inserts: int) -> Found:
    """Of tables without parts, and what their inserts have added."""
    with (
        Cluster(work=True) as cluster,
        cluster.context("r1") as r1,
        cluster.context("r2") as r2,
    ):
        [warm] = made(cluster, (r1, r2), ["warm"])
        for insert in range(inserts):
            warm.insert(small(insert))
        settle(cluster)
        empty = now(cluster, r1)
        names = [f"model{number:03}" for number in range(tables)]
        there = made(cluster, (r1, r2), names)
        without = now(cluster, r1)
        asked, began_s = cluster.requests(), time.monotonic()
        for insert in range(inserts):
            for table in there:
                table.insert(small(insert))
        requests, seconds = settle(cluster) - asked, time.monotonic() - began_s
        parts = now(cluster, r1).less(without)
        return Found(without.less(empty), parts, requests, seconds)


def requests_said(tables: int, inserts: int, seconds: float) -> float:
    """Of so many inserts into each table, within this time."""
    each = INSERT_REQUESTS + FOLLOW_REQUESTS * (REPLICAS - 1)
    beside = LOOK_REQUESTS / LOOK_EVERY_S + CLEAN_UP_REQUESTS / CLEAN_UP_EVERY_S
    pings = seconds  # of each server
    return tables * (inserts * each + seconds * REPLICAS * beside) + REPLICAS * pings


def show(what: str, is_there: float, said: float) -> None:
    print(
        f"  {what:12} {is_there:12.1f}   the model says {said:12.1f}   {is_there / said:6.2f}"
    )


def both(one: Counted, other: Counted) -> Counted:
    return Counted(*(getattr(one, f.name) + getattr(other, f.name) for f in fields(Counted)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", default=["2x30", "4x30", "8x30"])
    constants: Constants | None = None
    for size in parser.parse_args().sizes:
        tables, inserts = map(int, size.split("x"))
        found = measured(tables, inserts)
        if constants is None:
            constants = Constants(found.tables.each(tables), found.parts.each(tables * inserts))
            print(f"of a table {constants.table}\nof a part  {constants.part}")
        print(f"\n{tables} tables of {inserts} parts on {REPLICAS} replicas", end=", ")
        print(f"load of the machine {os.getloadavg()[0]:.1f}")
        there, said = both(found.tables, found.parts), constants.expected(tables, inserts)
        for one in fields(Counted):
            show(one.name, getattr(there, one.name), getattr(said, one.name))
        show("requests", found.requests, requests_said(tables, inserts, found.seconds))


if __name__ == "__main__":
    main()
