"""What a production server stands on, in a world: its sessions, clocks, threads, files and log."""

import fcntl
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rmt_pipeline.zookeeper.connect as connecting
from rmt_pipeline import system
from rmt_pipeline.catalog import catalog, contents
from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.jobs.mutate import LocalMutator
from rmt_pipeline.config import Config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.work.carry import Tools
from rmt_pipeline.replica.work.loop import work
from rmt_pipeline.server import tasks
from tests.support.cluster import SimWaker
from tests.support.local_replicas import DirectPeers
from tests.support.schedule import Kind
from tests.support.sim_keeper import SimKeeper
from tests.support.world import SESSION_TIMEOUT_S, Process, World

NEVER_S = 1e9
RETRY_S = 0.2


class LivingSession(SimKeeper):
    """As a supervisor wants it."""

    session_timeout_s = SESSION_TIMEOUT_S


class Thread:
    """A task of the process that starts it."""

    world: World

    def __init__(self, target: Callable[[], None], **_: object) -> None:
        self._target, self._is_over, self._has_begun = target, False, False

    def start(self) -> None:
        assert self.world.current is not None
        self._has_begun = True
        self.world.current.process.spawn(self._run)

    def _run(self) -> None:
        try:
            self._target()
        finally:
            self._is_over = True

    def is_alive(self) -> bool:
        return self._has_begun and not self._is_over

    def join(self, timeout_s: float) -> None:
        end_s = self.world.now_s + timeout_s
        while not self._is_over and self.world.now_s < end_s:
            self.world.sleep_s(0.05)


class Log:
    """What servers tell people; a bug that they go on after breaks the world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def info(self, event: str, **about: object) -> None:
        current = self._world.current
        self._world.note(str(current and current.process), event, str(about)[:200])

    warning = debug = info

    def log(self, _level: int, event: str, **about: object) -> None:
        self.info(event, **about)

    def exception(self, event: str, **about: object) -> None:
        self.info(event, **about)
        error = sys.exception()
        assert error is not None
        self._world.breaks(error)


@contextmanager
def within(world: World) -> Iterator[None]:
    """Production code's clocks, ids, wakers, threads, sessions and files are the world's."""

    def process() -> Process:
        assert world.current is not None, "only a task has a session"
        return world.current.process

    def flock(file: Any, how: int) -> None:
        while True:
            try:
                fcntl.flock(file, how | fcntl.LOCK_NB)
            except BlockingIOError:
                if how & fcntl.LOCK_NB:
                    raise
                world.sleep_s(0.01)
            else:
                return

    def stage_file(path: Path, content: bytes) -> Path:
        if world.current is None:
            return staged(path, content)
        name = path.parent.parent.parent.name
        return world.effect(
            process(), Kind.DISK, "stage a file of", name, lambda: staged(path, content)
        )

    staged = contents.stage_file
    log = Log(world)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(system.SystemClock, "now_s", lambda _: world.now_s)
        patch.setattr(system.SystemClock, "monotonic_s", lambda _: world.now_s)
        patch.setattr(system.SystemClock, "sleep_s", lambda _, seconds: world.sleep_s(seconds))
        patch.setattr(system.RandomIds, "new_id", lambda _: world.new_id())
        patch.setattr(
            system.EventWaker, "__init__", lambda self: setattr(self, "sim", SimWaker(world))
        )
        patch.setattr(system.EventWaker, "wake", lambda self: self.sim.wake())
        patch.setattr(system.EventWaker, "wait_s", lambda self, most_s: self.sim.wait_s(most_s))
        patch.setattr(Thread, "world", world, raising=False)
        patch.setattr(tasks, "threading", SimpleNamespace(Thread=Thread, Event=threading.Event))
        patch.setattr(tasks, "LOOK_ANYWAY_S", NEVER_S)  # who misses a watch waits for ever
        patch.setattr(connecting, "connect", lambda *_, **__: LivingSession(process()))
        patch.setattr(contents, "stage_file", stage_file)
        waiting = SimpleNamespace(**{**vars(fcntl), "flock": flock})
        patch.setattr(contents, "fcntl", waiting)
        patch.setattr(catalog, "fcntl", waiting)
        patch.setattr(os, "fsync", lambda _: None)
        for module in ("tasks", "tables", "supervisor"):
            patch.setattr(f"rmt_pipeline.server.{module}.log", log)
        yield


class WorkLoops:
    """What a server works its tables' queues with: they have no rows, but are altered."""

    def __init__(self, world: World, config: Config, name: str) -> None:
        self._world = world
        self._context = ServerContext(config, name, purpose="worker")
        self._going: dict[str, tuple[list[bool], SimWaker]] = {}

    def follow(self, tables: Sequence[TableDefinition]) -> None:
        wanted = {table.uuid: table for table in tables}
        for uuid in self._going.keys() - wanted.keys():
            is_over, waker = self._going.pop(uuid)
            is_over.append(True)
            waker.wake()
        for uuid in wanted.keys() - self._going.keys():
            self._going[uuid] = [], SimWaker(self._world)
            assert self._world.current is not None
            self._world.current.process.spawn(
                lambda uuid=uuid: self._work(
                    wanted[uuid], *self._going.get(uuid, ([True], None))
                )
            )

    def stop(self) -> None:
        self.follow([])

    def _work(
        self, table: TableDefinition, is_over: list[bool], waker: SimWaker | None
    ) -> None:
        assert waker is not None or is_over
        clock = self._context.clock
        assert self._world.current is not None
        spawn = self._world.current.process.spawn
        while not is_over:
            try:
                work(
                    lambda: self._context.replica(table),
                    Tools(DirectPeers({}), LocalMerger(clock), LocalMutator(clock), spawn),
                    "fetch",
                    waker=waker,
                    linger_s=None,
                    on_flush=lambda _: None,
                    should_stop=lambda: bool(is_over),
                )
            except RmtError as error:
                self._world.note(table.full_name, "work paused", str(error)[:200])
            self._world.sleep_s(RETRY_S)
