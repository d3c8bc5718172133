"""An insert waits until as many replicas have its rows as it asked for (spec §2.7).

It is answered when three things were seen, in this order: nobody waits for its parts any more; none
of them failed; and so many replicas have them now. The last one is for what was in the table
before, perhaps without a quorum; and for a part that a replica had, was counted for, and gave up.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.protocol.inserts.quorum import Quorum
from rmt_pipeline.protocol.nodes.formats import QuorumEntry, QuorumStatus
from rmt_pipeline.protocol.nodes.records import UNKNOWN_BLOCK, PartitionRows
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.replica.insert.record import read_record
from rmt_pipeline.replica.insert.result import InsertCancelled, QuorumNotReached
from rmt_pipeline.replica.quorum import failed_of, read_quorums
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.wait import WAIT_SLICE_S
from rmt_pipeline.system import Waker
from rmt_pipeline.zookeeper.snapshot import living_replicas

HOLDERS_POLL_S = 0.1
"""Between looks at who has a part, once there is no node to be watched."""


class TooFewLiveReplicas(UserError):
    """`insert_quorum` asks for more replicas than are active. Nothing was inserted: start the
    others, or ask for fewer.
    """

    code = "TOO_FEW_LIVE_REPLICAS"


class UnsatisfiedQuorum(UserError):
    """Another insert waits for its quorum, and those of this table go one by one."""

    code = "UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE"


class QuorumFailed(InsertCancelled):
    """The replica that had the rows was away before another one had fetched them: they are in the
    table no more. The same insert again is a new one.
    """

    code = "UNKNOWN_STATUS_OF_INSERT"


@dataclass(frozen=True, slots=True)
class Span:
    """Block numbers of one partition that an insert has rows in."""

    partition: str
    first: int
    last: int

    @classmethod
    def of_part(cls, part: PartName) -> "Span":
        return cls(part.partition, part.block_min, part.block_max)

    @classmethod
    def of_rows(cls, rows: PartitionRows) -> "Span":
        return cls(rows.partition, rows.first, rows.last)

    def touches(self, part: PartName) -> bool:
        return (
            part.partition == self.partition
            and part.block_min <= self.last
            and self.first <= part.block_max
        )


@dataclass(slots=True)
class QuorumWait:
    """What one insert waits for, over as many sessions as it takes. The time runs from its first
    commit, or from when it found that it is in the table already. Also one that asks for no quorum
    waits for that of rows which it found there: if it fails, they go, and who was told that they
    are there would have lost them.
    """

    quorum: Quorum
    waker: Waker
    required: int = 1
    _parts: list[PartName] = field(default_factory=list)
    _earlier: set[Span] = field(default_factory=set)
    _deadline_s: float | None = None

    @property
    def is_waiting(self) -> bool:
        return bool(self._parts or self._earlier)

    @property
    def is_alone(self) -> bool:
        """Whether no other insert may wait meanwhile."""
        return self.required > 1 and not self.quorum.is_parallel

    def require(self, replica: Replica) -> None:
        """Before anything is written. Raises TooFewLiveReplicas."""
        if self.quorum.replicas != 1:
            self.required = required_replicas(replica, self.quorum)

    def entry(self, part: PartName, replica: str) -> QuorumEntry | None:
        """Of a part that this replica has; None when nobody else needs to have it."""
        return QuorumEntry(part, self.required, (replica,)) if self.required > 1 else None

    def began(self, parts: Iterable[PartName]) -> None:
        """They were committed now."""
        if self.required > 1:
            self._parts += parts

    def found(self, spans: Iterable[Span]) -> None:
        """Rows of the insert were there already. In old records it does not stand where."""
        self._earlier |= {span for span in spans if span.first != UNKNOWN_BLOCK}

    def found_no_more(self, spans: Iterable[Span]) -> None:
        """They were lost or dropped since; what was in them is looked for anew."""
        self._earlier -= set(spans)

    def wait(self, replica: Replica, insert_id: str) -> None:
        """Until all of it is on enough replicas. Raises as `wait_for_quorum`."""
        if not self.is_waiting:
            return
        if self._deadline_s is None:
            self._deadline_s = replica.clock.monotonic_s() + self.quorum.timeout_s
        awaited = Awaited(tuple(self._parts), tuple(self._earlier), self.required)
        wait_for_quorum(
            replica, awaited, self.waker, deadline_s=self._deadline_s, insert_id=insert_id
        )
        self._parts, self._earlier, self._deadline_s = [], set(), None


def unsatisfied(replica: Replica) -> UnsatisfiedQuorum:
    """What an insert is told that may not wait beside another one."""
    [read] = replica.keeper.get_many([replica.table.quorum_status])
    names = "" if read is None else ", ".join(map(str, QuorumStatus.decode(read[0]).parts))
    return UnsatisfiedQuorum(
        f"{replica}: another insert waits for its quorum{f' ({names})' * bool(names)}, and with "
        "insert_quorum_parallel = 0 one waits at a time; nothing was inserted by this commit. "
        "Insert again when it has it (system.replicas.parts_awaiting_quorum), or with "
        "insert_quorum_parallel = 1"
    )


def required_replicas(replica: Replica, quorum: Quorum) -> int:
    """How many must have the rows. Raises TooFewLiveReplicas, before anything is written."""
    living = living_replicas(replica.keeper, replica.table)
    required = quorum.required(len(living))
    active = sum(living.values())
    if active < required:
        away = sorted(name for name, is_active in living.items() if not is_active)
        raise TooFewLiveReplicas(
            f"{replica}: insert_quorum wants {required} replicas, and {active} of {len(living)} "
            f"are active (not active: {', '.join(away) or 'none'}); nothing was inserted. Start "
            "their servers, or ask for fewer replicas"
        )
    return required


@dataclass(frozen=True, slots=True)
class Awaited:
    """What an insert waits for: parts of its own, and where it found rows of it in the table."""

    parts: Sequence[PartName]
    earlier: Sequence[Span]
    required: int

    def spans(self) -> list[Span]:
        return [*map(Span.of_part, self.parts), *self.earlier]

    def still_waiting(self, waiting: Collection[PartName]) -> list[PartName]:
        own = [part for part in self.parts if part in waiting]
        earlier = [part for part in waiting if any(span.touches(part) for span in self.earlier)]
        return own or sorted(earlier)


def wait_for_quorum(
    replica: Replica, awaited: Awaited, waker: Waker, *, deadline_s: float, insert_id: str
) -> None:
    """Raises QuorumFailed, QuorumNotReached; what ends the session: then wait again."""

    def left_s() -> float:
        return deadline_s - replica.clock.monotonic_s()

    while node := _node(replica, awaited):
        if left_s() <= 0:
            raise _not_reached(replica, awaited, insert_id)
        if replica.keeper.exists(node, waker.wake) is not None:
            waker.wait_s(min(left_s(), WAIT_SLICE_S))
    failed = _failed(replica, awaited, insert_id)
    if failed:
        raise QuorumFailed(
            f"{replica}: the quorum of {', '.join(map(str, failed))} failed: no active replica has "
            "it, because this one was away before another one had fetched it. These rows are not "
            f"in the table; whatever else the insert had is. {_remedy(insert_id)}"
        )
    while not _is_on_enough(replica, awaited):
        if left_s() <= 0:
            raise _not_reached(replica, awaited, insert_id)
        waker.wait_s(min(left_s(), HOLDERS_POLL_S))


def _node(replica: Replica, awaited: Awaited) -> str:
    """That of a part which somebody is still to fetch; "" when there is none."""
    quorums = read_quorums(replica, None if awaited.earlier else awaited.parts)
    for part in awaited.still_waiting(quorums.parts()):
        table = replica.table
        return table.quorum_of(part) if part in quorums.beside else table.quorum_status
    return ""


def _failed(replica: Replica, awaited: Awaited, insert_id: str) -> list[PartName]:
    """Own parts, and those in which rows of it were found. Between two blocks of it there may be
    others' that failed, and its own from before these were inserted again. What failed of it has
    left its record in the same multi: where the record says still that its rows are, none has.
    """
    found = set(failed_of(replica, awaited.parts))
    if awaited.earlier:
        [names] = replica.keeper.children_many([replica.table.quorum_failed_parts])
        parts = [PartName.parse(name) for name in names or ()]
        touched = {span for span in awaited.earlier if any(map(span.touches, parts))}
        known = read_record(replica, insert_id) if touched and insert_id else None
        if known is not None:
            touched -= set(map(Span.of_rows, known.lines))
        found |= {part for part in parts if any(span.touches(part) for span in touched)}
    return sorted(found)


def _is_on_enough(replica: Replica, awaited: Awaited) -> bool:
    """Of each part, and of each block number that it finds anywhere; what nobody has any more was
    dropped since.
    """
    if awaited.required < 2:
        return True
    keeper, table = replica.keeper, replica.table
    peers = [table.replica(name) for name in keeper.children(table.replicas)]
    if not awaited.earlier:  # mostly they are there under these very names
        stats = keeper.exists_many([peer.part(p) for p in awaited.parts for peer in peers])
        counts = [
            sum(stat is not None for stat in stats[at : at + len(peers)])
            for at in range(0, len(stats), max(1, len(peers)))
        ]
        if all(count >= awaited.required for count in counts):
            return True
    have = [
        PartSet(map(PartName.parse, names or ()))
        for names in keeper.children_many([peer.parts for peer in peers])
    ]
    return all(_is_held(span, have, awaited.required) for span in awaited.spans())


def _is_held(span: Span, have: Sequence[PartSet], required: int) -> bool:
    """Numbers that no replica has are of other inserts, of nobody, or were dropped."""
    held = [_numbers(span, parts) for parts in have]
    anywhere = set().union(*held)
    return not anywhere or sum(anywhere <= numbers for numbers in held) >= required


def _numbers(span: Span, parts: PartSet) -> set[int]:
    return {
        number
        for part in parts.in_partition(span.partition)
        if span.touches(part)
        for number in range(max(span.first, part.block_min), min(span.last, part.block_max) + 1)
    }


def _not_reached(replica: Replica, awaited: Awaited, insert_id: str) -> QuorumNotReached:
    what = f"insert {insert_id}" if insert_id else ", ".join(map(str, awaited.parts))
    entries = {entry.part: entry for entry in read_quorums(replica).entries()}
    known = [
        f"{part} is on {', '.join(entries[part].replicas)}"
        for part in awaited.still_waiting(entries)
    ]
    more = (
        ", and `rmt inserts` what became of an insert; the same insert again inserts nothing and "
        "waits once more"
        if insert_id
        else ". Do not insert them again: deduplication is switched off for this insert or table, "
        "and they would be there twice"
    )
    return QuorumNotReached(
        f"{replica}: the rows of {what} are in the table, but within insert_quorum_timeout not on "
        f"{awaited.required} replicas ({'; '.join(known) or 'fewer have them'}). They stay, and "
        "other replicas fetch them when they can. system.replicas.parts_awaiting_quorum says which "
        f"parts still wait{more}"
    )


def _remedy(insert_id: str) -> str:
    """Which blocks stayed beside failed ones only a retry can tell that has them, too."""
    if not insert_id:
        return (
            "Deduplication is switched off for this insert or table: inserted again, what is there "
            "would be there twice. Insert only the rows that are missing"
        )
    return (
        "Insert the same data again (with the same token, if it had one; and if a partition had "
        "several blocks, cut into the same ones, else that is refused): just what is missing is "
        "inserted then"
    )
