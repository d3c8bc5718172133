"""Plant a bug in a forked copy of this process, run the tests of its line, see who notices.

Tests are imported and collected once. A bug in a function is planted by giving the function
other code. What is done when a module is imported needs a process that imports it anew.
"""

import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import pytest

from rmt_pipeline.processes.guardian import die_with
from tests.mutants.machine.planting import Garden, PlantedModule
from tests.mutants.machine.probes import Probes
from tests.mutants.machine.sites import Site, sites_of
from tests.mutants.machine.tests_of_lines import (
    ROOMS,
    ROOT,
    ByLine,
    failures,
    fork_that_ends_with_us,
    measure,
    one_after_another,
)

NO_OTHER_PROCESS = "not zookeeper and not spark and not dagster and not browser and not slow"
OPTIONS = ("-qq", "-s", "-p", "no:cacheprovider", "-m", NO_OTHER_PROCESS)
TESTS_S = 20.0
"""Of processor time, as they usually take, for each bug, unless another time is said."""
SLOWER = 10.0
HUNG_S = 5.0
"""Who uses this and so many times what it usually takes is in a loop without an end."""
WAITS_S = 120.0
"""Who uses no processor time for so long waits for ever."""
ANEW_S = 300.0
"""Of processor time, for what imports everything anew."""
TALKS = (
    "access",
    "connect",
    "four_letters",
    "kazoo_keeper",
    "sasl",
    "session",
    "strays",
    "watches",
)
"""Modules of `zookeeper/` that talk to a real one, or live by what it says: these tests are asked
besides those that name the module.
"""
TALKING = (
    "tests/contract/test_keeper_contract.py",
    "tests/zookeeper/test_connect.py",
    "tests/zookeeper/test_lost_answers.py",
    "tests/zookeeper/test_access.py",
)
WITH_SERVERS = ("tests/contract", "tests/zookeeper", "tests/dagster")
"""Lanes of which files that import the module of a bug are asked about it, with real servers."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`noticed_by` is a test's id; "" when the bug survived."""

    site: Site
    noticed_by: str
    seconds: float


@dataclass(slots=True)
class _Child:
    """One bug under way; `used` is its processor time when it was last seen to use some."""

    site: Site
    process: int
    channel: int
    began: float
    used: float = 0.0
    since: float = 0.0


class Hunter:
    """A plugin of pytest: when the tests are collected it hunts, instead of running them."""

    def __init__(
        self,
        measured: Path,
        sites: Sequence[Site],
        processes: int,
        *,
        tests_s: float = TESTS_S,
    ) -> None:
        self._measured = measured
        self._sites = sites
        self._processes = processes
        self._tests_s = tests_s
        self.verdicts: list[Verdict] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """A property that notices a bug does not look for the smallest example of it."""
        from hypothesis import Phase, settings  # noqa: PLC0415  pytest rewrites it first

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("hunt", settings(), phases=phases)
        settings.load_profile("hunt")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        tests = ByLine.load(self._measured) if self._measured.exists() else ByLine()
        garden = Garden()
        if unknown := [item for item in session.items if tests.has_to_measure(item)]:
            probes = Probes.of(every_site(ROOMS), garden)
            for of_one_file in measure(unknown, probes, self._processes):
                tests.add(of_one_file)
                tests.save(self._measured)
        items = {item.nodeid: item for item in session.items}
        tests.not_measured = [test for test in items if test not in tests.seconds]

        def start(site: Site) -> _Child:
            plant = garden.plant(site)
            chosen = tests.running(site.file, site.line, self._tests_s, items)
            if plant is None:
                return _forked(site, lambda channel: _anew(site, chosen, channel))
            some = [(items[test], tests.usually_s(test)) for test in chosen]

            def become(channel: int) -> None:
                plant.grow()
                _ask(some, channel)

            return _forked(site, become)

        self.verdicts = _told(_hunt(self._sites, start, self._processes))
        return True


def with_servers(sites: Sequence[Site]) -> list[Verdict]:
    """Ask the tests with real servers that import the module of each bug: one at a time, as each
    starts servers of its own.
    """

    def start(site: Site) -> _Child:
        return _forked(site, lambda channel: _anew(site, _with_servers(site), channel))

    return _told(_hunt(sites, start, processes=1))


def _told(verdicts: Iterable[Verdict]) -> list[Verdict]:
    told = []
    for verdict in verdicts:
        told.append(verdict)
        said = verdict.noticed_by or "SURVIVED"
        site = verdict.site
        print(f"{verdict.seconds:5.1f} s  {site.line}  {site.name}  |  {said}", flush=True)
    return told


def _hunt(
    sites: Iterable[Site], start: Callable[[Site], _Child], processes: int
) -> Iterator[Verdict]:
    """Each bug in a child, so many at once."""
    waiting = iter(sites)
    under_way: list[_Child] = []
    while True:
        while len(under_way) < processes and (site := next(waiting, None)):
            under_way.append(start(site))
        if not under_way:
            return
        select.select([child.channel for child in under_way], [], [], 0.2)
        for child in list(under_way):
            noticed = _ended(child)
            if noticed is not None:
                under_way.remove(child)
                os.close(child.channel)
                yield Verdict(child.site, noticed, time.monotonic() - child.began)


def _forked(site: Site, become: Callable[[int], None]) -> _Child:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    process = fork_that_ends_with_us(lambda: _be(become, writing))
    os.close(writing)
    now = time.monotonic()
    return _Child(site, process, reading, now, since=now)


def _be(become: Callable[[int], None], channel: int) -> None:
    try:
        become(channel)
    except BaseException as error:  # noqa: BLE001  whatever it is, the bug was noticed
        os.write(channel, f"raised {error!r}".encode()[:300])


def _talks(site: Site) -> bool:
    return site.file in {f"rmt_pipeline/zookeeper/{name}.py" for name in TALKS}


def _with_servers(site: Site) -> list[str]:
    """Files of tests that import the module, and those of what talks to a ZooKeeper."""
    module = ".".join(Path(site.file).with_suffix("").parts)
    files = sorted(path for lane in WITH_SERVERS for path in Path(ROOT, lane).glob("test_*.py"))
    naming = [
        str(path.relative_to(ROOT))
        for path in files
        if f"from {module} import " in path.read_text()
    ]
    return [*dict.fromkeys([*naming, *(TALKING if _talks(site) else ())])]


def _ask(tests: Sequence[tuple[pytest.Item, float]], channel: int) -> None:
    """Who notices first. Of a process with another bug nothing but the name comes back."""
    asked = ""

    def hung(_number: int, _frame: FrameType | None) -> None:
        os.write(channel, f"{asked} (hung)".encode()[:500])
        os._exit(0)

    signal.signal(signal.SIGPROF, hung)
    seconds = dict(tests)
    for item, following in one_after_another(list(seconds)):
        asked = item.nodeid
        signal.setitimer(signal.ITIMER_PROF, HUNG_S + SLOWER * seconds[item])
        if failures(item, following):
            os.write(channel, asked.encode()[:500])
            return


def _anew(site: Site, chosen: Sequence[str], channel: int) -> None:
    """In a new process, which imports the module with the bug."""
    if not chosen:
        return
    limit, parent = int(ANEW_S), os.getpid()

    def limited() -> None:
        die_with(parent)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))

    command = [sys.executable, "-m", "tests.mutants.machine", "--plant", site.name]
    ended = subprocess.run(
        [*command, *chosen],
        cwd=ROOT,
        check=False,
        preexec_fn=limited,
    )
    if ended.returncode:
        os.write(channel, b"a process that imports it anew")


def run_planted(site: Site, chosen: Sequence[str]) -> int:
    """What `_anew` starts. Who asks tests with servers names them by their files."""
    PlantedModule(site).grow()
    by_file = any("::" not in test for test in chosen)
    options = [*OPTIONS[: OPTIONS.index("-m")], "-m", "not slow"] if by_file else OPTIONS
    return int(pytest.main([*options, "-x", *chosen]))


def _ended(child: _Child) -> str | None:
    """Who noticed, "" when nobody did; None while it goes on."""
    gone, _ = os.waitpid(child.process, os.WNOHANG)
    if not gone:
        used = _processor_s(child.process)
        now = time.monotonic()
        if used != child.used:
            child.used, child.since = used, now
        if now - child.since < WAITS_S:
            return None
    with suppress(ProcessLookupError):  # whatever it has left
        os.killpg(child.process, signal.SIGKILL)
    if not gone:
        os.waitpid(child.process, 0)
    try:
        return os.read(child.channel, 65536).decode() or ("" if gone else "waits for ever")
    except BlockingIOError:
        return "" if gone else "waits for ever"


def _processor_s(process: int) -> float:
    """What it and its children have used. Where there is no /proc, the time."""
    place = Path(f"/proc/{process}")
    try:
        fields = (place / "stat").read_text().rpartition(")")[2].split()
        children = (place / "task" / str(process) / "children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return time.monotonic()
    living_s = sum(_processor_s(int(child)) for child in children)
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") + living_s


def every_site(rooms: Sequence[str]) -> list[Site]:
    """Of every module of these folders, in the order of the files."""
    files = sorted(path for room in rooms for path in Path(ROOT, room).rglob("*.py"))
    return [
        site
        for path in files
        for site in sites_of(path.read_text(), str(path.relative_to(ROOT)))
    ]
