"""What looks and decisions cost a replica that has many parts and little to do.

    python -m benchmarks.growth [--parts 100 1000 10000] [--each 20] [--profile choose]

In this process, over a ZooKeeper in memory: only our own work is measured, no network. All parts
are copies of one, `--each` to a partition. Milliseconds of processor time, the least of some rounds:

* view: read the queue, find out what may be done;
* view, +1: the same after another process has inserted one part more, with the pull of its entry;
* look, look, +1: of an executor that finds nothing to do, likewise;
* throttle: an insert asks whether there are too many parts;
* assign: choose the merge that is most worth it, and write it to the log. Each time another one;
* choose: with as many queued entries as parts, see that they are still what they were at the last
  look, and find one to run;
* choose, +1: the same after another process has inserted one part more, with the pull of its entry.
"""

import argparse
import cProfile
import pstats
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rmt_pipeline.protocol.log.codec import encode
from rmt_pipeline.protocol.log.entry import GetPart
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.queue.facts import Facts
from rmt_pipeline.protocol.queue.view import QueueView
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.assign.merges import Assigned, select_and_assign, view_of
from rmt_pipeline.replica.insert.throttle import throttle_insert
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.zookeeper.keeper import Create
from rmt_pipeline.zookeeper.snapshot import QueueSnapshot, queue_snapshot
from tests.support.local_replicas import Replicas

ROUNDS = 3
SHOWN = 25


class Grown:
    """A replica with many parts, each of one row."""

    def __init__(self, replicas: Replicas, parts: int, partitions: int) -> None:
        self._replica = replicas["r1"]
        self._source = replicas.insert("r1", 1)
        self._header, _ = self._replica.keeper.get(self._replica.paths.part(self._source))
        self._inserter = replicas.zookeeper.connect()
        self._executor = replicas.executor("r1", "merge")
        self._partitions = partitions
        self._announced = 0
        self._seen: QueueSnapshot | None = None
        self._chosen: QueueView | None = None
        table = self._replica.table
        self._replica.keeper.multi(
            [Create(table.partition(f"p{number:04}")) for number in range(partitions)]
        )
        for _ in range(parts):
            self.announce()
        replicas.step("r1")

    def announce(self) -> None:
        """Another part, as if it had been inserted and its log entry was carried out."""
        block, partition = divmod(self._announced, self._partitions)
        part = PartName(f"p{partition:04}", block, block, 0)
        self._announced += 1
        entry = GetPart(create_time=0, source_replica="r1", part=part)
        store = self._replica.store
        Path(store.directory(part)).symlink_to(store.directory(self._source))
        self._inserter.multi(
            [
                Create(self._replica.table.log_prefix, encode(entry), sequence=True),
                Create(self._replica.paths.part(part), self._header),
            ]
        )

    def queue(self) -> None:
        """As many entries as there are parts, each for a part that is not here."""
        paths, first = self._replica.paths, 10**6
        for number in range(self._announced):
            block, partition = divmod(number, self._partitions)
            part = PartName(f"p{partition:04}", first + block, first + block, 0)
            text = encode(GetPart(create_time=0, source_replica="r2", part=part))
            self._replica.keeper.multi([Create(paths.queue_prefix, text, sequence=True)])

    def choose(self) -> None:
        replica = self._replica
        known = replica.memory.queue
        queued, before = known.queued(replica.paths), self._chosen
        snapshot = queue_snapshot(
            replica.keeper,
            replica.paths,
            known,
            queue=queued,
            before=self._seen,
        )
        self._seen, self._chosen = snapshot, view_of(snapshot, before)
        assert len(self._chosen.choose(Facts(), 1).run) == 1

    def pull_and_choose(self) -> None:
        pull_log(self._replica)
        self.choose()

    def view(self) -> None:
        replica = self._replica
        snapshot = queue_snapshot(replica.keeper, replica.paths, replica.memory.queue)
        view_of(snapshot).plan(Facts(), 1)

    def pull_and_view(self) -> None:
        pull_log(self._replica)
        self.view()

    def pull_and_look(self) -> None:
        pull_log(self._replica)
        self.look()

    def throttle(self) -> None:
        throttle_insert(self._replica, QuerySettings())

    def look(self) -> None:
        look = self._executor.look(None)
        assert not look.batches
        assert not look.step.did_something

    def assign(self) -> None:
        outcome = select_and_assign(self._replica, aggressive=False)
        assert isinstance(outcome, Assigned), outcome


def _ms(action: Callable[[], None], before: Callable[[], None] | None = None) -> float:
    """The first round is not counted: it reads what the others know."""
    found = []
    for _ in range(ROUNDS + 1):
        if before is not None:
            before()
        start = time.process_time()
        action()
        found.append((time.process_time() - start) * 1000)
    return min(found[1:])


def _measured(grown: Grown) -> dict[str, float]:
    found = {
        "view": _ms(grown.view),
        "view, +1": _ms(grown.pull_and_view, grown.announce),
        "look": _ms(grown.look),
        "look, +1": _ms(grown.pull_and_look, grown.announce),
        "throttle": _ms(grown.throttle, grown.announce),
        "assign": _ms(grown.assign),
    }
    grown.queue()
    return {
        **found,
        "choose": _ms(grown.choose),
        "choose, +1": _ms(grown.pull_and_choose, grown.announce),
    }


def _profile(action: Callable[[], None]) -> None:
    action()
    with cProfile.Profile() as profile:
        for _ in range(ROUNDS):
            action()
    pstats.Stats(profile).sort_stats("tottime").print_stats(SHOWN)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--each", type=int, default=20)
    parser.add_argument("--profile", choices=["view", "look", "assign", "choose"])
    options = parser.parse_args()
    for count in options.parts:
        with tempfile.TemporaryDirectory() as place, Replicas(Path(place)) as replicas:
            grown = Grown(replicas, count, max(1, count // options.each))
            if options.profile:
                if options.profile == "choose":
                    grown.queue()
                _profile(getattr(grown, options.profile))
                continue
            for what, cost in _measured(grown).items():
                print(f"{count:>8} parts  {what:<9} {cost:10.2f} ms", flush=True)


if __name__ == "__main__":
    main()
