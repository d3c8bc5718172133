"""What a merge pool does for mutations beside carrying out its queue: propose pieces of them, and
note which ones are finished (spec §7.4, §7.6).
"""

import math

from rmt_pipeline.protocol.mutations import Mutations
from rmt_pipeline.replica.assign.merges import Assigned, Nothing
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.mutations.mutations import finalize_mutations, load_mutations
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper.keeper import Watch
from rmt_pipeline.zookeeper.snapshot import living_replicas, noted_mutations

LOOK_EVERY_S = 1.0  # while a mutation is unfinished (spec §7.6)
LIST_EVERY_S = 60.0  # in case a watch was missed
STAND_BACK_S = 2.0  # for each replica that comes before: two that assign at once only collide


def _nobody_waits() -> None:
    """Before the first turn."""


class MutationDuty:
    """Remembers only when to look again. `turn` costs nothing while nothing is unfinished."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._mutations = Mutations({})
        self._is_changed = True
        self._list_next_s = 0.0
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
        if not self._mutations.entries or not (due or (progress and waiting)):
            return []
        self._look_next_s = now_s + LOOK_EVERY_S  # also when what follows fails
        finalize_mutations(self._replica, self._mutations)
        if not self._is_anything_open():
            self._look_next_s = math.inf
            return []
        return self._assign(now_s)

    def next_s(self, now_s: float) -> float:
        """Seconds until the next turn that may do something by itself; may be infinite."""
        return max(0.0, self._look_next_s - now_s)

    def _list(self, watch: Watch, now_s: float) -> bool:
        """Whether anything has changed since the last turn, or may have. Notes are taken back when
        a part is given up (`refetch_part`): nothing is open then, and nobody would look.
        """
        is_changed, self._is_changed = self._is_changed, False
        if not is_changed and now_s < self._list_next_s:
            return False
        self._watch = watch
        known = self._mutations.entries.keys()
        try:
            self._replica.keeper.exists(self._replica.paths.mutation_pointer, self._changed)
            self._mutations = load_mutations(self._replica, self._changed)
        except BaseException:
            self._is_changed = True
            raise
        self._list_next_s = now_s + LIST_EVERY_S
        newest = max(self._mutations.entries, default="")
        if newest > self._newest:
            self._newest, self._newest_s = newest, now_s
        return is_changed or self._mutations.entries.keys() != known

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
