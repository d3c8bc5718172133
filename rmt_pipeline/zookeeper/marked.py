"""A session in which one statement happens at most once, whoever tries it again.

A statement that changes a replicated table does it in one multi, which adds to the table's log or
to its mutations. Here that multi also creates the node that says so:

1. A carries out TRUNCATE TABLE, and dies before it could tell anybody.
2. Rows are inserted.
3. A begins again, or another replica takes over. Its multi finds the node: nothing is written, and
   the rows stay.
"""

from collections.abc import Sequence

from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.zookeeper.keeper import Create, LivingKeeper, Op, Refused
from rmt_pipeline.zookeeper.through import ThroughKeeper


class CarriedOut(RmtError):
    """The node says that it was done before. Nothing was written."""

    code = "ALREADY_CARRIED_OUT"


class MarkedKeeper(ThroughKeeper[LivingKeeper]):
    """A `LivingKeeper` whose first multi that commits something also creates `mark`."""

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
