"""Group commit: the multis of several inserts of one process, sent as one multi.

Each insert allocates with one multi and commits with another one, independently of other inserts.
Multis that are to be sent while one is under way are sent together afterwards, as one multi: one
request, one write of ZooKeeper's log.

1. If the common multi is refused, nothing was written, and each insert sends its own multi by
   itself. So an insert that is a duplicate, or was cancelled by a DROP, does not make others fail,
   and gets the same refusal that it would have got alone.
2. If the common multi gets no answer, none of the inserts has one, and each settles its own commit
   as if it had sent it alone. A commit deletes its locks; so once one of these inserts has given
   its locks back, the common multi can't land any more, and with it none of the others' commits
   either (spec §2.6, §16.2 I4).
"""

from collections.abc import Sequence

from rmt_pipeline.protocol import limits
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.system import Waker
from rmt_pipeline.zookeeper.batches import op_bytes
from rmt_pipeline.zookeeper.keeper import Op, Refused


def multi_of_many(replica: Replica, ops: Sequence[Op], waker: Waker) -> list[str]:
    """Carry out a multi, perhaps together with those of other inserts. `waker` is the calling
    thread's own. Returns and raises what `Keeper.multi` does.
    """

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
