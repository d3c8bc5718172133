"""`rmt serve` that notes what it does, and when: where the slowest inserts lost their time on the way
to the peer.

    python -m benchmarks.traced FILE serve --server r1 --work

`benchmarks.replication --slowest 20` starts its servers so, and prints what it reads from their files
(`slowest`). Each line of FILE is a step: its name, when it began and ended (seconds since the epoch),
its thread, and the parts that it was about. Noting takes some 2 % of a server's processor time.
"""

import functools
import gc
import importlib
import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

TICK_S = 0.01
LATE_S = 0.01
"""A thread that wakes every TICK_S seconds notes when it was so late."""


class Step(NamedTuple):
    name: str
    begin_s: float
    end_s: float
    thread: str
    parts: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Noted:
    """A function whose calls are noted, if they take `least_s`: `owner` is its module, or class in
    a module behind a colon. `parts` finds the parts in its arguments.
    """

    name: str
    owner: str
    function: str
    parts: Callable[..., Iterable[object]] = lambda *_, **__: ()
    least_s: float = 0.0


def _produced(_: object, __: object, came: Mapping[str, Any]) -> Iterable[object]:
    return [part for claim in came.values() for part in claim.parts]


FUNCTIONS = (
    Noted("pull", "rmt_pipeline.replica.work.worker", "pull_log"),
    Noted("claim", "rmt_pipeline.replica.claims:Holder", "_send", _produced),
    Noted(
        "fetch",
        "rmt_pipeline.exchange.client:PartClient",
        "fetch_small",
        lambda _, __, ___, parts, ____: parts,
    ),
    Noted(
        "fetch",
        "rmt_pipeline.exchange.client:PartClient",
        "fetch",
        lambda _, __, ___, part, *____: [part],
    ),
    Noted(
        "on disk",
        "rmt_pipeline.store.part_store:PartStore",
        "publish_all",
        lambda _, pairs: [part for __, part in pairs],
    ),
    Noted("announce", "rmt_pipeline.replica.publish", "answered"),
    Noted("announce", "rmt_pipeline.replica.publish_batch", "answered"),
    Noted("merge", "rmt_pipeline.compute.jobs.aside:Aside", "run"),
    Noted("choose merges", "rmt_pipeline.replica.assign.duty:MergeDuty", "_select"),
    Noted("look", "rmt_pipeline.replica.work.execute:Executor", "look"),
    Noted("plan clean-up", "rmt_pipeline.server.upkeep", "plan_clean_up"),
    Noted("clean up", "rmt_pipeline.server.upkeep", "carry_out"),
    Noted("slow sync", "rmt_pipeline.store.disk", "_sync", least_s=0.005),
    Noted(
        "slow multi", "rmt_pipeline.zookeeper.kazoo_keeper:KazooKeeper", "multi", least_s=0.01
    ),
    Noted(
        "slow reads",
        "rmt_pipeline.zookeeper.kazoo_keeper:KazooKeeper",
        "get_many",
        least_s=0.01,
    ),
)


class _Notes:
    """The file, to which each thread appends whole lines."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        self._collecting_s = 0.0

    def add(self, name: str, begin_s: float, parts: Iterable[object] = ()) -> None:
        step = Step(
            name, begin_s, time.time(), threading.current_thread().name, [*map(str, parts)]
        )
        os.write(self._file, f"{json.dumps(step)}\n".encode())

    def note(self, noted: Noted) -> None:
        """Have the function's calls noted."""
        module, _, of_class = noted.owner.partition(":")
        owner = importlib.import_module(module)
        owner = getattr(owner, of_class) if of_class else owner
        call = getattr(owner, noted.function)

        @functools.wraps(call)
        def with_note(*arguments: Any, **named: Any) -> Any:
            begin_s = time.time()
            try:
                return call(*arguments, **named)
            finally:
                if time.time() - begin_s >= noted.least_s:
                    self.add(noted.name, begin_s, noted.parts(*arguments, **named))

        setattr(owner, noted.function, with_note)

    def collected(self, phase: str, found: Mapping[str, int]) -> None:
        if phase == "start":
            self._collecting_s = time.time()
        elif found["generation"] == 2:
            self.add("collect garbage", self._collecting_s)

    def note_lateness(self) -> None:
        """Note when this thread did not get the interpreter, or the processor, at once. The kernel
        tells how long it waited for the processor; the rest it waited for the interpreter.
        """
        status = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        while True:
            begin_s, before = time.time(), int(status.read_text().split()[1])
            time.sleep(TICK_S)
            late_s = time.time() - begin_s - TICK_S
            if late_s >= LATE_S:
                waited_s = (int(status.read_text().split()[1]) - before) / 1e9
                is_processor = waited_s > late_s / 2
                what = "wait for processor" if is_processor else "wait for interpreter"
                self.add(what, begin_s + TICK_S)


def slowest(
    delays: Mapping[str, tuple[float, float]], ours: Iterable[Step], peers: Iterable[Step]
) -> None:
    """Print where the time of these parts went. `delays` maps each part to when the inserter's
    replica had it, and when the follower; the steps are those of both servers.
    """
    steps = [*peers]
    of: defaultdict[str, dict[str, Step]] = defaultdict(dict)
    for step in steps:
        for part in step.parts:
            of[part][step.name] = step
    claimed_there = {
        part: step.end_s for step in ours if step.name == "claim" for part in step.parts
    }
    print(
        "ms since the inserter's replica had the part | what else went on in the follower, ms"
    )
    for part, (here_s, there_s) in delays.items():
        way = _way(steps, of[part], there_s)
        if part in claimed_there:  # a merge, which each replica makes for itself
            way.append((claimed_there[part], "(claimed by the inserter's replica)"))
        line = ", ".join(f"{(at_s - here_s) * 1000:.0f} {what}" for at_s, what in sorted(way))
        print(f"{part} | {line} | {_beside(steps, here_s, there_s)}")


def _way(
    steps: Sequence[Step], own: Mapping[str, Step], there_s: float
) -> list[tuple[float, str]]:
    """When the part came how far on the follower; `own` are the steps that are about it."""
    way = [(there_s, "visible")]
    for name in ("claim", "fetch", "on disk"):
        if name in own:
            way += [(own[name].begin_s, name), (own[name].end_s, f"{name} done")]
    if "claim" in own:
        claimed_s = own["claim"].begin_s
        pulls = [
            one.begin_s for one in steps if one.name == "pull" and one.begin_s <= claimed_s
        ]
        way += [(max(pulls), "pull")] if pulls else []
    return way


def _beside(steps: Iterable[Step], begin_s: float, end_s: float) -> str:
    """How long each kind of step took between these times, the longest first."""
    spent: defaultdict[str, float] = defaultdict(float)
    for step in steps:
        common_s = min(step.end_s, end_s) - max(step.begin_s, begin_s)
        if common_s > 0:
            spent[step.name] += common_s
    longest = sorted(spent.items(), key=lambda one: -one[1])
    return ", ".join(f"{name} {spent_s * 1000:.0f}" for name, spent_s in longest)


def read_steps(path: Path) -> list[Step]:
    return [Step(*json.loads(line)) for line in path.read_text().splitlines()]


def main() -> None:
    notes = _Notes(sys.argv.pop(1))
    for noted in FUNCTIONS:
        notes.note(noted)
    gc.callbacks.append(notes.collected)
    threading.Thread(target=notes.note_lateness, name="late", daemon=True).start()
    from rmt_pipeline.cli.main import main as rmt  # after they are replaced

    rmt()


if __name__ == "__main__":
    main()
