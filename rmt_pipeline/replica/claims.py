"""Claiming queue entries, and giving the claims back (design §4).

A claim lives as long as its session, so a process that dies gives back everything. A process that
lives must give back each claim itself, whatever became of the work and whether or not ZooKeeper
answers. A deletion without an answer is left to the session, which repeats it before anything else
(`zookeeper.strays`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rmt_pipeline.protocol.errors import OutcomeUnknown
from rmt_pipeline.protocol.nodes.records import Claim
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper import strays, transactions
from rmt_pipeline.zookeeper.keeper import Op, RefusalKind, Refused
from rmt_pipeline.zookeeper.snapshot import QueueSnapshot
from rmt_pipeline.zookeeper.strays import Stray, seen_to


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of claims that were taken together. Its `name` is in no other claim: neither of
    another worker, nor of the same worker for the same entry at a later time.
    """

    replica: Replica
    name: str

    @classmethod
    def new(cls, replica: Replica) -> "Holder":
        return cls(replica, replica.new_holder())

    def take(
        self, snapshot: QueueSnapshot, claims: Mapping[str, tuple[PartName, ...]]
    ) -> bool | None:
        """Claim queue entries, all of them or none. `claims` maps each queue node to the parts that
        its entry produces. Returns whether they are claimed.

        False if another worker claimed first or a DROP came. None if there was no answer: then the
        session deletes the claims that may have been made, before we look again.
        """
        replica, came = self.replica, self._claims(claims)
        ops = transactions.claim(
            replica.paths,
            [(node, claim.encode()) for node, claim in came.items()],
            executing_version=snapshot.executing_version,
            is_lost_version=snapshot.is_lost_version,
        )
        try:
            self._send(ops, came)
        except OutcomeUnknown:
            return None
        except Refused as refused:
            taken = refused.kind in (RefusalKind.BAD_VERSION, RefusalKind.NODE_EXISTS)
            finished = refused.path in {replica.paths.queue_entry(node) for node in claims}
            if taken or finished:
                return False
            raise
        return True

    def take_pulled(
        self,
        snapshot: QueueSnapshot,
        claims: Mapping[str, tuple[PartName, ...]],
        pull: Sequence[Op],
    ) -> list[str] | None:
        """Claim queue entries in the multi that makes them (`pull`), which must assert the version
        of `is_lost`. Returns what the multi created; None, and nothing is written, if another
        worker claimed first. Raises what `Keeper.multi` does.
        """
        came = self._claims(claims)
        ops = transactions.claim_pulled(
            self.replica.paths,
            [(node, claim.encode()) for node, claim in came.items()],
            executing_version=snapshot.executing_version,
        )
        try:
            return self._send([*pull, *ops], came)[: len(pull)]
        except Refused as refused:
            if refused.path in {op.path for op in ops}:
                return None
            raise

    def _claims(self, claims: Mapping[str, tuple[PartName, ...]]) -> dict[str, Claim]:
        return {node: Claim(self.name, parts) for node, parts in claims.items()}

    def _send(self, ops: Sequence[Op], came: Mapping[str, Claim]) -> list[str]:
        """Send a multi that makes these claims, and remember that they came. Returns what it
        created. Raises what `Keeper.multi` does.
        """
        replica, known = self.replica, self.replica.memory.queue
        before = known.claimed(replica.paths)
        with seen_to(replica.keeper, [self.stray(node) for node in came]):
            created = replica.keeper.multi(ops)
        known.claims_changed(replica.paths, before, replica.keeper.session_id, came=came)
        return created

    def give_back(self, nodes: Iterable[str]) -> None:
        """Delete the claims of these queue nodes, now or as soon as ZooKeeper answers."""
        strays.give_back(self.replica.keeper, [self.stray(node) for node in nodes])

    def leave(self, nodes: Iterable[str]) -> None:
        """Like `give_back`, for claims that may be given back already: before it deletes a claim,
        the session checks that it is still this holder's.
        """
        self.replica.keeper.strays.leave([self.stray(node) for node in nodes])

    def stray(self, node: str) -> Stray:
        unique = self.name.rpartition(" ")[2]
        return Stray(self.replica.paths.claim(node), unique)
