"""DROP PARTITION, DROP PART and TRUNCATE by a simulated client."""

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress

from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.partitions.drop import drop_part, drop_partitions
from rmt_pipeline.store import layout
from rmt_pipeline.zookeeper.snapshot import active_parts
from tests.simulation.ledger import DropAnswer, Ledger, inserted_as, is_inside
from tests.support.cluster import Context, SimWaker, Site

WAITS = (
    QuerySettings(alter_sync=0),
    QuerySettings(alter_sync=1, receive_timeout=20),
    QuerySettings(alter_sync=2, receive_timeout=20),
)
FORMS = ("DROP", "DROP", "DROP", "DETACH", "PART", "DETACH PART", "ALL")

Action = Callable[[Context], None]


def drop(
    *partitions: str,
    detach: bool = False,
    query: QuerySettings = WAITS[0],
    ledger: Ledger | None = None,
) -> Action:
    """Without partitions: all there are. The answer is noted in the ledger."""

    def run(context: Context) -> None:
        answer = asked(
            context, ledger, lambda block: not partitions or block.partition in partitions
        )
        dropped = drop_partitions(
            context.replica, partitions or None, query, waking(context), detach=detach
        )
        answered(context, ledger, answer, dropped, query, detach=detach)

    return run


def drop_some_part(
    rng: random.Random,
    *,
    detach: bool = False,
    query: QuerySettings = WAITS[0],
    ledger: Ledger | None = None,
) -> Action:
    """Of those that are active there."""

    def run(context: Context) -> None:
        replica = context.replica()
        parts = list(PartSet(active_parts(replica.keeper, replica.paths)))
        if parts:
            part = rng.choice(parts)
            answer = asked(context, ledger, lambda block: is_inside(block, part))
            drop_part(context.replica, part, query, waking(context), detach=detach)
            answered(context, ledger, answer, [part], query, detach=detach)

    return run


def asked(
    context: Context, ledger: Ledger | None, is_meant: Callable[[PartName], bool]
) -> DropAnswer:
    """What is in the log before it is asked, and of that what this replica has."""
    if ledger is None:
        return DropAnswer(context.site.replica, frozenset())
    meant = {block for block in ledger.all_blocks() - set(ledger.dropped_by) if is_meant(block)}
    here = _rows_of(context, ledger, meant)
    site = context.site
    times = ledger.age, site.drops, ledger.restored
    return DropAnswer(site.replica, frozenset(meant), *times, here)


def answered(
    context: Context,
    ledger: Ledger | None,
    answer: DropAnswer,
    dropped: Sequence[PartName],
    query: QuerySettings,
    *,
    detach: bool,
) -> None:
    """From outside, at this moment. Who did not wait was promised nothing of what is here."""
    if ledger is not None:
        ledger.answer(context.process)
    if ledger is None or ledger.age != answer.age:  # the whole table was dropped meanwhile
        return
    if ledger.restored != answer.restored:  # perhaps no disk knew of the drop
        return
    ledger.drops_answered.append(answer)
    if query.alter_sync == 0 or context.site.drops != answer.drops:
        return
    answer.left = _rows_of(context, ledger, answer.blocks)
    if detach:
        mine = {block for block, by in ledger.dropped_by.items() if by in dropped}
        taken = {row for row in answer.here if mine.intersection(ledger.blocks[row][-1:])}
        kept = _detached_rows(context.site) | ledger.arrived
        answer.nowhere = taken - kept - ledger.thrown_away.get(context.site.replica, set())


def _rows_of(context: Context, ledger: Ledger, blocks: Collection[PartName]) -> set[str]:
    """Those that came last in one of the blocks, and that the replica's readers see in a part that
    stands for it: rows that were dropped, and came again in a block that is not here yet, are here
    still until the older drop is carried out.
    """
    node = context.process.world.zookeeper.nodes.get(context.site.paths.parts)
    found = set[str]()
    for part in PartSet(map(PartName.parse, node.children if node else ())):
        here = {block for block in blocks if is_inside(block, part)}
        rows = _read(context.site, [part]) - ledger.arrived if here else set[str]()
        found |= {row for row in rows if here.intersection(ledger.blocks.get(row, ())[-1:])}
    return found


def _detached_rows(site: Site) -> set[str]:
    names = site.host.disk.list(site.path(layout.DETACHED))
    return _read(site, [f"{layout.DETACHED}/{name}" for name in names])


def _read(site: Site, parts: Iterable[object]) -> set[str]:
    """But for those that have rotten: readers are refused."""
    rows = set[str]()
    for part in parts:
        with suppress(UnicodeDecodeError):
            rows |= set(map(inserted_as, site.rows(part)))
    return rows


def waking(context: Context) -> Callable[[], SimWaker]:
    return lambda: SimWaker(context.process.world)


def drawn(rng: random.Random, partitions: str, ledger: Ledger) -> Action:
    form, query = rng.choice(FORMS), rng.choice(WAITS)
    if form.endswith("PART"):
        return drop_some_part(rng, detach=form != "PART", query=query, ledger=ledger)
    some = () if form == "ALL" else rng.sample(partitions, rng.randint(1, len(partitions)))
    return drop(*some, detach=form == "DETACH", query=query, ledger=ledger)
