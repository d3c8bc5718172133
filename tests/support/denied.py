"""A session that ZooKeeper refuses a node."""

from collections.abc import Sequence

from rmt_pipeline.protocol.errors import AccessDenied
from rmt_pipeline.zookeeper.keeper import Keeper, Stat
from rmt_pipeline.zookeeper.through import ThroughKeeper


class Denied(ThroughKeeper[Keeper]):
    """A session that may not read one node: what is asked with it gets no answer either."""

    def __init__(self, session: Keeper, path: str) -> None:
        super().__init__(session)
        self._path = path

    def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        if self._path in paths:
            raise AccessDenied(f"ZooKeeper refuses {self._path}")
        return self.session.get_many(paths)
