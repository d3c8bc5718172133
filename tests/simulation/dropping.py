"""DROP PARTITION, DROP PART and TRUNCATE by a simulated client."""

import random
from collections.abc import Callable

from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.partitions.drop import drop_part, drop_partitions
from rmt_pipeline.zookeeper.snapshot import active_parts
from tests.support.cluster import Context, SimWaker

WAITS = (
    QuerySettings(alter_sync=0),
    QuerySettings(alter_sync=1, receive_timeout=20),
    QuerySettings(alter_sync=2, receive_timeout=20),
)
FORMS = ("DROP", "DROP", "DROP", "DETACH", "PART", "DETACH PART", "ALL")

Action = Callable[[Context], None]


def drop(*partitions: str, detach: bool = False, query: QuerySettings = WAITS[0]) -> Action:
    """Without partitions: all there are."""

    def run(context: Context) -> None:
        drop_partitions(
            context.replica, partitions or None, query, waking(context), detach=detach
        )

    return run


def drop_some_part(
    rng: random.Random, *, detach: bool = False, query: QuerySettings = WAITS[0]
) -> Action:
    """Of those that are active there."""

    def run(context: Context) -> None:
        replica = context.replica()
        parts = list(PartSet(active_parts(replica.keeper, replica.paths)))
        if parts:
            part = rng.choice(parts)
            drop_part(context.replica, part, query, waking(context), detach=detach)

    return run


def waking(context: Context) -> Callable[[], SimWaker]:
    return lambda: SimWaker(context.process.world)


def drawn(rng: random.Random, partitions: str) -> Action:
    form, query = rng.choice(FORMS), rng.choice(WAITS)
    if form.endswith("PART"):
        return drop_some_part(rng, detach=form != "PART", query=query)
    some = () if form == "ALL" else rng.sample(partitions, rng.randint(1, len(partitions)))
    return drop(*some, detach=form == "DETACH", query=query)
