"""Keepers that speak through another one, and say what is different: for one replica as it was made
once, or for a statement that happens once.
"""

from collections.abc import Sequence
from typing import Generic, TypeVar

from rmt_pipeline.protocol.errors import ReplicaDropped, RmtError
from rmt_pipeline.zookeeper.keeper import (
    Check,
    Create,
    Keeper,
    LivingKeeper,
    Op,
    Refused,
    Stat,
    Watch,
)
from rmt_pipeline.zookeeper.strays import Strays

KeeperT = TypeVar("KeeperT", bound=Keeper)


class ThroughKeeper(Generic[KeeperT]):
    """The `Keeper` protocol, as `session` carries it out."""

    def __init__(self, session: KeeperT) -> None:
        self.session = session

    @property
    def session_id(self) -> int:
        return self.session.session_id

    @property
    def strays(self) -> Strays:
        return self.session.strays

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        return self.session.get(path, watch)

    def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        return self.session.get_many(paths)

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return self.session.exists(path, watch)

    def exists_many(self, paths: Sequence[str]) -> list[Stat | None]:
        return self.session.exists_many(paths)

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return self.session.children(path, watch)

    def children_stat(self, path: str, watch: Watch | None = None) -> tuple[list[str], Stat]:
        return self.session.children_stat(path, watch)

    def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        return self.session.children_many(paths)

    def await_children(self, path: str, watch: Watch) -> bool:
        return self.session.await_children(path, watch)

    def multi(self, ops: Sequence[Op]) -> list[str]:
        return self.session.multi(ops)

    def multi_many(self, multis: Sequence[Sequence[Op]]) -> list[list[str] | Exception]:
        return self.session.multi_many(multis)

    def sync(self, path: str) -> None:
        self.session.sync(path)

    def close(self) -> None:
        self.session.close()


class BoundKeeper(ThroughKeeper[Keeper]):
    """A session's writes for one replica as it was made once: none lands in its namesake.

    A path says nothing of who made what is there, and versions start again at 0:

    1. An insert has its block number, and its part has its name on the disk. Its process stops.
    2. Somebody drops the table and creates it again: the same path, the same replica, versions of
       0. An insert into the new table is given the same number, and is under way.
    3. The first process goes on. Its commit finds a replica that is active, an `is_lost` of the
       version that it saw, and a lock of the name that it holds: the new table promises a part that
       nobody has.

    So what a replica is made with has a node of its own, `R/creation/<uuid>`, which nobody makes
    again, and each write asserts it. It comes first: what was refused for another reason was
    refused by the replica that was meant, and what its caller concludes of its disk is true of its
    own disk.

    Reads are the session's; each multi asserts the creation of a replica, and raises
    ReplicaDropped when it is not there: nothing was written then.
    """

    def __init__(self, session: Keeper, root: str, creation: str) -> None:
        """`root` is the replica's path, for people."""
        super().__init__(session)
        self._root = root
        self.creation = creation
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
            "dropped, or made again by SYSTEM RESTORE REPLICA. Nothing was written"
        )


class CarriedOut(RmtError):
    """The node says that it was done before. Nothing was written."""

    code = "ALREADY_CARRIED_OUT"


class MarkedKeeper(ThroughKeeper[LivingKeeper]):
    """A session in which one statement happens at most once, whoever tries it again.

    A statement that changes a replicated table does it in one multi, which adds to the table's log
    or to its mutations. Here that multi also creates the node that says so:

    1. A carries out TRUNCATE TABLE, and dies before it could tell anybody.
    2. Rows are inserted.
    3. A begins again, or another replica takes over. Its multi finds the node: nothing is written,
       and the rows stay.

    So the first multi that commits something also creates `mark`.
    """

    def __init__(self, keeper: LivingKeeper, mark: str) -> None:
        super().__init__(keeper)
        self._mark = mark
        self._is_marked = False

    def multi(self, ops: Sequence[Op]) -> list[str]:
        """Raises CarriedOut."""
        if self._is_marked or not any(map(_commits, ops)):
            return self.session.multi(ops)
        try:
            created = self.session.multi([*ops, Create(self._mark)])
        except Refused as refused:
            if refused.path == self._mark and refused.index == len(ops):
                raise CarriedOut(f"{self._mark} is there: it was carried out") from refused
            raise
        self._is_marked = True
        return created[:-1]

    @property
    def is_retired(self) -> bool:
        return self.session.is_retired


def _commits(op: Op) -> bool:
    """Whether it adds an entry to a table's log, or a mutation."""
    if not isinstance(op, Create) or not op.sequence:
        return False
    return op.path.endswith(("/log/log-", "/mutations/"))
