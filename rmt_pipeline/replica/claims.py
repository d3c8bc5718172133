"""Taking queue entries, and giving them back: a claim never outlives its work (design §4).

A claim lives as long as its session. So a process that dies gives everything back; one that
lives has to, whatever became of the work, and whether or not ZooKeeper answers: what gets no
answer is left to the session, which sees to it before anything else (`zookeeper.strays`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rmt_pipeline.protocol.errors import OutcomeUnknown
from rmt_pipeline.protocol.nodes.records import Claim
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper import strays, transactions
from rmt_pipeline.zookeeper.keeper import RefusalKind, Refused
from rmt_pipeline.zookeeper.snapshot import QueueSnapshot
from rmt_pipeline.zookeeper.strays import Stray, seen_to


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds the claims that were taken together. No other claim says its `name`: neither one
    of another worker, nor a later one of the same entry by the same worker.
    """

    replica: Replica
    name: str

    @classmethod
    def new(cls, replica: Replica) -> "Holder":
        return cls(replica, replica.new_holder())

    def take(self, snapshot: QueueSnapshot, claims: Mapping[str, tuple[PartName, ...]]) -> bool:
        """Claim queue entries, by node with the parts that they produce: all of them or none.

        False when another worker claimed first or a DROP came, and when there was no answer: then
        what we may have claimed is given back before we look again.
        """
        replica = self.replica
        ops = transactions.claim(
            replica.paths,
            [(node, Claim(self.name, parts).encode()) for node, parts in claims.items()],
            executing_version=snapshot.executing_version,
            is_lost_version=snapshot.is_lost_version,
        )
        try:
            with seen_to(replica.keeper, [self.stray(node) for node in claims]):
                replica.keeper.multi(ops)
        except OutcomeUnknown:
            return False
        except Refused as refused:
            taken = refused.kind in (RefusalKind.BAD_VERSION, RefusalKind.NODE_EXISTS)
            finished = refused.path in {replica.paths.queue_entry(node) for node in claims}
            if taken or finished:
                return False
            raise
        return True

    def give_back(self, nodes: Iterable[str]) -> None:
        """None of these claims is held any longer than until ZooKeeper answers."""
        claims = [self.stray(node) for node in nodes]
        if claims:
            strays.give_back(self.replica.keeper, claims)

    def leave(self, nodes: Iterable[str]) -> None:
        """As `give_back`, of claims that we may have given back already: the session looks whose
        they are first.
        """
        self.replica.keeper.strays.leave([self.stray(node) for node in nodes])

    def stray(self, node: str) -> Stray:
        unique = self.name.rpartition(" ")[2]
        return Stray(self.replica.paths.claim(node), unique)
