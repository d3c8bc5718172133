"""The mutations of a table: creating, loading, finishing, killing and cleaning them (spec §7). The
mutations of single parts are assigned in `assign.mutations` and carried out in `work.mutate`.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import (
    Conflict,
    OutcomeUnknown,
    ReplicaRetired,
    TooManyPartitions,
    Unavailable,
    Unfinished,
    UserError,
)
from rmt_pipeline.protocol.mutations import Mutations, Unmutated
from rmt_pipeline.protocol.nodes.formats import MutationEntry
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.retention import finished_mutations
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.replica import Replica, asserting_active
from rmt_pipeline.replica.wait import Waited
from rmt_pipeline.system import Waker
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.batches import batches
from rmt_pipeline.zookeeper.keeper import Check, RefusalKind, Refused, Watch
from rmt_pipeline.zookeeper.paths import last_name, sequence_number
from rmt_pipeline.zookeeper.snapshot import (
    FINISHED_KNOWN_MAX,
    NotedMutations,
    children_of,
    committing_blocks,
    noted_mutations,
    queue_snapshot,
)
from rmt_pipeline.zookeeper.strays import Stray, give_back, seen_to

WAIT_SLICE_S = 1.0


class UnknownMutation(UserError):
    """There is no mutation of this id (any more): it was finished and forgotten, was killed, or
    never existed. `system.mutations` lists those that exist.
    """

    code = "UNKNOWN_MUTATION"


@dataclass(frozen=True, slots=True)
class MutationStatus:
    """One mutation as this replica sees it. `waits_for` says in words what it still waits for."""

    mutation_id: str
    entry: MutationEntry
    is_done: bool
    parts_to_do: tuple[PartName, ...]
    waits_for: str


def load_mutations(replica: Replica, watch: Watch | None = None) -> Mutations:
    """All mutations of the table. Their entries never change, so only new ones are read. Raises
    ReplicaDropped.
    """
    memory = replica.memory
    loaded = memory.loaded  # read once: another thread may replace it
    ids = children_of(replica.keeper, replica.paths, replica.table.mutations, watch)
    entries = {one: loaded.entries[one] for one in ids if one in loaded.entries}
    new = [one for one in ids if one not in entries]
    reads = replica.keeper.get_many([replica.table.mutation(one) for one in new])
    for mutation_id, read in zip(new, reads, strict=True):
        if read is not None:  # else it was killed since the ids were listed
            entries[mutation_id] = MutationEntry.decode(read[0])
    if entries.keys() != loaded.entries.keys():
        loaded = memory.loaded = Mutations(entries)
    return loaded


@dataclass(frozen=True, slots=True)
class SentMutation:
    """A mutation that was sent to ZooKeeper. `lock` is the lock of one of its numbers, which the
    same multi deletes; "" for a mutation of no partition. `version` is that of `/mutations`, and
    `number` the one that the next mutation got at that version.
    """

    entry: MutationEntry
    lock: str
    version: int
    number: int


class MutationUnsettled(OutcomeUnknown):
    """It is unknown whether the mutation `sent` was created. `settle_mutation` finds out, also in a
    later session.
    """

    code = "UNKNOWN_STATUS_OF_TRANSACTION"

    def __init__(self, words: str, sent: SentMutation) -> None:
        super().__init__(words)
        self.sent = sent


def create_mutation(
    replica: Replica, commands: str, partitions: Sequence[str] | None = None
) -> str:
    """Write a mutation for all partitions, or the given ones; returns its id (spec §7.1).

    Its number in each partition is taken under the same version of `/mutations` with which the
    entry is created, so ids and numbers grow together. The numbers are held until the entry is
    visible, so a merge predicate sees one or the other.

    Raises MutationUnsettled if ZooKeeper does not say whether it was written; after any other error
    it was not, and never will be.
    """
    for _ in range(limits.CREATE_TABLE_ROUNDS_MAX):
        _, stat = replica.keeper.get(replica.table.mutations)
        locks = allocate_numbers(replica, partitions)
        if locks is None:
            continue
        try:
            entry = MutationEntry(
                create_time=int(replica.clock.now_s()),
                source_replica=replica.name,
                block_numbers=tuple(
                    sorted(
                        (partition, sequence_number(lock))
                        for partition, lock in locks.items()
                        if partitions is None or partition in partitions
                    )
                ),
                commands=commands,
            )
            lock = next(iter(locks.values()), "")
            mutation_id = _write(
                replica, SentMutation(entry, lock, stat.version, stat.next_sequence)
            )
        except BaseException:
            release_numbers(replica, list(locks.values()))
            raise
        if mutation_id is not None:
            # The first was deleted with the entry.
            release_numbers(replica, list(locks.values())[1:])
            return mutation_id
        release_numbers(replica, list(locks.values()))
    raise Conflict(
        f"{replica}: others created mutations {limits.CREATE_TABLE_ROUNDS_MAX} times while we "
        "tried; try again"
    )


def _write(replica: Replica, sent: SentMutation) -> str | None:
    """Send the mutation; returns its id, or None if another mutation came first."""
    ops = transactions.create_mutation(
        replica.table, _text(sent.entry), sent.version, sent.lock
    )
    try:
        created = replica.keeper.multi(ops)
    except Refused as refused:
        if refused.kind is not RefusalKind.BAD_VERSION:
            raise
        return None
    except OutcomeUnknown:
        return settle_mutation(replica, sent, is_held=True)
    return last_name(created[1])


def settle_mutation(
    replica: Replica, sent: SentMutation, *, is_held: bool = False
) -> str | None:
    """The id of a mutation that was sent and got no answer; None if it does not exist, and never
    will (spec §2.6).

    The multi that was sent deletes a lock, and so does this function: only one of the two can
    succeed. If the lock is gone and there is no such mutation, then the lock was given back, or its
    session ended, before the multi came; so that can't succeed any more. While the caller holds the
    lock (`is_held`), only the multi can have deleted it.

    A mutation of no partition has no lock. For it the version of `/mutations` decides. Another
    mutation may have come first then; but two mutations of no partition that look the same are the
    same, because they change nothing.

    What landed may be gone again. But the multi asserted the version of `/mutations`, which each
    creation changes; so it is known which number the mutation got, if it landed. If no mutation has
    had that number yet, or another one has it, ours did not land. If there was one and it is gone,
    nobody can tell whether that was ours, and it must not be created again: an UPDATE would count
    twice.

    Raises MutationUnsettled if this gets no answer either, UnknownMutation if it can't be told.
    """
    keeper, table = replica.keeper, replica.table
    fence = (
        transactions.release_locks([sent.lock])
        if sent.lock
        else transactions.bump_mutations(table, sent.version)
    )
    try:
        try:
            keeper.multi(fence)
        except Refused:  # by a server that has seen all that was written before
            _, stat = keeper.get(table.mutations)
            entries = load_mutations(replica).entries
        else:
            return None
    except (OutcomeUnknown, ReplicaRetired, Unavailable) as error:
        raise MutationUnsettled(
            f"{replica}: whether the mutation {sent.entry.commands} was created is not known "
            f"({error}); look into system.mutations before you repeat it",
            sent,
        ) from error
    found = [one for one, entry in entries.items() if entry == sent.entry]
    if found:
        return found[0]
    is_others = sent.number in map(int, entries)
    if (is_held and sent.lock) or (stat.next_sequence > sent.number and not is_others):
        raise UnknownMutation(
            f"{replica}: whether the mutation {sent.entry.commands} was created is not known; if "
            "so, it was killed, or finished and forgotten. Look at the rows before you repeat it"
        )
    return None


def _text(entry: MutationEntry) -> bytes:
    """The entry as text. Raises TooManyPartitions if it does not fit into a node."""
    text = entry.encode()
    if len(text) > limits.NODE_BYTES_MAX:
        raise TooManyPartitions(
            f"the mutation's text, with its number in each of {len(entry.block_numbers)} "
            f"partitions, has {len(text)} bytes; at most {limits.NODE_BYTES_MAX} can be written: "
            "say IN PARTITION, a part of them at a time"
        )
    return text


def allocate_numbers(
    replica: Replica, partitions: Sequence[str] | None
) -> dict[str, str] | None:
    """Take a number in the one partition that is asked for, or else in every partition that exists;
    returns the paths of their locks by partition. None if a partition appeared meanwhile (spec
    §16.8 U3).

    If there are more partitions than one multi takes, the numbers are allocated batch by batch.
    Each batch asserts the same version of `block_numbers`, so none has missed a partition; all of
    them are within one version of `mutations`, so ids and numbers still grow together. An insert
    into several partitions may then come before the mutation in one and after it in another; but
    that is so with the original's inserts, too, which are made block by block.
    """
    keeper, table = replica.keeper, replica.table
    holder = replica.new_holder()
    if partitions is not None and len(partitions) == 1:
        [partition] = partitions
        try:
            keeper.multi(transactions.create_partition(table, replica.paths, partition))
        except Refused as refused:
            if refused.kind is not RefusalKind.NODE_EXISTS:
                raise
        return take_numbers(replica, [partition], holder)
    names, stat = keeper.children_stat(table.block_numbers)
    locks: dict[str, str] = {}
    ops = transactions.lock_partitions(table, names, holder)
    try:
        for batch in [*batches(ops, bytes_max=limits.MULTI_BYTES_MAX)] or [ops]:
            some = names[len(locks) : len(locks) + len(batch)]
            locks.update(take_numbers(replica, some, holder, version=stat.version))
    except BaseException as error:
        release_numbers(replica, list(locks.values()))
        if isinstance(error, Refused) and error.kind is RefusalKind.BAD_VERSION:
            return None
        raise
    return locks


def take_numbers(
    replica: Replica, partitions: Sequence[str], holder: str, *, version: int | None = None
) -> dict[str, str]:
    """Take a number in each of these partitions; returns the paths of the locks by partition."""
    locks = take_locks(replica, partitions, holder, version=version)
    return dict(zip(partitions, locks, strict=True))


def take_locks(
    replica: Replica,
    partitions: Sequence[str],
    holder: str,
    *,
    version: int | None = None,
    commands: int | None = None,
) -> list[str]:
    """Take a number for each of these partitions, ascending if one is named several times; returns
    the paths of their locks. `version` and `commands` are those of `lock_partitions`.

    Only an active replica gets numbers: while a table is made again from the disks, one of them may
    have blocks of greater numbers, and would be left out. Raises TableIsReadOnly.

    Whatever goes wrong, no lock stays behind: the session deletes those that may have been made.
    That is why a request without an answer raises Unavailable and not OutcomeUnknown.
    """
    table = replica.table
    paths = dict.fromkeys(map(table.partition, partitions))
    strays = [Stray(path, holder, is_parent=True) for path in paths]
    ops = transactions.lock_partitions(
        table, partitions, holder, version=version, commands=commands
    )
    try:
        with (
            asserting_active(replica, "it gets no block number"),
            seen_to(replica.keeper, strays),
        ):
            created = replica.keeper.multi([*ops, Check(replica.paths.is_active)])
    except OutcomeUnknown as unknown:
        raise Unavailable(
            f"{replica}: ZooKeeper did not answer when it was asked for block numbers ({unknown}); "
            "nothing was changed, try again"
        ) from unknown
    return created[: len(partitions)]


def release_numbers(replica: Replica, locks: Sequence[str]) -> None:
    """Delete the locks, now or as soon as ZooKeeper answers. They may be gone already: the multi
    that writes the entry deletes the first one. That one is deleted first here, too: without it, an
    entry that was sent and got no answer can't be written any more.
    """
    give_back(replica.keeper, [Stray(lock) for lock in locks])


def status_of_mutations(replica: Replica, mutations: Mutations) -> list[MutationStatus]:
    """The status of each mutation on this replica.

    Raises TableIsReadOnly if the replica can't pull its log, Conflict if it is cloned, or gives up
    parts, again and again meanwhile.
    """
    seen = _look(replica, mutations)
    return [
        _status(mutations, one, seen) if one in seen.open_ids else _finished(one, entry)
        for one, entry in mutations.entries.items()
    ]


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was noted as finished, which mutations are not, and what they still have to change: the
    parts that are here or to come, and the numbers in flight of each partition.
    """

    noted: NotedMutations
    open_ids: frozenset[str]
    unmutated: Unmutated
    committing: Mapping[str, frozenset[int]]


def _look(replica: Replica, mutations: Mutations) -> _Seen:
    """Look at what is left to do for the mutations.

    The reads are in the order that makes "done" true: numbers in flight, then the log, which is
    pulled, then the queue and the parts (spec §7.6, §16.8 U2). A clone in between would reset the
    log's pointer and the parts to those of another replica; a part that is given up moves from the
    parts to the queue, and might be seen in neither. So `is_lost` must have the same version in the
    note, in the pull and after the last read.
    """
    keeper, memory = replica.keeper, replica.memory
    for _ in range(limits.LOOK_ROUNDS_MAX):
        noted = noted_mutations(keeper, replica.paths)
        open_ids = frozenset(one for one in mutations.entries if one not in noted.finished)
        if not open_ids:
            return _Seen(noted, open_ids, Unmutated((), ()), {})
        committing = _in_flight(replica, mutations, open_ids)
        pulled = pull_log(replica, afresh=True)
        snapshot = queue_snapshot(keeper, replica.paths, memory.queue)
        lost = keeper.exists(replica.paths.is_lost)
        after = None if lost is None else lost.version
        if noted.is_lost_version == pulled.is_lost_version == after:
            unmutated = Unmutated(snapshot.parts.current, snapshot.entries.values())
            return _Seen(noted, open_ids, unmutated, committing)
    raise Conflict(
        f"{replica} was cloned or gave up parts each of {limits.LOOK_ROUNDS_MAX} times while its "
        "mutations were looked at; try again"
    )


def _in_flight(
    replica: Replica, mutations: Mutations, ids: Collection[str]
) -> dict[str, frozenset[int]]:
    """Numbers in flight, in those partitions where one may still be smaller than a mutation's.

    Numbers only grow: where none was smaller once, none ever will be (spec §7.6).
    """
    checked = replica.memory.checked
    numbers = {
        (one, partition): version
        for one in ids
        for partition, version in mutations.entries[one].block_numbers
    }
    open_ones = numbers.keys() - checked.of(numbers)
    partitions = sorted({partition for _, partition in open_ones})
    committing = committing_blocks(replica.keeper, replica.table, partitions)
    passed = [
        (one, partition)
        for one, partition in open_ones
        if min(committing[partition], default=math.inf) >= numbers[one, partition]
    ]
    checked.learn(dict.fromkeys(passed), most=2 * len(numbers) + FINISHED_KNOWN_MAX)
    return committing


def status_by_pointer(replica: Replica, mutations: Mutations) -> list[MutationStatus]:
    """The status of mutations on a replica that is not active and can't pull its log now: finished
    are only those that it has noted as finished.
    """
    finished = noted_mutations(replica.keeper, replica.paths).finished
    away = f"{replica} is not active"
    return [
        _finished(one, entry)
        if one in finished
        else MutationStatus(one, entry, is_done=False, parts_to_do=(), waits_for=away)
        for one, entry in mutations.entries.items()
    ]


def _finished(mutation_id: str, entry: MutationEntry) -> MutationStatus:
    return MutationStatus(mutation_id, entry, is_done=True, parts_to_do=(), waits_for="")


def _status(mutations: Mutations, mutation_id: str, seen: _Seen) -> MutationStatus:
    entry = mutations.entries[mutation_id]
    todo = tuple(seen.unmutated.before(entry))
    blocked = mutations.blocked_by(mutation_id, seen.committing)
    waits_for = ""
    if todo:
        waits_for = f"{len(todo)} parts are to be mutated, for instance {todo[0]}"
    elif blocked is not None:
        waits_for = f"block {blocked[1]} of partition {blocked[0]} is still being inserted"
    return MutationStatus(mutation_id, entry, not waits_for, todo, waits_for)


def finalize_mutations(replica: Replica, mutations: Mutations) -> tuple[str, ...]:
    """Note which mutations this replica has finished; returns the ids that are new.

    A mutation that was noted as finished is never checked again, so the note must stay true: the
    same multi asserts that the replica still is what it was when that was found out. A note that
    another process has made meanwhile is not overwritten.
    """
    seen = _look(replica, mutations)
    noted = seen.noted
    done = {
        one
        for one in seen.open_ids
        if not seen.unmutated.has_any_before(mutations.entries[one])
        and mutations.blocked_by(one, seen.committing) is None
    }
    finished = noted.finished.with_done(mutations.entries, done)
    if finished == noted.finished:
        return ()
    try:
        replica.keeper.multi(
            transactions.note_finished(replica.table, replica.paths, finished, noted)
        )
    except Refused:
        return ()  # another process noted something first, or parts came back: next time
    return tuple(one for one in mutations.entries if one in done and one not in noted.finished)


def wait_for_mutation(
    replica: Replica,
    mutation_id: str,
    names: Sequence[str],
    *,
    timeout_s: float,
    inactive_timeout_s: float,
    waker: Waker,
    why_stuck: Callable[[], str] = lambda: "",
    waited: Waited | None = None,
) -> None:
    """Wait until the replicas `names` have finished it (spec §7.7), whether or not they have
    finished those before it; `waited`: what of these times is over already. Raises Unfinished, also
    if `why_stuck` returns a reason why waiting is useless, or UnknownMutation if the mutation was
    killed meanwhile; ReplicaDropped if the table was: another one of its name may have a mutation
    of this id.
    """
    keeper, waited = replica.keeper, waited or Waited()
    waited.seconds(replica.clock)
    behind: list[str] = []
    for name in names:
        paths = replica.table.replica(name)
        while True:
            is_finished = _has_finished(replica, name, mutation_id, waker)
            # After that, for one that was killed counts as finished when a later one is.
            there = keeper.exists(replica.table.mutation(mutation_id), waker.wake)
            replica.require_meant()
            if there is None:
                raise UnknownMutation(
                    f"mutation {mutation_id} of {replica} was killed or removed while it was "
                    "waited for"
                )
            if is_finished:
                break
            is_active = keeper.exists(paths.is_active) is not None
            limit_s = timeout_s if is_active else min(timeout_s, inactive_timeout_s)
            if waited.seconds(replica.clock) >= limit_s:
                behind.append(name)
                break
            if reason := why_stuck():
                raise Unfinished(
                    f"mutation {mutation_id} of {replica} does not get on: {reason}. It is tried "
                    "again until it works, or is killed with KILL MUTATION"
                )
            waker.wait_s(WAIT_SLICE_S)
    if behind:
        raise Unfinished(
            f"mutation {mutation_id} of {replica} goes on, but these replicas have not finished it "
            f"yet: {', '.join(behind)}. system.mutations says what they wait for"
        )


def _has_finished(replica: Replica, name: str, mutation_id: str, waker: Waker) -> bool:
    """Whether the replica `name` has finished the mutation; True if its drop has begun, and it need
    not be waited for.
    """
    keeper, paths = replica.keeper, replica.table.replica(name)
    for path in (paths.mutation_pointer, paths.finished_mutations):
        keeper.exists(path, waker.wake)
    try:
        is_finished = mutation_id in noted_mutations(keeper, paths).finished
    except ReplicaRetired:
        if keeper.exists(paths.host) is not None:
            raise
        return True
    return is_finished or keeper.exists(paths.host) is None


def kill_mutation(replica: Replica, mutation_id: str) -> MutationEntry:
    """Remove the mutation, so that it changes no more parts on any replica (spec §7.8); returns its
    entry. Replicas stop what they are doing for it, see `killed`.

    Raises UnknownMutation, TableIsReadOnly.
    """
    path = replica.table.mutation(mutation_id)
    [read] = replica.keeper.get_many([path])
    if read is None:
        raise _unknown(replica, mutation_id)
    try:
        with asserting_active(replica, "it kills no mutations"):
            replica.keeper.multi(
                [Check(replica.paths.is_active), *transactions.remove_node(path)]
            )
    except Refused as refused:
        raise _unknown(replica, mutation_id) from refused
    return MutationEntry.decode(read[0])


def _unknown(replica: Replica, mutation_id: str) -> UnknownMutation:
    return UnknownMutation(
        f"{replica} has no mutation {mutation_id}; system.mutations lists them"
    )


def clean_mutations(replica: Replica) -> tuple[str, ...]:
    """Remove mutations that every replica has finished, except the newest ones (spec §7.9); returns
    their ids.
    """
    keeper, table = replica.keeper, replica.table
    names, replicas = keeper.children_stat(table.replicas)
    hosts = keeper.exists_many([table.replica(name).host for name in names])
    # A replica whose DROP died halfway has no host, and finishes nothing any more.
    there = [name for name, host in zip(names, hosts, strict=True) if host is not None]
    try:
        finished = {
            name: noted_mutations(keeper, table.replica(name)).finished for name in there
        }
    except ReplicaRetired:
        return ()  # one was dropped since they were listed: next time
    goes = finished_mutations(
        keeper.children(table.mutations),
        finished,
        keep=replica.settings.finished_mutations_to_keep,
    )
    removed: list[str] = []
    for start in range(0, len(goes), limits.CLEAN_UP_OPS_PER_MULTI_MAX):
        batch = goes[start : start + limits.CLEAN_UP_OPS_PER_MULTI_MAX]
        try:
            keeper.multi(transactions.remove_mutations(table, batch, replicas.version))
        except Refused:
            break  # another replica cleans, or one was added: next time
        removed += batch
    return tuple(removed)
