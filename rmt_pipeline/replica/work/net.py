"""What is looked at in case a watch was missed: of all tables of a process together.

A loop that has looked at everything needs to look again only if something has changed since. What
changed is told by what a few nodes count, of 20 tables in one request. So a thousand loops at rest
cost a request now and then, and not each of them some.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.system import Clock
from rmt_pipeline.zookeeper.known import NodeCounts, node_counts

VALID_S = 120.0  # what was read is told to loops whose time comes soon after
FORGET_S = 1200.0  # a table that nobody asks about any more

Counts = tuple[NodeCounts | None, ...]
"""What its nodes counted; equal when none of them has changed."""


@dataclass(slots=True)
class _Member:
    nodes: tuple[str, ...]
    asked_s: float
    read_s: float
    seen: Counts


class SafetyNet:
    """Looks for changes that no watch told of, for all loops of one process together: they share a
    session, and one request asks for many tables. Thread-safe.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._members: dict[str, _Member] = {}

    def look(self, replica: Replica) -> Counts:
        """What the replica's nodes counted a moment ago, at most `VALID_S`. A loop that compares it
        with what it got before it looked at everything the last time misses nothing.
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
        except RmtError:  # perhaps because of one of the others
            found = _read(replica, own)
        with self._lock:  # not while it is read: who simulates threads would wait for ever
            for other, seen in found.items():
                member = self._members.get(other)
                asked_s = now_s if member is None else member.asked_s
                nodes = own.get(other) or others[other]
                self._members[other] = _Member(nodes, asked_s, now_s, seen)
        return found[root]

    def _others(self, now_s: float) -> dict[str, tuple[str, ...]]:
        """All that somebody has asked about not too long ago."""
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
    """What watches tell of, and what is weighed when a merge is looked for."""
    table, own = replica.table, replica.paths
    return (
        table.log,
        table.mutations,
        own.queue,
        own.parts,
        own.is_lost,
        own.mutation_pointer,
    )
