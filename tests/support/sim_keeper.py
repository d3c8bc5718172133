"""A ZooKeeper session of a simulated process: each request is an effect of the world."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from rmt_pipeline.protocol.errors import OutcomeUnknown, ReplicaRetired
from rmt_pipeline.zookeeper.kazoo_keeper import SETTLE_PAUSE_S
from rmt_pipeline.zookeeper.keeper import Op, Refused, Stat, Watch
from rmt_pipeline.zookeeper.strays import Strays
from tests.support.fake_keeper import Node
from tests.support.schedule import Kind
from tests.support.world import Process

T = TypeVar("T")


class SimKeeper:
    """The `Keeper` protocol. Requests get lost, are answered late, or find the session over."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._world = process.world
        self._session = process.world.connect(process)
        self.strays = Strays(self._see_to_strays)
        self._is_settling = False

    @property
    def session_id(self) -> int:
        return self._session.session_id

    @property
    def is_retired(self) -> bool:
        return self._session.is_retired

    def on_retired(self, callback: Callable[[], None]) -> None:
        self._session.on_retired(callback)

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        return self._read("get", path, lambda: self._session.get(path, watch))

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return self._read("exists", path, lambda: self._session.exists(path, watch))

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return self._read("children", path, lambda: self._session.children(path, watch))

    def children_stat(self, path: str, watch: Watch | None = None) -> tuple[list[str], Stat]:
        return self._read("children", path, lambda: self._session.children_stat(path, watch))

    def await_children(self, path: str, watch: Watch) -> bool:
        return self._read("await", path, lambda: self._session.await_children(path, watch))

    def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        return self._read_many("get", paths, self._session.get_many)

    def exists_many(self, paths: Sequence[str]) -> list[Stat | None]:
        return self._read_many("exists", paths, self._session.exists_many)

    def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        return self._read_many("children", paths, self._session.children_many)

    def sync(self, path: str) -> None:
        self._read("sync", path, lambda: self._session.sync(path))

    def multi(self, ops: Sequence[Op]) -> list[str]:
        self.strays.settle(self)
        what = " ".join([type(op).__name__ for op in ops]) if len(ops) < 4 else "multi"
        return self._world.effect(
            self._process,
            Kind.WRITE,
            what,
            ops[-1].path,
            lambda: self._commit(ops),
            session=self._session,
            late=lambda: self._delay(ops),
        )

    def multi_many(self, multis: Sequence[Sequence[Op]]) -> list[list[str] | Exception]:
        """When one has no answer, the connection broke: those behind it have none either."""
        results: list[list[str] | Exception] = []
        broken = False
        for ops in multis:
            try:
                if broken:
                    if self._world.rng.random() < 0.5:
                        self._delay(ops)
                    raise OutcomeUnknown("no answer")  # noqa: TRY301
                results.append(self.multi(ops))
            except (Refused, ReplicaRetired, OutcomeUnknown) as error:
                broken = broken or isinstance(error, OutcomeUnknown)
                results.append(error)
        return results

    def node_seen(self, path: str) -> Node | None:
        """For assertions: as this session saw it last. No request, and nothing happens."""
        return self._session.node_seen(path)

    def close(self) -> None:
        if self._process.is_alive:
            self._world.expire(self._session)

    def _see_to_strays(self) -> None:
        """As the production keeper's thread does: its owner may never ask for anything again."""
        if not self._is_settling:
            self._is_settling = True
            self._process.spawn(self._settle_unasked)

    def _settle_unasked(self) -> None:
        while self.strays and not self.is_retired:
            self._world.sleep_s(SETTLE_PAUSE_S)
            self.strays.settle(self)
        self._is_settling = False

    def _read(self, what: str, path: str, act: Callable[[], T]) -> T:
        self.strays.settle(self)
        return self._world.effect(
            self._process, Kind.READ, what, path, act, session=self._session
        )

    def _read_many(
        self, what: str, paths: Sequence[str], act: Callable[[Sequence[str]], list[T]]
    ) -> list[T]:
        """Pipelined, and so not one snapshot: others may come in between."""
        if not paths:
            return []
        rng = self._world.rng
        if len(paths) == 1 or rng.random() >= self._world.schedule.switch:
            return self._read(what, paths[0], lambda: act(paths))
        cut = rng.randint(1, len(paths) - 1)
        found = self._read(what, paths[0], lambda: act(paths[:cut]))
        self._world.pause()
        return found + self._read(what, paths[cut], lambda: act(paths[cut:]))

    def _commit(self, ops: Sequence[Op]) -> list[str]:
        self._world.land_late(self._session)
        return self._session.multi(ops)

    def _delay(self, ops: Sequence[Op]) -> None:
        self._world.late_writes.setdefault(self.session_id, deque()).append(ops)
