"""Fixtures that several lanes need. What one lane needs lives beside its tests."""

import gc
import itertools
import os
import re
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from examples.flights.ports import free_port
from rmt_pipeline.config import Config, load_config
from rmt_pipeline.processes.zookeeper import EmbeddedZooKeeper
from rmt_pipeline.system import SystemClock
from rmt_pipeline.zookeeper.kazoo_keeper import KazooKeeper
from rmt_pipeline.zookeeper.keeper import Keeper
from tests.support import spark_classes
from tests.support.fake_keeper import FakeKeeper, FakeZooKeeper
from tests.support.lasting import lasting
from tests.support.time_limit import time_limit

# A property holds or not, whatever else the machine does meanwhile: examples have no time limit.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

# Tests ask little of the many JVMs that they start: the second compiler would take a third of all
# processor time for what ends before it pays, and a collector with threads some of it.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
spark_classes.use()

# Nor compile, in each of the hundreds of Pythons that they start, all that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Who is started in the background ignores Ctrl-C, and so does all that he starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What is imported never becomes garbage: the collector need not look at it all the time.
gc.set_threshold(100_000, 20, 10)

_chroots = itertools.count()


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    """One real server for the whole run, on a free port. Its data may die with the machine."""
    directory: Path = tmp_path_factory.mktemp("zookeeper")
    with EmbeddedZooKeeper(directory, free_port(), force_sync=False) as server:
        yield server


@pytest.fixture(scope="session")
def two_servers(
    zookeeper_server: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Config]:
    """`rmt serve --server r1 --work` and r2's, each with a Spark, which takes longer to start than
    the tests take: one pair for the whole run. Whoever makes a table there drops it.
    """
    # Imported here: most tests need neither servers nor statements.
    from tests.golden.cluster import running_servers  # noqa: PLC0415

    with running_servers(tmp_path_factory.mktemp("two"), zookeeper_server.hosts) as file:
        yield load_config(file)


@pytest.fixture
def chroot() -> str:
    """A part of the shared server's tree that no other test uses."""
    return f"/test-{next(_chroots)}"


class Sessions:
    """Opens sessions on one tree, and ends them all after the test."""

    def __init__(
        self, connect_one: Callable[[], Keeper], expire_one: Callable[[Keeper], None]
    ) -> None:
        self._connect_one = connect_one
        self._expire_one = expire_one
        self._opened: list[Keeper] = []

    def connect(self) -> Keeper:
        self._opened.append(self._connect_one())
        return self._opened[-1]

    def expire(self, keeper: Keeper) -> None:
        """End the session as ZooKeeper does when it hears nothing; returns when it has."""
        self._expire_one(keeper)

    def close_all(self) -> None:
        for keeper in self._opened:
            keeper.close()


def _fake_sessions() -> Sessions:
    zookeeper = FakeZooKeeper(SystemClock())

    def expire(keeper: Keeper) -> None:
        assert isinstance(keeper, FakeKeeper)
        zookeeper.expire(keeper.session_id)

    return Sessions(zookeeper.connect, expire)


def _real_sessions(server: EmbeddedZooKeeper, chroot: str) -> Sessions:
    def expire(keeper: Keeper) -> None:
        # Imported here: only tests that steal sessions may know kazoo.
        from tests.support.thief import steal_session  # noqa: PLC0415

        assert isinstance(keeper, KazooKeeper)
        steal_session(server.hosts, keeper)

    return Sessions(lambda: lasting(server.hosts, chroot=chroot), expire)


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.zookeeper)])
def sessions(request: pytest.FixtureRequest, chroot: str) -> Iterator[Sessions]:
    """Several sessions on one empty tree: of the fake ZooKeeper, and of a real one."""
    if request.param == "fake":
        opened = _fake_sessions()
    else:
        opened = _real_sessions(request.getfixturevalue("zookeeper_server"), chroot)
    yield opened
    opened.close_all()


@pytest.fixture
def keeper(sessions: Sessions) -> Keeper:
    """One session on an empty tree."""
    return sessions.connect()


@pytest.fixture
def real_keeper(zookeeper_server: EmbeddedZooKeeper, chroot: str) -> Iterator[KazooKeeper]:
    """One session on an empty tree of the real server, whatever its speed."""
    opened = lasting(zookeeper_server.hosts, chroot=chroot)
    yield opened
    opened.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    with time_limit(f"the setup of {item.nodeid}"):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    with time_limit(item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    with time_limit(f"the teardown of {item.nodeid}"):
        return (yield)


SHARED = {"site": "tests/dagster/", "two_servers": "tests/", "connect": "tests/spark/"}
"""Fixtures that start a great deal once for all tests, and where each is one: whoever needs it runs
in one process.
"""
ALONE = ("tests/dagster/test_restarts.py",)
"""Files that need such a fixture, and take minutes in which they wait: beside the others."""


class _ByServers(LoadFileScheduling):
    """File by file; those with the same shared fixture are one."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        if file in ALONE:
            return file
        text = (self.config.rootpath / file).read_text()
        return next((name for name in SHARED if _shares(file, text, name)), file)


def _shares(file: str, text: str, name: str) -> bool:
    """A fixture of its own with the same name is not that."""
    if not file.startswith(SHARED[name]) or f"\ndef {name}(" in text:
        return False
    return re.search(rf"\b{name}\b", text) is not None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(
    config: pytest.Config, log: Producer
) -> LoadFileScheduling | None:
    return _ByServers(config, log) if config.getoption("dist") == "loadfile" else None


INSIDE = ("tidy", "unit", "property", "contract", "crash", "simulation")
SERVERS = ("dagster", "golden", "spark", "zookeeper", "browser")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One lane after the other; within a lane the order is random.

    Lanes that hold ZooKeeper sessions between tests come last: kazoo's threads draw random numbers,
    and hypothesis takes these for a test's own. Of these the longest begins, with its longest file,
    so that the others fill what time it leaves when several processes run them.
    """
    tests = Path(__file__).parent
    lanes = (*INSIDE, *SERVERS)

    def place(item: pytest.Item) -> tuple[int, bool]:
        file = item.path.relative_to(tests)
        return lanes.index(file.parts[0]), f"tests/{file}" not in ALONE

    items.sort(key=place)
