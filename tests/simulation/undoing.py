"""Undo of an insert by a simulated client: its rows go, all of them, and nothing else does."""

from collections.abc import Callable

from rmt_pipeline.protocol.inserts.ids import insert_id_of_token
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.partitions.undo import CannotUndo, UnknownInsert, undo_insert
from tests.simulation.dropping import answered, asked, waking
from tests.simulation.ledger import ClientInsert, Ledger, is_inside
from tests.support.cluster import Context


def undo(
    insert: ClientInsert, query: QuerySettings, ledger: Ledger
) -> Callable[[Context], None]:
    """Of one that was answered, or has a token: who was not told knows it by that."""

    def run(context: Context) -> None:
        ledger.undoing[context.process] = insert
        age, restored = ledger.age, ledger.restored
        mine = own_blocks(ledger, insert)
        answer = asked(context, ledger, lambda block: block in mine)
        try:
            undone = undo_insert(context.replica, id_of(insert), query, waking(context))
        except (CannotUndo, UnknownInsert) as refused:
            if (ledger.age, ledger.restored) == (age, restored):
                it_could_not_be_undone(ledger, insert, refused)
            return
        ledger.answer(context.process)
        answered(context, ledger, answer, undone.parts, query, detach=False)

    return run


def id_of(insert: ClientInsert) -> str:
    if insert.token:
        return insert_id_of_token(insert.token)
    return insert.every_answer[-1].insert_id


def own_blocks(ledger: Ledger, insert: ClientInsert) -> set[PartName]:
    """Those with its rows, as it brought them, that are in the table now."""
    last = {
        blocks[-1]
        for partition in insert.rows
        for row in insert.own_rows(partition)
        if (blocks := ledger.blocks.get(row))
    }
    return last - ledger.dropped_by.keys()


def it_could_not_be_undone(ledger: Ledger, insert: ClientInsert, refused: Exception) -> None:
    """Something has become of it: it is not in, or some of it went, or was merged, or is going to
    be, over numbers that are not its own.
    """
    ever = {block for row in insert.all_rows() for block in ledger.blocks.get(row, ())}
    mine = own_blocks(ledger, insert)
    is_merged = any(
        is_inside(block, merged) and not _are_numbers_of(mine, merged)
        for block in mine
        for merged in ledger.merges
    )
    is_right = not mine or is_merged or not ever.isdisjoint(ledger.dropped_by.keys())
    is_right = is_right or not all(map(ledger.blocks.__contains__, insert.all_rows()))
    assert is_right or ledger.restored, f"{insert} could have been undone: {refused}"


def _are_numbers_of(mine: set[PartName], merged: PartName) -> bool:
    """Whether the merge is within the numbers that the insert has in its partition."""
    own = [block for block in mine if block.partition == merged.partition]
    first, last = min(one.block_min for one in own), max(one.block_max for one in own)
    return first <= merged.block_min <= merged.block_max <= last
