"""The queue under any history of a table and any order of work."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from rmt_pipeline.protocol.log.entry import (
    AlterMetadata,
    MutatePart,
    drop_range_of,
    sources_of,
    virtual_parts,
)
from rmt_pipeline.protocol.parts.holdings import Holdings
from rmt_pipeline.protocol.queue.facts import Facts, Wait
from rmt_pipeline.protocol.queue.state import Lane
from rmt_pipeline.protocol.queue.view import QueueView
from tests.support.kept_view import assert_same
from tests.support.queue_model import KINDS, Log, Replica

few = st.integers(0, 3)
one_decision = st.tuples(st.sampled_from(KINDS), st.sampled_from("aab"), few, few)


COMPUTING = frozenset({Lane.MERGES, Lane.MUTATIONS})


class AnyHistory(RuleBasedStateMachine):
    """Leaders decide, one replica follows with several workers, in any order."""

    @initialize(decided=st.lists(one_decision, min_size=5, max_size=25))
    def begin(self, decided: list[tuple[str, str, int, int]]) -> None:
        self.log = Log()
        self.replica = Replica()
        self.kept = QueueView({}, {}, ())
        self.looks = random.Random(len(decided))
        self.decide(decided)

    # --- somebody decides -----------------------------------------------------------------

    @rule(decided=st.lists(one_decision, min_size=1, max_size=5))
    def decide(self, decided: list[tuple[str, str, int, int]]) -> None:
        for decision in decided:
            self.log.decide(*decision)

    # --- the replica works ----------------------------------------------------------------

    @rule(count=st.integers(1, 12))
    def pull(self, count: int) -> None:
        self.replica.pull(self.log, count)

    @rule(limit=st.integers(1, 9), fetches=st.integers(1, 5), merges=st.integers(0, 3))
    def claim(self, limit: int, fetches: int, merges: int) -> None:
        view = self.replica.view
        plan = view.plan(Facts(fetches_max=fetches, merges_max=merges), limit)
        self.check_plan([entry for _, entry in plan.run])
        assert len(plan.run) <= limit
        counted = len(plan.run) + len(plan.done) + len(plan.wait)
        assert counted == len(view.entries), "every entry is decided about"
        self.replica.claim(Facts(fetches_max=fetches, merges_max=merges), limit)

    def check_plan(self, entries: list) -> None:
        """P11. Nothing that is produced overlaps, or is a source of another."""
        for left in entries:
            for right in entries:
                if left is right:
                    continue
                for part in virtual_parts(left):
                    assert part not in sources_of(right)
                    for other in virtual_parts(right):
                        assert part.disjoint(other) or part.is_drop_range or other.is_drop_range
                mine, theirs = drop_range_of(left), drop_range_of(right)
                assert mine is None or theirs is None or mine.disjoint(theirs)

    @precondition(lambda self: self.replica.claims)
    @rule()
    def look_for_larger_parts(self) -> None:
        for name in list(self.replica.claims):
            self.replica.take_larger(name, self.log)

    @precondition(lambda self: self.replica.claims)
    @rule(data=st.data())
    def execute(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.replica.claims)))
        entry = self.replica.queue.get(name)
        if isinstance(entry, AlterMetadata):  # P17
            others = [e for e in self.replica.queue.values() if isinstance(e, AlterMetadata)]
            assert entry.alter_version == min(other.alter_version for other in others)
        if isinstance(entry, MutatePart) and entry.alter_version != -1:  # P17
            others = [e for e in self.replica.queue.values() if isinstance(e, AlterMetadata)]
            assert all(other.alter_version > entry.alter_version for other in others)
        self.replica.execute(name)

    @precondition(lambda self: self.replica.claims)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        self.replica.fail(data.draw(st.sampled_from(sorted(self.replica.claims))))

    @rule()
    def finish_what_is_done(self) -> None:
        self.replica.finish_done()

    @rule()
    def clean_up(self) -> None:
        self.replica.clean_up()

    @rule(index=few)
    def give_up(self, index: int) -> None:
        self.replica.give_up(index)

    @rule()
    def restart(self) -> None:
        self.replica.restart()

    # --- what must always hold --------------------------------------------------------------

    @rule()
    def look_again(self) -> None:
        """Now and then: what happens between two looks may be much. A view that is kept says what
        one says that is made of nothing but the reads.
        """
        replica = self.replica
        parts = Holdings.of(replica.parts)
        self.kept = QueueView(dict(replica.queue), dict(replica.claims), parts, self.kept)
        self.kept.check()
        facts = Facts(
            fetches_max=self.looks.randint(0, 4),
            recoveries_max=self.looks.randint(0, 2),
            merges_max=self.looks.randint(0, 3),
        )
        nodes = sorted(replica.queue)
        assert_same(
            self.kept,
            replica.view,
            facts,
            limit=self.looks.choice([0, 1, 3, 99]),
            skip=self.looks.choice([frozenset(), COMPUTING]),
            later=self.looks.sample(nodes, self.looks.choice([0, len(nodes) // 3])),
        )

    @invariant()
    def the_view_holds_together(self) -> None:
        """P8, P10."""
        self.replica.view.check()

    @invariant()
    def everything_that_was_decided_is_in_sight(self) -> None:
        """P8, P9, P14. Virtual parts, but for ranges that still drop, are the log's outcome."""
        real = [part for part in self.replica.view.virtual if not part.is_drop_range]
        assert real == list(self.replica.end)

    @invariant()
    def the_queue_is_never_stuck(self) -> None:
        """P12. And every wait has a reason that somebody can read."""
        view = self.replica.view
        decisions = {name: view.decide(name, Facts()) for name in view.entries}
        for decision in decisions.values():
            assert not isinstance(decision, Wait) or len(decision.reason) > 10
        if decisions and not view.claims:
            assert not all(isinstance(one, Wait) for one in decisions.values()), decisions

    def teardown(self) -> None:
        """P13, P14. Whatever is left, done in any order, ends as the log says."""
        if not hasattr(self, "log"):
            return
        self.replica.pull(self.log, len(self.log.entries))
        self.replica.restart()
        drain(self.replica, random.Random(len(self.log.entries)))
        assert self.replica.view.current == self.log.state


def drain(replica: Replica, drawn: random.Random) -> None:
    for _ in range(len(replica.queue)):
        names = list(replica.queue)
        drawn.shuffle(names)
        if not any(replica.step(name) for name in names):
            break
        replica.view.check()
    assert replica.queue == {}, "the queue is stuck"


AnyHistory.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestAnyHistory = AnyHistory.TestCase


@given(st.lists(one_decision, max_size=40), st.integers(0, 2**32), st.integers(0, 2**32))
@settings(max_examples=300, deadline=None)
def test_any_two_orders_of_work_end_with_the_same_parts(
    decided: list[tuple[str, str, int, int]], seed: int, other_seed: int
) -> None:
    """P13. Two replicas of one log, each of which pulls and works in an order of its own."""
    log = Log()
    for decision in decided:
        log.decide(*decision)
    for drawn in (random.Random(seed), random.Random(other_seed)):
        replica = Replica()
        while replica.pulled < len(log.entries):
            replica.pull(log, drawn.randint(1, 9))
            for name in drawn.sample(list(replica.queue), len(replica.queue) // 2):
                if name in replica.queue:
                    replica.step(name)
        drain(replica, drawn)
        assert replica.view.current == log.state
