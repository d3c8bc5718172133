"""A session in which something happens between two requests: before each one in its turn."""

from collections.abc import Callable, Sequence

from rmt_pipeline.zookeeper.keeper import Keeper, Op, Stat, Watch
from rmt_pipeline.zookeeper.through import ThroughKeeper


class Before(ThroughKeeper[Keeper]):
    """Before the request of this number, of those that are counted, `happens` is called, once;
    `has_come` says whether.
    """

    def __init__(self, session: Keeper, number: int, happens: Callable[..., object]) -> None:
        super().__init__(session)
        self._left = number
        self._happens = happens

    @property
    def has_come(self) -> bool:
        return self._left < 0

    def _next(self, *told: object) -> None:
        self._left -= 1
        if self._left == -1:
            self._happens(*told)


class BeforeRequest(Before):
    """Counts every request."""

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        self._next()
        return super().get(path, watch)

    def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        self._next()
        return super().get_many(paths)

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        self._next()
        return super().exists(path, watch)

    def exists_many(self, paths: Sequence[str]) -> list[Stat | None]:
        self._next()
        return super().exists_many(paths)

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        self._next()
        return super().children(path, watch)

    def children_stat(self, path: str, watch: Watch | None = None) -> tuple[list[str], Stat]:
        self._next()
        return super().children_stat(path, watch)

    def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        self._next()
        return super().children_many(paths)

    def multi(self, ops: Sequence[Op]) -> list[str]:
        self._next()
        return super().multi(ops)

    def multi_many(self, multis: Sequence[Sequence[Op]]) -> list[list[str] | Exception]:
        self._next()
        return super().multi_many(multis)


class BetweenAnswers(BeforeRequest):
    """Requests that are sent together are answered one after the other: it may happen between the
    answers.
    """

    def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        found: list[tuple[bytes, Stat] | None] = []
        for path in paths:
            found += super().get_many([path])
        return found

    def exists_many(self, paths: Sequence[str]) -> list[Stat | None]:
        found: list[Stat | None] = []
        for path in paths:
            found += super().exists_many([path])
        return found


class GoneSince(Before):
    """Counts the listings that name anything. What that one names is gone before it is read:
    `happens` is told of the path and the names.
    """

    def _listed(self, path: str, names: list[str] | None) -> None:
        if names:
            self._next(path, names)

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        names = super().children(path, watch)
        self._listed(path, names)
        return names

    def children_stat(self, path: str, watch: Watch | None = None) -> tuple[list[str], Stat]:
        names, stat = super().children_stat(path, watch)
        self._listed(path, names)
        return names, stat

    def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        found = super().children_many(paths)
        for path, names in zip(paths, found, strict=True):
            self._listed(path, names)
        return found
