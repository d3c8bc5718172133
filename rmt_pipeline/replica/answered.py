"""Writes that are sent again until ZooKeeper answers."""

from collections.abc import Sequence

from rmt_pipeline.protocol.errors import OutcomeUnknown
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper.keeper import Op

ANSWER_PAUSES_S = (0.05, 0.2, 0.8)
"""Pauses between the tries of a write that gets no answer. While there is no connection, each try
takes as long as a session may live without one.
"""


def answered(replica: Replica, ops: Sequence[Op]) -> list[str]:
    """Send a multi again and again until ZooKeeper answers. Only for multis that may be carried out
    twice.

    ZooKeeper carries out a session's requests in the order in which they were sent, so the answer
    also tells what became of the earlier tries. Raises Refused; OutcomeUnknown if the last try had
    no answer either.
    """
    for pause_s in ANSWER_PAUSES_S:
        try:
            return replica.keeper.multi(ops)
        except OutcomeUnknown:
            replica.clock.sleep_s(pause_s)
    return replica.keeper.multi(ops)
