"""What was read of a replica's queue and parts before, so that it need not be read again: what a
node counts tells whether it is still true.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rmt_pipeline.hints import Hints
from rmt_pipeline.protocol.log.entry import LogEntry
from rmt_pipeline.protocol.parts.holdings import Holdings
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.zookeeper.keeper import Stat
from rmt_pipeline.zookeeper.paths import ReplicaPaths

KnownEntries = Hints[str, LogEntry]
"""Queue entries read before. A queue node never changes, and its name is not used again as long as
the queue is there. One that is made in its place is another replica's (`zookeeper.through`).
"""


NodeCounts = tuple[int, int, int]
"""What a node counts: when it was created, its own changes, and children that came or went."""


def node_counts(read: tuple[bytes, Stat] | None) -> NodeCounts | None:
    """Equal to what it was before when nothing has changed; None of a node that is not there."""
    if read is None:
        return None
    stat = read[1]
    return stat.created_zxid, stat.version, stat.children_version


QUEUE_KNOWN_MAX = 20_000  # entries; a queue with more is listed at each look


@dataclass(frozen=True, slots=True)
class CountedChildren:
    """The children of a node as they were when it had this stat.

    ZooKeeper counts each child that comes or goes, and no two states of a node have one count. So a
    stat that is known says which children there are, however long ago they were listed.

    `session`: the one that has added or removed some since they were listed, 0 if nobody has.
    Another one may see the node as it was before, and count others' changes for these.
    """

    created_zxid: int
    children_version: int
    session: int = field(default=0, kw_only=True)

    def is_still(self, stat: Stat, session: int) -> bool:
        """The node is the same one and none of its children came or went."""
        found = stat.created_zxid, stat.children_version
        known = self.created_zxid, self.children_version
        return found == known and self.session in {0, session}


@dataclass(frozen=True, slots=True)
class Listed(CountedChildren):
    """The children of `parts`: `holdings` were listed, and `came` were seen there since by
    `session`, which has made them itself, or asserted them in a write of its own; those that `went`
    it has removed.
    """

    holdings: Holdings
    came: frozenset[PartName] = frozenset()
    went: frozenset[PartName] = frozenset()

    def changed(
        self, session: int, *, came: Iterable[PartName], went: Iterable[PartName]
    ) -> "Listed":
        """With parts that this session has seen there since they were listed, and without those
        that it has removed.
        """
        came = self.came.union(part for part in came if part not in self.holdings)
        return replace(self, came=came, went=self.went.union(went), session=session)

    def is_of(self, other: "Listed") -> bool:
        """They began with the same listing."""
        mine = self.created_zxid, self.children_version
        return mine == (other.created_zxid, other.children_version)

    def at(self, stat: Stat, session: int) -> "Listed | None":
        """The children at this stat, if it proves which they are: each one that came or went since
        is one more in its version. So if we know as many that were there since, which were not
        there before, or were removed, it was these that came and went, and nothing else. Only the
        session that saw them is known to have read the stat after that.
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
class Queued(CountedChildren):
    """The nodes of a queue, in its order; not to be changed."""

    names: Mapping[str, None]

    def changed(self, session: int, *, came: Sequence[str], went: Collection[str]) -> "Queued":
        """By this session, which has changed nothing else: each is one change more."""
        count = self.children_version + len(came) + len(went)
        names = dict(self.names)
        for name in went:
            names.pop(name, None)
        names |= dict.fromkeys(came)
        return Queued(self.created_zxid, count, names, session=session)


@dataclass(frozen=True, slots=True)
class KnownQueue:
    """What was read of a replica's queue and parts before, to save reads. `parts` and `nodes`, of
    the queue: by their path, as they were listed last.
    """

    entries: KnownEntries = field(default_factory=KnownEntries)
    parts: Hints[str, Listed] = field(default_factory=Hints)
    nodes: Hints[str, Queued] = field(default_factory=Hints)

    def queued(self, replica: ReplicaPaths) -> Queued | None:
        """What is known of its queue. To be asked as `listed` is."""
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
        """As `published`, of a write that changed no other nodes of the queue."""
        if before is not None and before.session in {0, session}:
            self.found(replica, before.changed(session, came=came, went=went))

    def found(self, replica: ReplicaPaths, queued: Queued) -> None:
        if len(queued.names) > QUEUE_KNOWN_MAX:
            self.nodes.forget([replica.queue])
        else:
            self.nodes.learn({replica.queue: queued})

    def listed(self, replica: ReplicaPaths) -> Listed | None:
        """What is known of its parts. Whoever compares it with a stat, or adds to it what he is
        about to write or assert, asks before he sends anything: so what is known was read before.
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
        """This session's write has landed, which added these nodes to the parts, or asserted that
        they are there, and removed those that `went`; `before` is what was known when it was sent.
        What others changed since that was read is not in it, and is not missed: the node counts it
        too, and so the parts are listed again.
        """
        if before is None or before.session not in {0, session}:
            return
        now = self.listed(replica)
        if now is not None and now.is_of(before) and now.session in {0, session}:
            before = now  # what others of this session have seen meanwhile is in it
        self.parts.learn({replica.parts: before.changed(session, came=parts, went=went)})
