"""A session in which one statement happens at most once, whoever tries it again.

A statement that changes a replicated table does it in one multi, which adds to the table's log or
to its mutations. Here that multi also creates the node that says so:

1. A carries out TRUNCATE TABLE, and dies before it could tell anybody.
2. Rows are inserted.
3. A begins again, or another replica takes over. Its multi finds the node: nothing is written, and
   the rows stay.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.zookeeper.keeper import Create, LivingKeeper, Op, Refused, Stat, Watch

if TYPE_CHECKING:
    from rmt_pipeline.zookeeper.strays import Strays


class CarriedOut(RmtError):
    """The node says that it was done before. Nothing was written."""

    code = "ALREADY_CARRIED_OUT"


class MarkedKeeper:
    """A `LivingKeeper` whose first multi that commits something also creates `mark`."""

    def __init__(self, keeper: LivingKeeper, mark: str) -> None:
        self._keeper = keeper
        self._mark = mark
        self._is_marked = False

    def multi(self, ops: Sequence[Op]) -> list[str]:
        """Raises CarriedOut."""
        if self._is_marked or not any(map(_commits, ops)):
            return self._keeper.multi(ops)
        try:
            created = self._keeper.multi([*ops, Create(self._mark)])
        except Refused as refused:
            if refused.path == self._mark and refused.index == len(ops):
                raise CarriedOut(f"{self._mark} is there: it was carried out") from refused
            raise
        self._is_marked = True
        return created[:-1]

    def multi_many(self, multis: Sequence[Sequence[Op]]) -> list[list[str] | Exception]:
        return self._keeper.multi_many(multis)

    @property
    def is_retired(self) -> bool:
        return self._keeper.is_retired

    @property
    def session_id(self) -> int:
        return self._keeper.session_id

    @property
    def strays(self) -> "Strays":
        return self._keeper.strays

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        return self._keeper.get(path, watch)

    def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        return self._keeper.get_many(paths)

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return self._keeper.exists(path, watch)

    def exists_many(self, paths: Sequence[str]) -> list[Stat | None]:
        return self._keeper.exists_many(paths)

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return self._keeper.children(path, watch)

    def children_stat(self, path: str, watch: Watch | None = None) -> tuple[list[str], Stat]:
        return self._keeper.children_stat(path, watch)

    def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        return self._keeper.children_many(paths)

    def sync(self, path: str) -> None:
        self._keeper.sync(path)

    def close(self) -> None:
        self._keeper.close()


def _commits(op: Op) -> bool:
    """Whether it adds an entry to a table's log, or a mutation."""
    if not isinstance(op, Create) or not op.sequence:
        return False
    return op.path.endswith(("/log/log-", "/mutations/"))
