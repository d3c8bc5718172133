"""Which tests run which lines, and how long each takes: measured once, kept in a file."""

import json
import os
import pickle
import signal
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import pytest

from rmt_pipeline.processes.guardian import die_with

if TYPE_CHECKING:
    from tests.mutants.machine.probes import Probes

ROOT = Path(__file__).resolve().parents[3]
WORLDS = "test_every_promise_holds_in_every_world["
PLAYED = "test_every_scenario_ends_by_itself_when_nothing_goes_wrong["
STRIKES = "test_every_promise_survives_one_fault_anywhere["
"""Not measured: worlds run nearly every line, and those who strike do it in forks. A few are asked
last, of those who strike at scenarios that run a line when they are played.
"""
SCENARIOS = 2
NOT_MEASURED_S = 5.0
MEASURED_S = 20.0
"""Whoever takes longer is not asked."""
ROOMS = ("rmt_pipeline/protocol", "rmt_pipeline/replica", "rmt_pipeline/zookeeper")


@dataclass(slots=True)
class ByLine:
    """By file and line the tests that run it; `seconds` of processor time by test. Only tests
    that pass.
    """

    lines: dict[str, dict[int, list[str]]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    not_measured: list[str] = field(default_factory=list)

    def running(
        self, file: str, line: int, within_s: float, among: Container[str]
    ) -> list[str]:
        """Those of these tests that run this line, for so many seconds, then a few dozen worlds.
        First those that are named after the module, or after its folder, as
        test_settings_against_chdb.py is; then the quickest of all, for a quarter of the time, since
        a table of cases is many quick tests in one file; then the quickest of each file of tests,
        then the second of each: what all run is some file's own matter.

        What no test runs by itself was run when the module was imported: then every test of the
        file counts.
        """
        by_line = self.lines.get(file, {})
        tests = set(by_line.get(line, ()))
        if not tests:
            tests = {test for some in by_line.values() for test in some}
        tests = {test for test in tests if test in among}
        chosen, total_s = [], 0.0
        quickest = sorted(tests, key=lambda one: self.seconds[one])
        own = [
            test
            for name in (f"{Path(file).stem}.py::", Path(file).stem, Path(file).parent.name)
            for test in quickest
            if f"/test_{name}" in test
        ]
        quick = list(self._within(quickest, within_s / 4))
        for test in dict.fromkeys([*own, *quick, *_in_turns(quickest)]):
            total_s += self.seconds[test]
            if total_s > within_s and chosen:
                break
            chosen.append(test)
        played = [test for test in quickest if PLAYED in test][:SCENARIOS]
        strikes = [one.replace(PLAYED, STRIKES) for one in played]
        struck = [test for test in self.not_measured if test in strikes]
        worlds = [test for test in self.not_measured if WORLDS in test]
        return [*chosen, *struck, *worlds[:1]]

    def _within(self, tests: Iterable[str], within_s: float) -> Iterator[str]:
        """The first of these tests, as many as take so long together."""
        total_s = 0.0
        for test in tests:
            total_s += self.seconds[test]
            if total_s > within_s:
                return
            yield test

    def usually_s(self, test: str) -> float:
        return self.seconds.get(test, NOT_MEASURED_S)

    def has_to_measure(self, item: pytest.Item) -> bool:
        test = item.nodeid
        return test not in self.seconds and STRIKES not in test and WORLDS not in test

    def add(self, other: "ByLine") -> None:
        for file, by_line in other.lines.items():
            mine = self.lines.setdefault(file, {})
            for line, tests in by_line.items():
                mine.setdefault(line, []).extend(tests)
        self.seconds |= other.seconds

    def save(self, path: Path) -> None:
        """Tests by their number: each runs thousands of lines."""
        number = {test: at for at, test in enumerate(self.seconds)}
        lines = {
            file: {line: [number[test] for test in tests] for line, tests in by_line.items()}
            for file, by_line in self.lines.items()
        }
        texts = {file: _text(file) for file in lines}
        written = path.with_name(f"{path.name}.new")
        written.write_text(
            json.dumps({"seconds": self.seconds, "lines": lines, "texts": texts})
        )
        written.replace(path)

    @classmethod
    def load(cls, path: Path) -> "ByLine":
        read = json.loads(path.read_text())
        names = list(read["seconds"])
        lines = {}
        for file, by_line in read["lines"].items():
            now = _lines_now(read["texts"][file], _text(file))
            lines[file] = {
                now[int(line)]: [names[at] for at in tests]
                for line, tests in by_line.items()
                if int(line) in now
            }
        return cls(lines, read["seconds"])


def _in_turns(tests: Iterable[str]) -> list[str]:
    """The first of each file, then the second of each."""
    before = Counter[str]()
    turns = []
    for test in tests:
        file = test.partition("::")[0]
        turns.append((before[file], test))
        before[file] += 1
    return [test for _, test in sorted(turns, key=lambda turn: turn[0])]


def _text(file: str) -> str:
    path = ROOT / file
    return path.read_text() if path.exists() else ""


def _lines_now(before: str, after: str) -> dict[int, int]:
    """Where each line of the text that was measured stands now; not those that were changed."""
    matcher = SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    return {
        block.a + offset + 1: block.b + offset + 1
        for block in matcher.get_matching_blocks()
        for offset in range(block.size)
    }


def measure(items: Sequence[pytest.Item], probes: "Probes", processes: int) -> Iterator[ByLine]:
    """Run these tests once, in forks, and look: what came of each file of tests, as soon as it is
    known. Minutes.
    """
    of_file: dict[Path, list[pytest.Item]] = defaultdict(list)
    for item in items:
        of_file[item.path].append(item)
    waiting = iter(of_file.values())
    with tempfile.TemporaryDirectory() as directory:
        under_way: dict[int, Path] = {}
        while True:
            while len(under_way) < processes and (some := next(waiting, None)):
                child = fork_that_ends_with_us(
                    partial(_measure_to, some, probes, Path(directory))
                )
                under_way[child] = Path(directory, str(child))
            if not under_way:
                return
            child, _ = os.wait()
            yield pickle.loads(under_way.pop(child).read_bytes())


def _measure_to(items: Sequence[pytest.Item], probes: "Probes", directory: Path) -> None:
    found = pickle.dumps(_measured(items, probes))
    Path(directory, str(os.getpid())).write_bytes(found)


def fork_that_ends_with_us(do: Callable[[], object]) -> int:
    """A child in a session of its own, which nobody sees or hears: its process."""
    parent = os.getpid()
    if child := os.fork():
        return child
    try:
        os.setsid()
        die_with(parent)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        do()
    finally:
        os._exit(0)


def _measured(items: Sequence[pytest.Item], probes: "Probes") -> ByLine:
    probes.grow()
    measured = ByLine()
    signal.signal(signal.SIGPROF, _too_slow)
    for item, following in one_after_another(items):
        began = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, MEASURED_S)
        probes.ran.clear()
        has_failed = failures(item, following)
        measured.seconds[item.nodeid] = time.process_time() - began
        for file, line in () if has_failed else probes.told():
            measured.lines.setdefault(file, {}).setdefault(line, []).append(item.nodeid)
    signal.setitimer(signal.ITIMER_PROF, 0)
    return measured


def _too_slow(_number: int, _frame: FrameType | None) -> None:
    pytest.fail(f"more than {MEASURED_S} s")


def one_after_another(
    items: Sequence[pytest.Item],
) -> Iterable[tuple[pytest.Item, pytest.Item | None]]:
    return zip(items, [*items[1:], None], strict=False)


class _Listener:
    """Hears which tests did not pass."""

    def __init__(self) -> None:
        self.heard = False

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.heard = self.heard or report.failed or report.skipped


def failures(item: pytest.Item, following: pytest.Item | None) -> bool:
    """Run one test: whether it did not pass."""
    listener = _Listener()
    item.config.pluginmanager.register(listener)
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    item.config.pluginmanager.unregister(listener)
    return listener.heard
