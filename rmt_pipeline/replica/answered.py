"""Writes that are said until there is an answer."""

from collections.abc import Sequence

from rmt_pipeline.protocol.errors import OutcomeUnknown
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper.keeper import Op

ANSWER_PAUSES_S = (0.05, 0.2, 0.8)
"""Between tries of a write without an answer. While there is no connection each of them takes as
long as a session may live without one.
"""


def answered(replica: Replica, ops: Sequence[Op]) -> list[str]:
    """Send a multi again and again until ZooKeeper answers: for multis that may land twice.

    ZooKeeper carries out what a session sends in its order, so the answer says also what became of
    the tries before. Raises Refused; OutcomeUnknown when the last try had no answer either.
    """
    for pause_s in ANSWER_PAUSES_S:
        try:
            return replica.keeper.multi(ops)
        except OutcomeUnknown:
            replica.clock.sleep_s(pause_s)
    return replica.keeper.multi(ops)
