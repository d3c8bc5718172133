"""A keeper that speaks through another one: whoever extends it says what is different."""

from collections.abc import Sequence
from typing import Generic, TypeVar

from rmt_pipeline.zookeeper.keeper import Keeper, Op, Stat, Watch
from rmt_pipeline.zookeeper.strays import Strays

KeeperT = TypeVar("KeeperT", bound=Keeper)


class ThroughKeeper(Generic[KeeperT]):
    """The `Keeper` protocol, as `session` carries it out."""

    def __init__(self, session: KeeperT) -> None:
        self.session = session

    @property
    def session_id(self) -> int:
        return self.session.session_id

    @property
    def strays(self) -> Strays:
        return self.session.strays

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        return self.session.get(path, watch)

    def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        return self.session.get_many(paths)

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return self.session.exists(path, watch)

    def exists_many(self, paths: Sequence[str]) -> list[Stat | None]:
        return self.session.exists_many(paths)

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return self.session.children(path, watch)

    def children_stat(self, path: str, watch: Watch | None = None) -> tuple[list[str], Stat]:
        return self.session.children_stat(path, watch)

    def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        return self.session.children_many(paths)

    def await_children(self, path: str, watch: Watch) -> bool:
        return self.session.await_children(path, watch)

    def multi(self, ops: Sequence[Op]) -> list[str]:
        return self.session.multi(ops)

    def multi_many(self, multis: Sequence[Sequence[Op]]) -> list[list[str] | Exception]:
        return self.session.multi_many(multis)

    def sync(self, path: str) -> None:
        self.session.sync(path)

    def close(self) -> None:
        self.session.close()
