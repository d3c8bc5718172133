"""A mutation that a replica calls finished is finished, whatever comes (spec §7.6, §16.8 U2)."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rmt_pipeline.protocol.log.entry import DropRange, LogEntry, result_of
from rmt_pipeline.protocol.mutations import (
    Desired,
    FinishedMutations,
    Mutations,
    Unmutated,
)
from rmt_pipeline.protocol.nodes.formats import MutationEntry
from rmt_pipeline.protocol.parts.name import PartName, mutated
from rmt_pipeline.protocol.parts.set import PartSet
from tests.support.protocol import TIME_S, drop, get, merge, mutate

PARTITIONS = ("a", "b")
IDS = st.integers(0, 12).map(lambda number: f"{number:010d}")


class OneReplica(RuleBasedStateMachine):
    """A replica that pulls, works and looks in any order, while others insert, mutate, merge, drop
    and kill. It carries out its queue in any order too: what is covered comes too late.
    """

    def __init__(self) -> None:
        super().__init__()
        self.next = dict.fromkeys(PARTITIONS, 0)
        self.in_flight: set[tuple[str, int]] = set()
        self.log: list[LogEntry] = []
        self.queue: list[LogEntry] = []
        self.active = PartSet()
        self.mutations: dict[str, MutationEntry] = {}
        self.created = 0
        self.finished = FinishedMutations()
        self.ever: set[str] = set()
        self.look: tuple[Mutations, dict[str, frozenset[int]]] | None = None

    def number(self, partition: str) -> int:
        self.next[partition] += 1
        return self.next[partition] - 1

    @property
    def virtual(self) -> PartSet:
        """What the replica has and will have, once it has pulled everything."""
        found = PartSet(self.active)
        for entry in [*self.queue, *self.log]:
            part = result_of(entry)
            if isinstance(entry, DropRange):
                found = PartSet(one for one in found if not entry.range.contains(one))
            elif part is not None:
                found.add(part)
        return found

    # --- others ---

    @rule(partition=st.sampled_from(PARTITIONS))
    def allocate(self, partition: str) -> None:
        self.in_flight.add((partition, self.number(partition)))

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), lands=st.booleans())
    def end_insert(self, data: Any, lands: bool) -> None:
        one = data.draw(st.sampled_from(sorted(self.in_flight)))
        self.in_flight.remove(one)
        if lands:
            self.log.append(get("{0}_{1}_{1}_0".format(*one)))

    @rule(partitions=st.sets(st.sampled_from(PARTITIONS)))
    def create_mutation(self, partitions: set[str]) -> None:
        numbers = tuple((one, self.number(one)) for one in sorted(partitions))
        self.mutations[f"{self.created:010d}"] = MutationEntry(TIME_S, "r2", numbers, "DELETE")
        self.created += 1

    @precondition(lambda self: self.mutations)
    @rule(data=st.data())
    def kill_mutation(self, data: Any) -> None:
        del self.mutations[data.draw(st.sampled_from(sorted(self.mutations)))]

    @precondition(lambda self: len(self.virtual))
    @rule(data=st.data())
    def assign_mutation(self, data: Any) -> None:
        virtual = self.virtual
        part = data.draw(st.sampled_from(sorted(virtual)))
        desired = Mutations(self.mutations).desired(part, virtual)
        if isinstance(desired, Desired):
            self.log.append(mutate(str(part), str(mutated(part, desired.version))))

    @rule(partition=st.sampled_from(PARTITIONS), at=st.integers(0, 5))
    def assign_merge(self, partition: str, at: int) -> None:
        """Of two neighbours that have seen the same mutations, with no number in between."""
        known = Mutations(self.mutations)
        pair = [one for one in self.virtual if one.partition == partition][at : at + 2]
        if len(pair) < 2 or known.next_of(pair[0]) != known.next_of(pair[1]):
            return
        between = range(pair[0].block_max, pair[1].block_min)
        if not any(name == partition and number in between for name, number in self.in_flight):
            self.log.append(merge(f"{pair[0]} {pair[1]}"))

    @rule(partition=st.sampled_from(PARTITIONS))
    def drop_partition(self, partition: str) -> None:
        """What is in flight there is cancelled."""
        if not self.next[partition]:
            return
        self.in_flight = {one for one in self.in_flight if one[0] != partition}
        self.log.append(drop(self.number(partition), partition))

    # --- the replica ---

    @rule()
    def pull(self) -> None:
        self.queue += self.log
        self.log.clear()

    @precondition(lambda self: self.queue)
    @rule(at=st.integers(0, 3))
    def carry_out(self, at: int) -> None:
        """An entry that drops a range waits for nothing, and takes what it covers along."""
        entry = self.queue.pop(min(at, len(self.queue) - 1))
        part = result_of(entry)
        if isinstance(entry, DropRange):
            self.active = PartSet(one for one in self.active if not entry.range.contains(one))
            self.queue = [one for one in self.queue if not _within(one, entry.range)]
        elif part is not None:
            self.active.add(part)

    @rule()
    def begin_look(self) -> None:
        """Mutations, then numbers in flight: the order of `replica.mutations`."""
        committing = {
            partition: frozenset(number for name, number in self.in_flight if name == partition)
            for partition in PARTITIONS
        }
        self.look = Mutations(dict(self.mutations)), committing

    @precondition(lambda self: self.look is not None)
    @rule()
    def end_look(self) -> None:
        assert self.look is not None
        known, committing = self.look
        self.pull()
        unmutated = Unmutated(self.active, self.queue)
        done = {
            one
            for one, entry in known.entries.items()
            if not unmutated.has_any_before(entry) and known.blocked_by(one, committing) is None
        }
        before = self.finished
        self.finished = self.finished.with_done(known.entries, done)
        self.ever |= done
        for one in known.entries:
            assert (one in self.finished) == (one in before or one in done)
        self.look = None

    # --- what is always so ---

    @invariant()
    def no_part_is_below_a_finished_mutation(self) -> None:
        for mutation_id, entry in self.mutations.items():
            if mutation_id not in self.finished:
                continue
            for part in self.active:
                version = entry.version_in(part.partition)
                assert version is None or part.data_version >= version, f"{part}, {entry}"

    @invariant()
    def the_pointer_is_behind_every_unfinished_one(self) -> None:
        for mutation_id in self.mutations:
            assert mutation_id in self.ever or mutation_id > self.finished.pointer


def _within(entry: LogEntry, dropped: PartName) -> bool:
    part = result_of(entry)
    return part is not None and not part.is_drop_range and dropped.contains(part)


TestOneReplica = OneReplica.TestCase
TestOneReplica.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


@given(
    steps=st.lists(st.tuples(st.sets(IDS), st.sets(IDS)), max_size=6),
    ids=st.sets(IDS, min_size=1),
)
def test_the_pointer_has_finished_ones_behind_it_and_no_others(steps, ids):
    """Whichever are found done, in whatever order, while others are killed."""
    finished, ever = FinishedMutations(), set()
    for done, killed in steps:
        ids = ids - killed
        ever |= done & ids
        finished = finished.with_done(ids, done & ids)
        assert {one for one in ids if one in finished} == ever & ids
        assert all(one in ever for one in ids if one <= finished.pointer)
        assert (
            FinishedMutations.decode(finished.pointer.encode(), finished.encode_beyond())
            == finished
        )
