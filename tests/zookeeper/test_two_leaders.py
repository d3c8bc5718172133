"""Both replicas lead: they assign merges at once, and hundreds of inserts end as the same parts."""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

import pytest

from rmt_pipeline.config import Config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.log.codec import decode
from rmt_pipeline.protocol.log.entry import MergeParts
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.table import Table
from tests.support.local_work import working
from tests.support.serving import Served, config_at, create, definition_of
from tests.support.waiting import LIMIT_S, until

pytestmark = pytest.mark.zookeeper

INSERTS, ROWS_EACH, PARTITIONS = 400, 5, 2
SETTINGS = (("merge_selecting_sleep_ms", "20"), ("max_merge_selecting_sleep_ms", "100"))


@pytest.fixture
def config(tmp_path, zookeeper_server) -> Config:
    return config_at(tmp_path, zookeeper_server.hosts)


@pytest.fixture
def tables(config, chroot) -> Iterator[tuple[Table, Table]]:
    """The table on r1 and on r2, whose servers run; each worked by its own loops, both leading."""
    with ExitStack() as opened:
        found = []
        for name in ("r1", "r2"):
            client, worker = (
                opened.enter_context(ServerContext.open(config, name)) for _ in range(2)
            )
            definition = replace(
                definition_of(f"{chroot}/t", name),
                columns=(Column("p", "UInt8"), Column("n", "UInt64")),
                partition_by=("p",),
                settings=SETTINGS,
            )
            create(config, client.keeper(), definition, name)
            served = opened.enter_context(Served(config, name))
            served.until(served.is_active)
            opened.enter_context(working(worker, definition))
            found.append(client.table("t"))
        yield found[0], found[1]


def insert_all(tables: tuple[Table, Table]) -> None:
    """Half of the inserts on each replica, several under way at once."""
    with tables[0].pipeline(4) as one, tables[1].pipeline(4) as two:
        for number in range(INSERTS):
            first = number * ROWS_EACH
            rows = [{"p": number % PARTITIONS, "n": first + row} for row in range(ROWS_EACH)]
            (one, two)[number // PARTITIONS % 2].insert(rows)


def active(table: Table) -> dict[str, int]:
    """The active parts and their row hashes."""
    return {str(part.name): part.manifest.row_hash for part in table.parts()}


def promised(table: Table) -> list[PartName]:
    """Every part that is or was, and is not cleaned up yet: active ones and covered ones."""
    replica = table.replica
    return [PartName.parse(name) for name in replica.keeper.children(replica.paths.parts)]


def merges_by_leader(table: Table) -> dict[str, int]:
    replica = table.replica
    names = replica.keeper.children(replica.table.log)
    found: dict[str, int] = {}
    for read in replica.keeper.get_many([f"{replica.table.log}/{name}" for name in names]):
        entry = decode(read[0], ctime_s=0)
        if isinstance(entry, MergeParts):
            found[entry.source_replica] = found.get(entry.source_replica, 0) + 1
    return found


@dataclass(frozen=True)
class Seen:
    """What one replica has."""

    active: dict[str, int]
    promised: list[PartName]
    values: list[int]


def seen(table: Table) -> Seen:
    values = table.dataset().to_table(columns=["n"]).column("n").to_pylist()
    return Seen(active(table), promised(table), values)


def at_rest(tables: tuple[Table, Table]) -> list[Seen]:
    """What both have, if nothing was decided or under way while it was read; else nothing.

    The leaders go on choosing merges: what was at rest a moment ago need not be now.
    """
    log = tables[0].replica.keeper.children(tables[0].replica.table.log)
    for table in tables:
        table.sync(timeout_s=LIMIT_S)
    if any(table.replica.keeper.children(table.replica.paths.queue) for table in tables):
        return []
    found = [seen(table) for table in tables]
    return (
        found if tables[0].replica.keeper.children(tables[0].replica.table.log) == log else []
    )


def test_both_lead_and_end_with_the_same_parts(tables):
    """P13, P15. Equal row hashes, every row once, no two parts that overlap."""
    insert_all(tables)
    both: list[Seen] = []

    def have_come_to_rest() -> bool:
        both[:] = at_rest(tables)
        return bool(both) and len(both[0].active) < INSERTS / 10

    until(have_come_to_rest, lambda: f"{[len(one.active) for one in both]} parts are left")
    one, two = both
    assert one.active == two.active
    for each in both:
        for first, second in itertools.combinations(each.promised, 2):
            assert first.disjoint(second) or first.contains(second) or second.contains(first)
        assert {str(part) for part in PartSet(each.promised)} == set(one.active)
        assert sorted(each.values) == list(range(INSERTS * ROWS_EACH)), "every row once"
    assert merges_by_leader(tables[0]).keys() == {"r1", "r2"}
