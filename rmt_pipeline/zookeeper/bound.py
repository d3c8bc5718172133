"""A session's writes for one replica as it was made once: none lands in its namesake.

A path says nothing of who made what is there, and versions start again at 0:

1. An insert has its block number, and its part has its name on the disk. Its process stops.
2. Somebody drops the table and creates it again: the same path, the same replica, versions of 0. An
   insert into the new table is given the same number, and is under way.
3. The first process goes on. Its commit finds a replica that is active, an `is_lost` of the version
   that it saw, and a lock of the name that it holds: the new table promises a part that nobody has.

So what a replica is made with has a node of its own, `R/creation/<uuid>`, which nobody makes again,
and each write asserts it. It comes first: what was refused for another reason was refused by the
replica that was meant, and what its caller concludes of its disk is true of its own disk.
"""

from collections.abc import Sequence

from rmt_pipeline.protocol.errors import ReplicaDropped
from rmt_pipeline.zookeeper.keeper import Check, Keeper, Op, Refused
from rmt_pipeline.zookeeper.through import ThroughKeeper


class BoundKeeper(ThroughKeeper[Keeper]):
    """Reads are the session's; each multi asserts the creation of a replica, and raises
    ReplicaDropped when it is not there: nothing was written then.
    """

    def __init__(self, session: Keeper, root: str, creation: str) -> None:
        """`root` is the replica's path, for people."""
        super().__init__(session)
        self._root = root
        self._creation = Check(creation)

    def multi(self, ops: Sequence[Op]) -> list[str]:
        try:
            return self.session.multi([self._creation, *ops])[1:]
        except Refused as refused:
            raise self._of_the_caller(refused) from refused

    def multi_many(self, multis: Sequence[Sequence[Op]]) -> list[list[str] | Exception]:
        results = self.session.multi_many([[self._creation, *ops] for ops in multis])
        return [self._result(one) for one in results]

    def _result(self, result: list[str] | Exception) -> list[str] | Exception:
        if isinstance(result, Refused):
            return self._of_the_caller(result)
        return result if isinstance(result, Exception) else result[1:]

    def _of_the_caller(self, refused: Refused) -> Refused | ReplicaDropped:
        if refused.index:
            return Refused(refused.kind, refused.path, refused.index - 1)
        return ReplicaDropped(
            f"{self._root} is not the replica that this was meant for: that one was "
            "dropped. Nothing was written"
        )
