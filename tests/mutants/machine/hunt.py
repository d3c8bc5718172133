"""Plant a bug in a forked copy of this process, run the tests of its line, see who notices."""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutants.machine.sites import Site, planted
from tests.mutants.machine.tests_of_lines import OPTIONS, ROOT, TestsOfLines

HEAVY = (
    *("numpy", "pandas", "pyarrow", "pyarrow.dataset", "pyarrow.parquet", "duckdb", "greenlet"),
    *(
        "_hypothesis_pytestplugin",
        "hypothesis.stateful",
        "hypothesis.internal.conjecture.engine",
    ),
    *("xdist.plugin", "anyio.pytest_plugin", "kazoo.client", "pydantic", "structlog", "click"),
    *("unittest.mock", "asyncio", "readline", "pygments.lexers.python", "rich.console"),
)
"""Imported once, before the forks; what is ours is imported anew in each."""
REWRITTEN_ALREADY = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
"""What pytest would say of plugins among them."""
TESTS_S = 20.0
HUNG_S = 60
"""Of processor time, so that a busy machine makes nobody hang."""
WAITS_S = 60.0
"""Of none at all, and it waits for ever."""
SEEDS = 20


@dataclass(frozen=True, slots=True)
class Verdict:
    """`noticed_by` is a test's id, "hung", "no import"; "" when the bug survived."""

    site: Site
    noticed_by: str
    seconds: float


class _PlantedModule(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module with a bug in it; everything else as it is."""

    def __init__(self, site: Site) -> None:
        path = ROOT / site.file
        self._path = path
        self._name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        self._code = compile(planted(path.read_text(), site), str(path), "exec")

    def find_spec(
        self, fullname: str, _path: object, _target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        return importlib.util.spec_from_file_location(fullname, self._path, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        exec(self._code, module.__dict__)


class _FirstFailure:
    """Tells the parent which test failed first."""

    def __init__(self, channel: int) -> None:
        self._channel = channel

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            os.write(self._channel, report.nodeid.encode()[:500])


def warm_up() -> None:
    """Import what is heavy and not ours, so that each fork begins with it."""
    for name in HEAVY:
        importlib.import_module(name)


def hunt(site: Site, tests: TestsOfLines) -> Verdict:
    """Who notices this bug: first the tests of its line, then worlds of the simulation."""
    began = time.perf_counter()
    plant = _PlantedModule(site)
    chosen = tests.running(site.file, site.line, TESTS_S)
    noticed = _in_fork(plant, chosen) if chosen else ""
    if not noticed:
        noticed = _in_fork(plant, ())
    return Verdict(site, noticed, time.perf_counter() - began)


def canary(tests: TestsOfLines) -> str:
    """Without any bug nobody may notice anything: who did all the same."""
    some = sorted(tests.seconds, key=lambda test: tests.seconds[test])
    return _in_fork(None, some[:: max(1, len(some) // 300)]) or _in_fork(None, ())


def _in_fork(plant: _PlantedModule | None, chosen: Sequence[str]) -> str:
    """Who noticed; empty when everything passes."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.setsid()
        _become(plant, chosen, writing)
    os.close(writing)
    try:
        return _wait(child, reading)
    finally:
        os.close(reading)


def _wait(child: int, reading: int) -> str:
    said = b""
    used_s, since = 0.0, time.monotonic()
    while True:
        ready, _, _ = select.select([reading], [], [], 1.0)
        if ready:
            got = os.read(reading, 65536)
            if not got:
                break
            said += got
        if (now_s := _processor_s(child)) != used_s:
            used_s, since = now_s, time.monotonic()
        elif time.monotonic() - since > WAITS_S:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return said.decode() or "hung"
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    unsaid = "" if code == 0 else "hung" if code == -signal.SIGXCPU else "no import"
    return said.decode() or unsaid


def _processor_s(process: int) -> float:
    """How much it has used. Where there is no /proc, as much as time has passed."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return time.monotonic()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _become(plant: _PlantedModule | None, chosen: Sequence[str], channel: int) -> None:
    """The child: never returns."""
    code = 1
    resource.setrlimit(resource.RLIMIT_CPU, (HUNG_S, HUNG_S + 1))
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        if plant is not None:
            sys.meta_path.insert(0, plant)
        if chosen:
            code = int(
                pytest.main(
                    [*OPTIONS, *REWRITTEN_ALREADY, "-x", *chosen],
                    plugins=[_FirstFailure(channel)],
                )
            )
        else:
            code = _seeds(channel)
    except BaseException as error:  # noqa: BLE001  whatever it is, the bug was noticed
        os.write(channel, f"no import: {error!r}".encode()[:300])
    finally:
        os._exit(min(code, 255))


def _seeds(channel: int) -> int:
    from tests.simulation import run  # noqa: PLC0415  with the bug in it
    from tests.support.schedule import Swarm  # noqa: PLC0415

    for seed in range(1, SEEDS + 1):
        if run.failure_of(Swarm(seed)) is not None:
            os.write(channel, f"simulation, seed {seed}".encode())
            return 1
    return 0


def every_site(rooms: Sequence[str]) -> list[Site]:
    """Of every module of these folders, in the order of the files."""
    from tests.mutants.machine.sites import sites_of  # noqa: PLC0415

    files = sorted(path for room in rooms for path in Path(ROOT, room).rglob("*.py"))
    return [
        site
        for path in files
        for site in sites_of(path.read_text(), str(path.relative_to(ROOT)))
    ]
