"""Multis of several inserts of one process in one: group commit.

Each insert allocates with one multi and commits with another one, whatever the others do. Those
that are sent while one is under way go together, as one multi: one request, one write of
ZooKeeper's log.

1. It is refused: nothing was written, and each insert sends its own by itself. So one that is a
   duplicate, or was cancelled by a DROP, takes nobody along, and is told why as if it had been
   alone.
2. There is no answer: then there is none for any of them, and each settles its own as if it had
   been alone. A commit deletes its locks; so when one of these inserts has given its own locks
   back, the multi of all can't land any more, for the others either (spec §2.6, §16.2 I4).
"""

from collections.abc import Sequence

from rmt_pipeline.protocol import limits
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.system import Waker
from rmt_pipeline.zookeeper.batches import op_bytes
from rmt_pipeline.zookeeper.keeper import Op, Refused


def multi_of_many(replica: Replica, ops: Sequence[Op], waker: Waker) -> list[str]:
    """As `Keeper.multi`, perhaps with those of other inserts. `waker` is the caller's own."""

    def together(multis: Sequence[Sequence[Op]]) -> list[list[str]] | None:
        flat = [op for multi in multis for op in multi]
        if sum(map(op_bytes, flat)) > limits.MULTI_BYTES_MAX:
            return None
        try:
            results = iter(replica.keeper.multi(flat))
        except Refused:
            return None
        return [[next(results) for _ in multi] for multi in multis]

    return replica.memory.inserts.do(ops, waker, replica.keeper.multi, together)
