"""Caches what was read of a replica's queue and parts, to save reads. The counters in a node's stat
tell whether what is known of its children is still true.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Generic, Self, TypeVar

from rmt_pipeline.hints import Hints
from rmt_pipeline.protocol.log.entry import LogEntry
from rmt_pipeline.protocol.nodes.records import Claim
from rmt_pipeline.protocol.parts.holdings import Holdings
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.zookeeper.keeper import Stat
from rmt_pipeline.zookeeper.paths import ReplicaPaths

T = TypeVar("T")
K = TypeVar("K", bound="KnownChildren[Any]")

KnownEntries = Hints[str, LogEntry]
"""Queue entries that were read before, by the names of their nodes. The node of a queue entry never
changes, and its name is not used again as long as the queue exists. A queue that is created in its
place belongs to another replica (`zookeeper.through`).
"""


NodeCounts = tuple[int, int, int]
"""The counters of a node: the transaction that created it, its own changes, and the creations and
removals of its children.
"""


def node_counts(read: tuple[bytes, Stat] | None) -> NodeCounts | None:
    """The counters of a node that was read: equal to earlier ones if and only if neither the node
    nor its set of children has changed since. None if there is no node.
    """
    if read is None:
        return None
    stat = read[1]
    return stat.created_zxid, stat.version, stat.children_version


QUEUE_KNOWN_MAX = 20_000  # entries; a longer queue is not remembered, but listed each time


@dataclass(frozen=True, slots=True)
class CountedChildren:
    """The children of a node as they were when the node had these counters.

    ZooKeeper counts each creation and removal of a child, so no two states of a node have the same
    count. A node that still has these counters has these children, however long ago they were
    listed.

    `session` is the session that has added or removed children since they were listed, whose
    changes are included here; 0 if none were. Only that session may compare: another one may read
    the node as it was before these changes, with as many changes by others in the count.
    """

    created_zxid: int
    children_version: int
    session: int = field(default=0, kw_only=True)

    def is_still(self, stat: Stat, session: int) -> bool:
        """Whether the node with this stat, as `session` has read it, is the same node and none of
        its children came or went.
        """
        found = stat.created_zxid, stat.children_version
        known = self.created_zxid, self.children_version
        return found == known and self.session in {0, session}


@dataclass(frozen=True, slots=True)
class Listed(CountedChildren):
    """The children of a replica's node `parts`: `holdings` were listed. Since then `session` has
    created the parts that `came`, or asserted in a write that they exist, and removed those that
    `went`.
    """

    holdings: Holdings
    came: frozenset[PartName] = frozenset()
    went: frozenset[PartName] = frozenset()

    def changed(
        self, session: int, *, came: Iterable[PartName], went: Iterable[PartName]
    ) -> "Listed":
        """The same listing with parts noted that `session` has created or asserted since (`came`),
        and those that it has removed (`went`).
        """
        came = self.came.union(part for part in came if part not in self.holdings)
        return replace(self, came=came, went=self.went.union(went), session=session)

    def is_of(self, other: "Listed") -> bool:
        """Whether both began with the same listing."""
        mine = self.created_zxid, self.children_version
        return mine == (other.created_zxid, other.children_version)

    def at(self, stat: Stat, session: int) -> "Listed | None":
        """The children that the node has at this stat, if the stat proves which they are; else
        None.

        Each child that came or went since the listing adds one to `children_version`. So if it has
        grown by as many as we know to have come or gone, these were all the changes. For that the
        stat must have been read after these changes, which is certain only in the session that
        noted them.
        """
        changes = stat.children_version - self.children_version
        is_same = stat.created_zxid == self.created_zxid and self.session in {0, session}
        if not is_same or changes != len(self.came) + len(self.went):
            return None
        if not self.came and not self.went:
            return self
        found = self.holdings.joined(self.came).without(self.went)
        return Listed(stat.created_zxid, stat.children_version, found)


@dataclass(frozen=True, slots=True)
class KnownChildren(CountedChildren, Generic[T]):
    """The `names` of a node's children, sorted, each with what is known of it; the mapping must
    not be modified. `base` is the listing from which they were made, by counting what `session` has
    added and removed since; None if this is a listing itself.
    """

    names: Mapping[str, T]
    base: "KnownChildren[T] | None" = field(
        default=None, kw_only=True, compare=False, repr=False
    )

    def changed(self, session: int, *, came: Mapping[str, T], went: Collection[str]) -> Self:
        """The children after `session` has added and removed these and changed nothing else: each
        counts as one change.
        """
        names = dict(self.names)
        for name in went:
            names.pop(name, None)
        last = next(reversed(names), "")
        names.update(came)
        if came and min(came) < last:  # another thread was faster to note what came later
            names = dict(sorted(names.items()))
        return replace(
            self,
            children_version=self.children_version + len(came) + len(went),
            names=names,
            session=session,
            base=self.base or self,
        )

    def is_of(self, other: "KnownChildren[T]") -> bool:
        """Whether both were made from the same listing."""
        return (self.base or self) is (other.base or other)


class Queued(KnownChildren[None]):
    """The nodes of a queue."""

    __slots__ = ()


class Claims(KnownChildren[Claim]):
    """The claims of a replica's entries, by queue node."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class KnownQueue:
    """What was read of a replica's queue and parts before, to save reads.

    `entries` are queue entries by node. `parts`, `nodes` and `claims` have the last listing of the
    replica's parts, of its queue and of its claims, by the path of the node that was listed.
    """

    entries: KnownEntries = field(default_factory=KnownEntries)
    parts: Hints[str, Listed] = field(default_factory=Hints)
    nodes: Hints[str, Queued] = field(default_factory=Hints)
    claims: Hints[str, Claims] = field(default_factory=Hints)

    def queued(self, replica: ReplicaPaths) -> Queued | None:
        """What is known of the replica's queue, or None. Call it before sending requests, like
        `listed`.
        """
        return self.nodes.of([replica.queue]).get(replica.queue)

    def changed(
        self,
        replica: ReplicaPaths,
        before: Queued | None,
        session: int,
        *,
        came: Sequence[str] = (),
        went: Collection[str] = (),
    ) -> None:
        """Note that a write of `session` has added the queue nodes that `came` and removed those
        that `went`, and no others. `before` is what was known when it was sent, as in `published`.
        """
        if before is not None and before.session in {0, session}:
            before = _with_what_is_noted(before, self.queued(replica), session)
            self.found(replica, before.changed(session, came=dict.fromkeys(came), went=went))

    def claimed(self, replica: ReplicaPaths) -> Claims | None:
        """What is known of the replica's claims, or None. Call it before sending requests, like
        `listed`.
        """
        return self.claims.of([replica.executing]).get(replica.executing)

    def claims_changed(
        self,
        replica: ReplicaPaths,
        before: Claims | None,
        session: int,
        *,
        came: Mapping[str, Claim] = MappingProxyType({}),
        went: Collection[str] = (),
    ) -> None:
        """As `changed`, for claims."""
        if before is not None and before.session in {0, session}:
            before = _with_what_is_noted(before, self.claimed(replica), session)
            self.claims.learn(
                {replica.executing: before.changed(session, came=came, went=went)}
            )

    def found(self, replica: ReplicaPaths, queued: Queued) -> None:
        """Remember this as the replica's queue, unless it is too long."""
        if len(queued.names) > QUEUE_KNOWN_MAX:
            self.nodes.forget([replica.queue])
        else:
            self.nodes.learn({replica.queue: queued})

    def listed(self, replica: ReplicaPaths) -> Listed | None:
        """What is known of the replica's parts, or None.

        A caller that compares it with a stat, or adds to it what it writes or asserts, must call
        this before it sends the request, so that what is known was read earlier.
        """
        return self.parts.of([replica.parts]).get(replica.parts)

    def published(
        self,
        replica: ReplicaPaths,
        before: Listed | None,
        parts: Sequence[PartName],
        session: int,
        *,
        went: Collection[PartName] = (),
    ) -> None:
        """Note that a write of `session` was carried out which created the nodes of these `parts`,
        or asserted that they exist, and removed those that `went`.

        `before` is what was known when the write was sent (None: nothing, then nothing is noted).
        Changes by other sessions since then are not in it. They are noticed all the same: the node
        counts them too, so its stat won't match, and the parts are listed again.
        """
        if before is None or before.session not in {0, session}:
            return
        now = self.listed(replica)
        if now is not None and now.is_of(before) and now.session in {0, session}:
            before = now  # it has what other threads of this session have noted meanwhile
        self.parts.learn({replica.parts: before.changed(session, came=parts, went=went)})


def _with_what_is_noted(before: K, now: K | None, session: int) -> K:
    """What was known `before` a write was sent, with what other threads of this session have noted
    meanwhile. What was listed meanwhile may already have the write in it, so it is not taken.
    """
    if now is not None and now.is_of(before) and now.session in {0, session}:
        return now
    return before
