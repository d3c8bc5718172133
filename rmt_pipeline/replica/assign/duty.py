"""What a merge pool does beside carrying out its queue: propose merges (spec §6.1); for mutations,
propose pieces of them, and note which ones are finished (spec §7.4, §7.6).
"""

import math

from rmt_pipeline.protocol.merges.predicate import mergeable_runs
from rmt_pipeline.protocol.mutations import Mutations
from rmt_pipeline.replica.assign.merges import (
    Assigned,
    Choice,
    MergeView,
    Nothing,
    assign_choice,
    choose_merge,
    merge_view,
)
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.mutations.mutations import finalize_mutations, load_mutations
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.system import Signal
from rmt_pipeline.zookeeper.keeper import Watch
from rmt_pipeline.zookeeper.snapshot import living_replicas, noted_mutations

LOOK_EVERY_S = 1.0  # while a mutation is unfinished (spec §7.6)
SEEN_MAX_S = 3600.0  # what was seen is believed, in case a watch was missed
STAND_BACK_S = 2.0  # for each replica that comes before: two that assign at once only collide


def _nobody_waits() -> None:
    """Before the first turn."""


class MutationDuty:
    """Remembers only when to look again. `turn` costs nothing while nothing is unfinished."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._mutations = Mutations({})
        self._is_changed = True
        self._look_next_s = math.inf
        self._watch: Watch = _nobody_waits
        self._newest = ""
        self._newest_s = 0.0

    def turn(self, watch: Watch, *, progress: bool) -> list[Assigned]:
        """Entries that were assigned. `watch` fires when there is a new mutation, or one less, or
        what is noted as finished has changed; `progress`: the queue has changed since the last
        turn.
        """
        now_s = self._replica.clock.monotonic_s()
        is_changed = self._list(watch, now_s)
        due = is_changed or now_s >= self._look_next_s
        waiting = self._look_next_s < math.inf
        if not self._mutations.entries:
            self._look_next_s = math.inf  # also when the last one was killed
            return []
        if not (due or (progress and waiting)):
            return []
        self._look_next_s = now_s + LOOK_EVERY_S  # also when what follows fails
        finalize_mutations(self._replica, self._mutations)
        if not self._is_anything_open():
            self._look_next_s = math.inf
            return []
        return self._assign(now_s)

    def look_again(self) -> None:
        """Something may have changed without a word."""
        self._is_changed = True

    def next_s(self, now_s: float) -> float:
        """Seconds until the next turn that may do something by itself; may be infinite."""
        return max(0.0, self._look_next_s - now_s)

    def _list(self, watch: Watch, now_s: float) -> bool:
        """Whether anything has changed since the last turn, or may have. Notes are taken back when
        a part is given up (`refetch_part`): nothing is open then, and nobody would look.
        """
        is_changed, self._is_changed = self._is_changed, False
        if not is_changed:
            return False
        self._watch = watch
        try:
            self._replica.keeper.exists(self._replica.paths.mutation_pointer, self._changed)
            self._mutations = load_mutations(self._replica, self._changed)
        except BaseException:
            self._is_changed = True
            raise
        newest = max(self._mutations.entries, default="")
        if newest > self._newest:
            self._newest, self._newest_s = newest, now_s
        return True

    def _changed(self) -> None:
        """One and the same each time it is asked for, so that it is kept once. From any thread."""
        self._is_changed = True
        self._watch()

    def _is_anything_open(self) -> bool:
        noted = noted_mutations(self._replica.keeper, self._replica.paths)
        return any(one not in noted.finished for one in self._mutations.entries)

    def _assign(self, now_s: float) -> list[Assigned]:
        """Any replica may assign. The first of the living ones does it at once; the others only
        when it seems not to.
        """
        names = [
            name
            for name, active in living_replicas(
                self._replica.keeper, self._replica.table
            ).items()
            if active
        ]
        before = sum(name < self._replica.name for name in names)
        if now_s < self._newest_s + before * STAND_BACK_S:
            return []
        outcome = assign_mutations(self._replica)
        return [] if isinstance(outcome, Nothing) else outcome


class MergeDuty:
    """Looks for a merge that is worth it every `merge_selecting_sleep_ms`, slower and slower while
    nothing is found. While nothing changes, what was seen last is looked at: parts grow older and
    disks emptier, so that a merge may be worth it that was not before.

    What was seen decides only that there is nothing to do: whatever is found in it is looked for
    again in what is there now. And it is forgotten when a watch on the log tells of anything new
    (an insert's part is never in the queue of the replica that took it), when the queue has
    changed, and when something stood between two parts: that may go without a word.
    """

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._log = Signal()
        self._seen: MergeView | None = None
        self._seen_until_s = 0.0
        self._next_s = 0.0
        self._sleep_s = self._shortest_s

    @property
    def _shortest_s(self) -> float:
        return self._replica.settings.merge_selecting_sleep_ms / 1000

    def look_again(self) -> None:
        """The queue has changed, or something may have without a word."""
        self._seen = None

    def still_true(self) -> None:
        """Nothing has changed since it was seen."""
        self._seen_until_s = self._replica.clock.monotonic_s() + SEEN_MAX_S

    def turn(self) -> list[Assigned]:
        """The merge that was assigned, if it is time to look for one."""
        now_s = self._replica.clock.monotonic_s()
        if now_s < self._next_s:
            return []
        outcome = self._select_in_seen(now_s) or self._select(now_s)
        settings, shortest_s = self._replica.settings, self._shortest_s
        if isinstance(outcome, Assigned):
            self._sleep_s, self._next_s = shortest_s, now_s
            return [outcome]
        if not outcome.changed:
            slower_s = self._sleep_s * settings.merge_selecting_sleep_slowdown_factor
            self._sleep_s = min(slower_s, settings.max_merge_selecting_sleep_ms / 1000)
        self._next_s = now_s + self._sleep_s
        return []

    def next_s(self, now_s: float) -> float:
        """Seconds until the next turn that may do something by itself."""
        return max(0.0, self._next_s - now_s)

    def _select_in_seen(self, now_s: float) -> Nothing | None:
        """That there is nothing to merge, as far as can be told without asking."""
        seen = self._seen
        if seen is None or self._log.is_fired or now_s >= self._seen_until_s:
            return None
        choice = choose_merge(self._replica, seen, aggressive=False)
        return choice if isinstance(choice, Nothing) else None

    def _select(self, now_s: float) -> Assigned | Nothing:
        self._seen = None
        self._log.take()
        view = merge_view(self._replica, log_watch=self._log.fire)
        choice = choose_merge(self._replica, view, aggressive=False)
        if isinstance(choice, Choice):
            return assign_choice(self._replica, view, choice)
        if not mergeable_runs(view.predicate, view.active).boundaries:
            self._seen, self._seen_until_s = view, now_s + SEEN_MAX_S
        return choice
