"""What is set aside and comes back in a simulated world: ATTACH and DROP DETACHED of what was
detached, FETCH from the first table into the second one, FREEZE and UNFREEZE.
"""

import random
from collections import Counter
from collections.abc import Callable

from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.store import layout
from rmt_pipeline.store.frozen import DirectoryAlreadyExists
from tests.simulation.between import Tables
from tests.simulation.dropping import drop
from tests.simulation.ledger import Ledger, Snapshot
from tests.support.cluster import Context
from tests.support.sim_rows import rows_on

Action = Callable[[Context], None]
WAITS = (
    QuerySettings(alter_sync=0, receive_timeout=5),
    QuerySettings(alter_sync=2, receive_timeout=20),
)
FORMS = ("attach", "attach", "attach", "throw away", "freeze", "freeze", "unfreeze")
FORMS_BESIDE = ("fetch", "fetch", "attach", "attach", "throw away", "detach")
SNAPSHOTS = "uvwxyz"
DETACHED = 0.3  # of the first table's statements detach a partition
BESIDE = 0.5  # are the second table's, if there is one


def attach(partition: str | None, query: QuerySettings = WAITS[0]) -> Action:
    """What is detached at the server that is asked; None: of all partitions."""

    def run(context: Context) -> None:
        context.table().attach(partition, settings=query)

    return run


def throw_away(ledger: Ledger, partition: str | None) -> Action:
    """DROP DETACHED. What leaves that directory meanwhile may be lost."""

    def run(context: Context) -> None:
        replica = context.site.replica
        ledger.throwing[replica] += 1
        context.process.on_end.append(lambda: ledger.throwing.subtract([replica]))
        context.table().drop_detached(partition)

    return run


def freeze(ledger: Ledger, name: str, partition: str | None) -> Action:
    """What was frozen is what the replica promised, if that was the same before and after. Of what
    somebody unfreezes at the same time nobody knows whether it stays.
    """

    def run(context: Context) -> None:
        site, table = context.site, context.table()
        before = promised(context, partition)
        try:
            frozen = table.freeze(partition, name=name)
        except DirectoryAlreadyExists:  # our first answer was lost, or somebody else has
            return
        if promised(context, partition) == before:
            found = {one.part for one in frozen}
            assert found == before, f"FREEZE of {site.replica} has {found}, not {before}"
        for one in frozen:
            key = Snapshot(site.replica, name, one.part)
            if not ledger.was_unfrozen(key):
                ledger.frozen[key] = frozen_rows(context, key)

    return run


def unfreeze(ledger: Ledger, name: str, partition: str | None) -> Action:
    """From now on nobody knows of it."""

    def run(context: Context) -> None:
        replica = context.site.replica
        ledger.unfrozen.add((replica, name, partition))
        for key in [key for key in ledger.frozen if ledger.was_unfrozen(key)]:
            del ledger.frozen[key]
        context.table().unfreeze(name, partition)

    return run


def fetch(tables: Tables, partition: str, query: QuerySettings = WAITS[1]) -> Action:
    """From the first table, into `detached/` of the second one."""

    def run(context: Context) -> None:
        there = context.beside(tables.target)
        answered = tables.fetching(there.site.replica, partition)
        path = tables.source.table.root
        fetched = there.table().fetch_partition(path, partition, settings=query)
        texts: Counter[str] = Counter()
        for part in fetched.parts:
            texts.update(there.site.rows(f"{layout.DETACHED}/{part}"))
        answered(fetched, texts)

    return run


def beside(tables: Tables, action: Action) -> Action:
    """On the second table of the same server."""
    return lambda context: action(context.beside(tables.target))


def promised(context: Context, partition: str | None) -> set[PartName]:
    node = context.process.world.zookeeper.nodes.get(context.site.paths.parts)
    parts = PartSet(map(PartName.parse, node.children if node else ()))
    return {part for part in parts if partition in (None, part.partition)}


def frozen_rows(context: Context, key: Snapshot) -> list[str]:
    return rows_on(context.site.host.disk, key.path)


def drawn(
    rng: random.Random, partitions: str, ledger: Ledger, tables: Tables | None
) -> tuple[str, Action]:
    """A statement of the first table, or of the second one if there is one, and how its process is
    called.
    """
    if tables is not None and rng.random() < BESIDE:
        return _drawn_beside(rng, partitions, tables)
    if rng.random() < DETACHED:
        return "detach", drop(rng.choice(partitions), detach=True, ledger=ledger)
    form, name = rng.choice(FORMS), rng.choice(SNAPSHOTS)
    partition = rng.choice((*partitions, None))
    match form:
        case "freeze":
            return form, freeze(ledger, name, partition)
        case "unfreeze":
            return form, unfreeze(ledger, name, partition)
        case "throw away":
            return form, throw_away(ledger, partition)
        case _:
            return form, attach(partition, rng.choice(WAITS))


def _drawn_beside(rng: random.Random, partitions: str, tables: Tables) -> tuple[str, Action]:
    form, partition = rng.choice(FORMS_BESIDE), rng.choice(partitions)
    match form:
        case "fetch":
            return "bring", fetch(tables, partition)
        case "detach":
            return form, beside(tables, drop(partition, detach=True))
        case "throw away":
            return form, beside(tables, throw_away(tables.bought, partition))
        case _:
            return form, beside(tables, attach(partition, rng.choice(WAITS)))
