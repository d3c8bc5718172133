"""Waiting after KILL MUTATION until no active replica has an entry for the mutation in its queue.

The entries themselves are not removed: the worker that carries one out stops, and the next worker
that takes it carries out what is left to do for the part, or just gives it its new name (spec §7.8,
§16.8 U5).
"""

from dataclasses import dataclass, field

from rmt_pipeline.protocol.errors import ReplicaRetired
from rmt_pipeline.protocol.log.entry import LogEntry, MutatePart
from rmt_pipeline.protocol.nodes.formats import MutationEntry
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.system import Waker
from rmt_pipeline.zookeeper.known import KnownQueue
from rmt_pipeline.zookeeper.snapshot import queued_entries, staying_replicas

LOOK_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class KillReport:
    """How the replicas have followed a kill. `after_s`: after how many seconds each active replica
    had no entry for the mutation any more; `not_yet`: replicas that still have one; `away`:
    replicas that are not active, and learn of the kill when they come back.
    """

    after_s: dict[str, float] = field(default_factory=dict)
    not_yet: tuple[str, ...] = ()
    away: tuple[str, ...] = ()

    def words(self) -> str:
        words = [f"{name} after {seconds:.1f} s" for name, seconds in self.after_s.items()]
        words += [f"{name} not yet" for name in self.not_yet]
        words += [f"{name} when it is active again" for name in self.away]
        return ", ".join(words)


def wait_for_kill(
    replica: Replica, entry: MutationEntry, *, timeout_s: float, waker: Waker
) -> KillReport:
    """Look at the queue of every active replica until none has an entry for the mutation that
    `entry` was, for at most `timeout_s`. Replicas that are dropped meanwhile are left out.
    """
    clock, start_s = replica.clock, replica.clock.monotonic_s()
    living = staying_replicas(replica.keeper, replica.table)
    away = tuple(name for name, active in sorted(living.items()) if not active)
    known = {name: KnownQueue() for name, active in sorted(living.items()) if active}
    after_s: dict[str, float] = {}
    while True:
        for name in [name for name in known if name not in after_s]:
            paths = replica.table.replica(name)
            try:
                queue = queued_entries(replica.keeper, paths, known[name]).values()
            except ReplicaRetired:
                if replica.keeper.exists(paths.host) is not None:
                    raise
                del known[name]
                continue
            if not any(_is_for(one, entry) for one in queue):
                after_s[name] = clock.monotonic_s() - start_s
        not_yet = tuple(name for name in known if name not in after_s)
        if not not_yet or clock.monotonic_s() - start_s >= timeout_s:
            return KillReport(after_s, not_yet, away)
        waker.wait_s(LOOK_EVERY_S)


def _is_for(queued: LogEntry, mutation: MutationEntry) -> bool:
    if not isinstance(queued, MutatePart):
        return False
    number = mutation.version_in(queued.source.partition)
    return number is not None and queued.source.data_version < number <= (
        queued.result.data_version
    )
