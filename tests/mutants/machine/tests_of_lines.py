"""Which tests run which lines, and how long each takes: measured once, kept in a file."""

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import coverage
import pytest

ROOT = Path(__file__).resolve().parents[3]
ROOMS = ("rmt_pipeline/protocol", "rmt_pipeline/replica", "rmt_pipeline/zookeeper")
LANES = ("tests/unit", "tests/property", "tests/contract", "tests/simulation")
SEEDS = "test_every_promise or test_what_failed_once or planted_bug or each_check"
"""Worlds run nearly every line: they are asked last, see `hunt`."""
NO_OTHER_PROCESS = "not zookeeper and not spark and not dagster and not browser and not slow"
OPTIONS = ("-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-m", NO_OTHER_PROCESS)
QUICK = (*OPTIONS, "-k", f"not ({SEEDS})")


@dataclass(slots=True)
class TestsOfLines:
    """By file and line the tests that run it; `seconds` by test. Only tests that pass."""

    lines: dict[str, dict[int, list[str]]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def running(self, file: str, line: int, within_s: float) -> list[str]:
        """Tests of this line, the quickest first, for so many seconds. What no test runs by
        itself was run when the module was imported: then every test of the file counts.
        """
        by_line = self.lines.get(file, {})
        tests = set(by_line.get(line, ()))
        if not tests:
            tests = {test for several in by_line.values() for test in several}
        chosen, total_s = [], 0.0
        for test in sorted(tests, key=lambda one: self.seconds[one]):
            total_s += self.seconds[test]
            if total_s > within_s and chosen:
                break
            chosen.append(test)
        return chosen

    def save(self, path: Path) -> None:
        path.write_text(json.dumps({"lines": self.lines, "seconds": self.seconds}))

    @classmethod
    def load(cls, path: Path) -> "TestsOfLines":
        read = json.loads(path.read_text())
        lines = {
            file: {int(line): tests for line, tests in by_line.items()}
            for file, by_line in read["lines"].items()
        }
        return cls(lines, read["seconds"])


class _Watcher:
    """A plugin that gives each test a context of its own in the coverage data."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self._measured = measured
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        began = time.process_time()
        self._measured.switch_context(item.nodeid)
        result = yield
        self._measured.switch_context("")
        self.seconds[item.nodeid] = time.process_time() - began
        return result

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed or report.skipped:
            self.failed.add(report.nodeid)


def measure(lanes: tuple[str, ...] = LANES) -> TestsOfLines:
    """Run the lanes once and look. Minutes; call it in a process of its own."""
    measured = coverage.Coverage(
        data_file=None,
        source=[str(ROOT / room) for room in ROOMS],
        config_file=False,
        concurrency=["greenlet", "thread"],
    )
    measured.start()
    watcher = _Watcher(measured)
    pytest.main([*QUICK, *lanes], plugins=[watcher])
    measured.stop()
    data = measured.get_data()
    lines: dict[str, dict[int, list[str]]] = {}
    for file in data.measured_files():
        found: dict[int, list[str]] = defaultdict(list)
        for line, contexts in data.contexts_by_lineno(file).items():
            for test in contexts:
                if test and test not in watcher.failed:
                    found[line].append(test)
        lines[str(Path(file).relative_to(ROOT))] = dict(found)
    return TestsOfLines(lines, watcher.seconds)
