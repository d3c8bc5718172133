"""Keepers that pass calls on to another keeper and add an operation to its multis: one that asserts
which creation of a replica is meant, or one that lets a statement happen only once.
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
    RefusalKind,
    Refused,
    Stat,
    Watch,
)
from rmt_pipeline.zookeeper.strays import Strays

KeeperT = TypeVar("KeeperT", bound=Keeper)


class ThroughKeeper(Generic[KeeperT]):
    """A `Keeper` that passes every call on to `session`."""

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
    """A session that writes for one creation of a replica: no write lands in a replica that was
    created later at the same path.

    Each multi asserts the node of that creation, and raises ReplicaDropped if the node does not
    exist; nothing was written then. Reads are passed on unchanged.

    A path does not tell which creation of a table is meant, and versions start again at 0:

    1. An insert has allocated its block number, and its part has its name on the disk. Its process
       stands still.
    2. A user drops the table and creates it again: with the same path, the same replica, and
       versions of 0. An insert into the new table gets the same block number, and is under way.
    3. The first process goes on. Its commit finds an active replica, an `is_lost` of the version
       that it has read, and a lock of the name that it holds: the new table promises a part that no
       replica has.

    So each creation of a replica has a node of its own, `R/creation/<uuid>`, which is never created
    a second time, and each write asserts it. The assertion is the first operation: a write that is
    refused because of another operation was refused by the replica that was meant, so that what the
    caller concludes about the disk is true of this replica's disk.
    """

    def __init__(self, session: Keeper, root: str, creation: str) -> None:
        """`creation` is the path of the node to assert; `root` the replica's path, for messages."""
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
    """The statement was carried out before, as its node says. Nothing was written."""

    code = "ALREADY_CARRIED_OUT"


class MarkedKeeper(ThroughKeeper[LivingKeeper]):
    """A session in which one statement happens at most once, whichever replica tries it again.

    A statement changes a replicated table in one multi, which adds to the table's log or to its
    mutations. The first such multi of this session also creates the node `mark`, and is refused if
    that exists:

    1. A replica carries out TRUNCATE TABLE, and dies before it could report that.
    2. Rows are inserted.
    3. The replica begins again, or another one takes over. Its multi finds `mark`: nothing is
       written, and the rows stay.
    """

    def __init__(self, keeper: LivingKeeper, mark: str) -> None:
        super().__init__(keeper)
        self._mark = mark
        self._is_marked = False

    def multi(self, ops: Sequence[Op]) -> list[str]:
        """Like `Keeper.multi`. Raises CarriedOut if the statement was carried out before."""
        if self._is_marked or not any(map(_commits, ops)):
            return self.session.multi(ops)
        try:
            created = self.session.multi([*ops, Create(self._mark)])
        except Refused as refused:
            if refused.index == len(ops) and refused.kind is RefusalKind.NODE_EXISTS:
                raise CarriedOut(f"{self._mark} is there: it was carried out") from refused
            raise
        self._is_marked = True
        return created[:-1]

    @property
    def is_retired(self) -> bool:
        return self.session.is_retired


def _commits(op: Op) -> bool:
    """Whether the operation adds an entry to a table's log, or a mutation."""
    return op.path.endswith(("/log/log-", "/mutations/"))
