"""The safety net: looks for changes in case a watch was missed, for all tables of a process
together.

A loop that has looked at everything needs to look again only if something has changed since. The
counters of a few nodes tell whether anything has, and one request reads those of 20 tables. So a
thousand idle loops share a request now and then, instead of each of them making several.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.system import Clock
from rmt_pipeline.zookeeper.known import NodeCounts, node_counts

VALID_S = 120.0  # one reading serves all loops that look within this time
FORGET_S = 1200.0  # then a table that no loop asks about is no longer read

Counts = tuple[NodeCounts | None, ...]
"""The counters of a replica's nodes; equal if none of the nodes has changed."""


@dataclass(slots=True)
class _Member:
    nodes: tuple[str, ...]
    asked_s: float
    read_s: float
    seen: Counts


class SafetyNet:
    """Looks for changes that no watch reported, for all loops of one process together: they share a
    session, and one request reads many tables. Thread-safe.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._members: dict[str, _Member] = {}

    def look(self, replica: Replica) -> Counts:
        """The counters of the replica's nodes, at most `VALID_S` old. A loop misses nothing if it
        compares them with those that it got before it last looked at everything.
        """
        root, now_s = replica.paths.root, self._clock.monotonic_s()
        with self._lock:
            known = self._members.get(root)
            if known is not None:
                known.asked_s = now_s
                if now_s < known.read_s + VALID_S:
                    return known.seen
            own = {root: _nodes_of(replica)}
            others = {} if known is None else self._others(now_s)
        try:
            found = _read(replica, own | others)
        except RmtError:  # perhaps because of another table
            found = _read(replica, own)
        with self._lock:  # not held while reading: simulated threads would block for ever
            for other, seen in found.items():
                member = self._members.get(other)
                asked_s = now_s if member is None else member.asked_s
                nodes = own.get(other) or others[other]
                self._members[other] = _Member(nodes, asked_s, now_s, seen)
        return found[root]

    def _others(self, now_s: float) -> dict[str, tuple[str, ...]]:
        """The nodes of all replicas that a loop has asked about within FORGET_S."""
        self._members = {
            root: one for root, one in self._members.items() if now_s < one.asked_s + FORGET_S
        }
        return {root: one.nodes for root, one in self._members.items()}


def _read(replica: Replica, asked: Mapping[str, tuple[str, ...]]) -> dict[str, Counts]:
    reads = iter(replica.keeper.get_many([node for some in asked.values() for node in some]))
    return {
        root: tuple(node_counts(next(reads)) for _ in nodes) for root, nodes in asked.items()
    }


def _nodes_of(replica: Replica) -> tuple[str, ...]:
    """The nodes that watches are set on, and those that are weighed when a merge is looked for."""
    table, own = replica.table, replica.paths
    return (
        table.log,
        table.mutations,
        own.queue,
        own.parts,
        own.is_lost,
        own.mutation_pointer,
    )
