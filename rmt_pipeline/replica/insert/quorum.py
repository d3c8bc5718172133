"""An insert waits until as many replicas have its rows as it asked for (spec §2.7).

The wait is over when three things were seen, in this order: no quorum node exists any more for any
of its parts; none of its parts failed its quorum; and enough replicas have them now. The last check
is for rows that were in the table before, perhaps without a quorum, and for a part that a replica
had, was counted for, and gave up since.
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
from rmt_pipeline.replica.wait import POLL_S, WAIT_SLICE_S
from rmt_pipeline.system import Waker
from rmt_pipeline.zookeeper.snapshot import staying_replicas


class TooFewLiveReplicas(UserError):
    """`insert_quorum` asks for more replicas than are active. Nothing was inserted: start the
    others, or ask for fewer.
    """

    code = "TOO_FEW_LIVE_REPLICAS"


class UnsatisfiedQuorum(UserError):
    """Another insert waits for its quorum, and quorum inserts of this table go one by one."""

    code = "UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE"


class QuorumFailed(InsertCancelled):
    """The replica that had the rows became inactive before another one had fetched them: the table
    does not have them any more. The same insert, sent again, is a new one.
    """

    code = "UNKNOWN_STATUS_OF_INSERT"


@dataclass(frozen=True, slots=True)
class Span:
    """A range of block numbers of one partition in which an insert has rows."""

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
    """What one insert waits for, over as many sessions as it takes.

    The timeout runs from its first commit, or from when it was found that the table has its rows.
    Even an insert that asks for no quorum waits for the quorum of rows that it found in the table:
    if that quorum fails, the rows are removed, and the client that was told they are in would have
    lost them.
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
        """Whether no other quorum insert into the table may wait at the same time."""
        return self.required > 1 and not self.quorum.is_parallel

    def require(self, replica: Replica) -> None:
        """Determine how many replicas must have the rows, before anything is written. Raises
        TooFewLiveReplicas.
        """
        if self.quorum.replicas != 1:
            self.required = required_replicas(replica, self.quorum)

    def entry(self, part: PartName, replica: str) -> QuorumEntry | None:
        """Return the quorum entry of a part that only this replica has so far; None if no other
        replica needs to have it.
        """
        return QuorumEntry(part, self.required, (replica,)) if self.required > 1 else None

    def began(self, parts: Iterable[PartName]) -> None:
        """Wait for these parts, which were just committed."""
        if self.required > 1:
            self._parts += parts

    def found(self, spans: Iterable[Span]) -> None:
        """Wait also for these spans, in which rows of the insert were found in the table. Old
        records do not say in which blocks the rows are: then there is nothing to wait for.
        """
        self._earlier |= {span for span in spans if span.first != UNKNOWN_BLOCK}

    def found_no_more(self, spans: Iterable[Span]) -> None:
        """Do not wait for these spans any more: their rows were lost or dropped since, and the
        insert looks for them anew.
        """
        self._earlier -= set(spans)

    def wait(self, replica: Replica, insert_id: str) -> None:
        """Wait until enough replicas have everything that was committed or found. Raises what
        `wait_for_quorum` does.
        """
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
    """Return the error for an insert that may not wait beside another one."""
    [read] = replica.keeper.get_many([replica.table.quorum_status])
    names = "" if read is None else ", ".join(map(str, QuorumStatus.decode(read[0]).parts))
    return UnsatisfiedQuorum(
        f"{replica}: another insert waits for its quorum{f' ({names})' * bool(names)}, and with "
        "insert_quorum_parallel = 0 one waits at a time; nothing was inserted by this commit. "
        "Insert again when it has it (system.replicas.parts_awaiting_quorum), or with "
        "insert_quorum_parallel = 1"
    )


def required_replicas(replica: Replica, quorum: Quorum) -> int:
    """Return how many replicas must have the rows. One whose drop has begun is none: it never gets
    them. Raises TooFewLiveReplicas, before anything is written.
    """
    living = staying_replicas(replica.keeper, replica.table)
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
    """What an insert waits for: parts that it committed (`parts`), and where it found rows of its
    own in the table (`earlier`).
    """

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
    """Wait until enough replicas have all that is awaited. Raises QuorumFailed, QuorumNotReached;
    an error that ends the session passes, and then the caller waits again.
    """

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
        waker.wait_s(min(left_s(), POLL_S))


def _node(replica: Replica, awaited: Awaited) -> str:
    """Return the quorum node of an awaited part that another replica has yet to fetch; "" if there
    is none.
    """
    quorums = read_quorums(replica, None if awaited.earlier else awaited.parts)
    for part in awaited.still_waiting(quorums.parts()):
        table = replica.table
        return table.quorum_of(part) if part in quorums.beside else table.quorum_status
    return ""


def _failed(replica: Replica, awaited: Awaited, insert_id: str) -> list[PartName]:
    """Return the awaited parts whose quorum failed: of the parts that this insert committed, and of
    the parts in whose blocks its rows were found.

    A failed part within such a span need not have rows of this insert: the span may go over blocks
    of other inserts, and over blocks of this one from before its rows were inserted again. But the
    multi that notes a part as failed also takes its rows out of the insert's record. So a span that
    the record still lists has no failed rows of this insert.
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
    """Whether enough replicas have each awaited part, or what replaced it, and each awaited block
    number that any replica has. A block number that no replica has any more was dropped since.

    A replica without `host` is not counted: its drop has begun, and if the process that drops it
    died, `parts` may stay in ZooKeeper for long. `host` is read after the parts, so a replica that
    has it was not being dropped when its parts were read.
    """
    if awaited.required < 2:
        return True
    keeper, table = replica.keeper, replica.table
    peers = [table.replica(name) for name in keeper.children(table.replicas)]
    hosts = [peer.host for peer in peers]
    if not awaited.earlier:  # mostly the replicas still have the parts under these very names
        paths = [peer.part(part) for part in awaited.parts for peer in peers]
        stats = keeper.exists_many([*paths, *hosts])
        living = stats[len(paths) :]
        counts = [
            sum(
                None not in pair
                for pair in zip(stats[at : at + len(peers)], living, strict=True)
            )
            for at in range(0, len(paths), max(1, len(peers)))
        ]
        if all(count >= awaited.required for count in counts):
            return True
    have = [
        PartSet(map(PartName.parse, names or ()))
        for names in keeper.children_many([peer.parts for peer in peers])
    ]
    is_living = [stat is not None for stat in keeper.exists_many(hosts)]
    return all(_is_held(span, have, is_living, awaited.required) for span in awaited.spans())


def _is_held(
    span: Span, have: Sequence[PartSet], is_living: Sequence[bool], required: int
) -> bool:
    """Whether at least `required` living replicas have all those block numbers of the span that any
    replica has, also one that is being dropped. A number that no replica has was never committed,
    or was dropped.
    """
    held = [_numbers(span, parts) for parts in have]
    anywhere = set().union(*held)
    holders = sum(
        anywhere <= numbers for numbers, lives in zip(held, is_living, strict=True) if lives
    )
    return not anywhere or holders >= required


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
        "other replicas fetch them when they can; but if none has them when this one is away, they "
        "are taken out, and kept here as detached/noquorum_…. "
        "system.replicas.parts_awaiting_quorum says which parts still wait, "
        f"system.replication_queue on the other replicas what holds them back{more}"
    )


def _remedy(insert_id: str) -> str:
    """Return what to do about an insert whose quorum failed. Other blocks of its partitions may be
    in; only a retry, which has their rows too, can tell which.
    """
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
