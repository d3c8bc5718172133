"""Rows come, parts merge and are mutated, columns are added and changed, all at once, on servers
that are killed now and then.

What is left is what a model in pandas says; and no insert was ever refused because of the rest.
"""

import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

import pandas as pd
import pytest

from rmt_pipeline.config import Config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import (
    OutcomeUnknown,
    RmtError,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.table import Column, Engine, TableDefinition
from rmt_pipeline.replica.alter.request import CannotAssignAlter
from rmt_pipeline.replica.insert.result import InsertResult
from rmt_pipeline.sql.define.partition import partition_id_of
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.syntax.mutation import PartitionValue
from rmt_pipeline.syntax.nodes import Literal
from rmt_pipeline.system import SystemClock
from rmt_pipeline.table import Table
from tests.support.local_server import Server
from tests.support.serving import NOT_NOW, SHORT_S, config_at, create, patiently
from tests.support.waiting import LIMIT_S

pytestmark = pytest.mark.zookeeper

REPLICAS = ("r1", "r2")
PARTITIONS = "abc"
INSERTS_EACH, ROWS_EACH, MUTATIONS, KILLS = 30, 20, 10, 3
SETTINGS = (("merge_selecting_sleep_ms", "200"), ("max_replicated_mutations_in_queue", "8"))


def definition(root: str, replica: str) -> TableDefinition:
    return TableDefinition(
        database="default",
        name="t",
        columns=(Column("id", "Int64"), Column("v", "Int32"), Column("p", "String")),
        engine=Engine("MergeTree", root, replica),
        order_by=("id",),
        partition_by=("p",),
        settings=SETTINGS,
    )


@dataclass(frozen=True)
class Change:
    """A mutation, as a statement and as what it does to a frame with id, v, p, w."""

    text: str
    apply: Callable[[pd.DataFrame], pd.DataFrame]


# An ALTER whose server is killed may be in the log and not be answered: it is said again.
ALTERS = (
    "ADD COLUMN IF NOT EXISTS w Int64 DEFAULT id * 2",
    "MODIFY COLUMN v Int64",
    "ADD COLUMN IF NOT EXISTS u String DEFAULT 'none' FIRST, COMMENT COLUMN w 'more'",
)


def drawn_change(rng: random.Random, *, has_w: bool) -> Change:
    divisor, rest, more = rng.randint(3, 9), rng.randint(0, 2), rng.randint(1, 99)
    if rng.random() < 0.4:
        return Change(
            f"DELETE WHERE id % {divisor} = {rest} AND v > {more}",
            lambda rows: rows[~((rows.id % divisor == rest) & (rows.v > more))],
        )
    if has_w and rng.random() < 0.5:
        return Change(
            f"UPDATE w = w + {more} WHERE id % {divisor} = {rest}",
            lambda rows: rows.assign(w=rows.w.where(rows.id % divisor != rest, rows.w + more)),
        )
    if rng.random() < 0.3:
        partition = rng.choice(PARTITIONS)
        return Change(
            f"UPDATE v = v * 2 WHERE p = '{partition}' AND id % {divisor} = {rest}",
            lambda rows: rows.assign(
                v=rows.v.where(
                    ~((rows.p == partition) & (rows.id % divisor == rest)), rows.v * 2
                )
            ),
        )
    return Change(
        f"UPDATE v = v + {more} WHERE id % {divisor} = {rest}",
        lambda rows: rows.assign(v=rows.v.where(rows.id % divisor != rest, rows.v + more)),
    )


@dataclass
class History:
    """What was asked for and answered. Appended to by several threads."""

    inserted: list[tuple[pd.DataFrame, InsertResult]] = field(default_factory=list)
    changes: dict[str, Change] = field(default_factory=dict)
    altered: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)


def noted(
    history: History, action: Callable[[], None], again: tuple[type[RmtError], ...] = NOT_NOW
) -> None:
    """Said until it is done; every refusal that is none of these is noted."""
    try:
        patiently(action, again)
    except RmtError as error:
        history.refusals.append(f"{error.code}: {error}")
        raise


def insert_some(table: Table, name: str, seed: int, history: History) -> None:
    rng = random.Random(seed)
    for number in range(INSERTS_EACH):
        first = REPLICAS.index(name) * 1_000_000 + number * ROWS_EACH
        rows = pd.DataFrame(
            {
                "id": range(first, first + ROWS_EACH),
                "v": [rng.randint(0, 100) for _ in range(ROWS_EACH)],
                "p": [rng.choice(PARTITIONS) for _ in range(ROWS_EACH)],
            }
        )

        def insert(rows: pd.DataFrame = rows, token: str = f"{name} {number}") -> None:
            history.inserted.append((rows, table.insert(rows, token=token)))

        noted(history, insert, (*NOT_NOW, OutcomeUnknown))  # its token says whether it is in
        SystemClock().sleep_s(rng.uniform(0, 0.2))


def change_some(tables: list[Table], seed: int, history: History) -> None:
    rng = random.Random(seed)
    for _ in range(MUTATIONS):
        table = rng.choice(tables)
        change = drawn_change(rng, has_w=table.definition.column("w") is not None)

        def mutate(table: Table = table, change: Change = change) -> None:
            history.changes[table.mutate(change.text)] = change

        noted(history, mutate)
        if rng.random() < 0.4:
            noted(history, lambda table=table: optimize(table), (*NOT_NOW, OutcomeUnknown))
        SystemClock().sleep_s(rng.uniform(0, 0.8))


def alter_some(config: Config, seed: int, history: History) -> None:
    rng = random.Random(seed)
    for text in ALTERS:
        SystemClock().sleep_s(rng.uniform(0.2, 1.5))

        def alter(text: str = text) -> None:
            with Session.open(config, rng.choice(REPLICAS)) as session:
                session.execute(f"ALTER TABLE t {text} SETTINGS alter_sync = 0")
            history.altered.append(text)

        noted(history, alter, (*NOT_NOW, OutcomeUnknown, CannotAssignAlter))


def optimize(table: Table) -> None:
    table.optimize(settings={"alter_sync": 0})


@pytest.fixture
def killed_servers(
    tmp_path, zookeeper_server, chroot
) -> Iterator[tuple[list[ServerContext], list[Server]]]:
    config = config_at(tmp_path, zookeeper_server.hosts, session_timeout_s=SHORT_S)
    with ExitStack() as opened:
        contexts = []
        for name in REPLICAS:
            context = opened.enter_context(ServerContext.open(config, name))
            create(config, context.keeper(), definition(f"{chroot}/t", name), name)
            contexts.append(context)
        servers = []
        for name in REPLICAS:
            servers.append(Server(config, name, tmp_path / f"{name}.log"))
            opened.callback(servers[-1].stop)
        yield contexts, servers


def as_the_model_says(history: History, tables: list[Table]) -> pd.DataFrame:
    """Each row sees the mutations whose number in its partition is greater than its block's."""
    frames = []
    for rows, result in history.inserted:
        names = [*result.parts, *(PartName.parse(part) for _, part in result.duplicates)]
        blocks = {name.partition: name.block_min for name in names}
        ids = {p: _partition_id(tables[0], p) for p in PARTITIONS}
        frames.append(rows.assign(block=[blocks[ids[p]] for p in rows.p]))
    rows = pd.concat(frames, ignore_index=True)
    rows["w"] = rows.id * 2
    reports = {one.status.mutation_id: one.status.entry for one in tables[0].mutations()}
    assert reports.keys() >= history.changes.keys(), "the others are those of ALTERs"
    for mutation, change in sorted(history.changes.items()):
        numbers = {
            p: reports[mutation].version_in(_partition_id(tables[0], p)) for p in PARTITIONS
        }
        version = rows.p.map(lambda p, numbers=numbers: numbers[p] or 0)
        before = rows.block < version
        rows = pd.concat([change.apply(rows[before]), rows[~before]], ignore_index=True)
    return rows[["id", "v", "p", "w"]].sort_values("id", ignore_index=True)


def _partition_id(table: Table, value: str) -> str:
    return partition_id_of(PartitionValue(Literal(value)), table.definition)


def what_it_holds(table: Table) -> pd.DataFrame:
    rows = table.dataset().to_table().to_pandas()
    assert set(rows.u) == {"none"}
    return rows[["id", "v", "p", "w"]].sort_values("id", ignore_index=True)


def until_calm(tables: list[Table]) -> None:
    clock = SystemClock()
    until_s = clock.monotonic_s() + LIMIT_S
    for table in tables:
        while True:
            with suppress(*NOT_NOW):
                table.sync()
                if all(one.status.is_done for one in table.mutations()):
                    break
            assert clock.monotonic_s() < until_s, [
                one.status.waits_for for one in table.mutations() if not one.status.is_done
            ]
            clock.sleep_s(0.1)


def test_everything_at_once_ends_as_the_model_says(killed_servers):
    """P29, P31, P33, P34."""
    seed = int(os.environ.get("RMT_SEED", random.SystemRandom().randint(0, 2**32)))
    print(f"RMT_SEED={seed}")
    rng = random.Random(seed)
    contexts, servers = killed_servers
    tables = [context.table("t") for context in contexts]
    history = History()
    errors: list[BaseException] = []

    def noting(target: Callable[..., None], *arguments: object) -> Callable[[], None]:
        def run() -> None:
            try:
                target(*arguments)
            except BaseException as error:  # noqa: BLE001  asserted below
                errors.append(error)

        return run

    work = [
        *(
            noting(insert_some, table, name, rng.random(), history)
            for table, name in zip(tables, REPLICAS, strict=True)
        ),
        noting(change_some, tables, rng.random(), history),
        noting(alter_some, contexts[0].config, rng.random(), history),
    ]
    threads = [threading.Thread(target=one) for one in work]
    for thread in threads:
        thread.start()
    for _ in range(KILLS):
        SystemClock().sleep_s(rng.uniform(0.5, 2.0))
        rng.choice(servers).kill()
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive()
    assert history.refusals == []
    assert errors == []
    assert tuple(history.altered) == ALTERS
    until_calm(tables)
    expected = patiently(lambda: as_the_model_says(history, tables))
    for table in tables:
        found = patiently(lambda table=table: what_it_holds(table))
        pd.testing.assert_frame_equal(found, expected, check_dtype=False)
    parts = patiently(tables[0].parts)
    assert any(part.name.level > 0 for part in parts), "nothing was merged"
