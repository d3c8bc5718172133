"""Two tables beside each other, of which one takes a partition of the other."""

from dataclasses import dataclass, replace

from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import Engine
from tests.support.local_replicas import Replicas, partitioned
from tests.support.partitioned import insert, work

NOW = QuerySettings(alter_sync=0, receive_timeout=0)
SOON = QuerySettings(alter_sync=0)


def source_of(replica):
    engine = Engine("MergeTree", "/tables/s", replica)
    return replace(partitioned(replica), name="s", engine=engine)


@dataclass
class Two:
    """The table `s`, and `t` beside it."""

    s: Replicas
    t: Replicas

    def replace(self, partition="1", at="r1", settings=NOW):
        return self.t.table(at).replace_partition(
            partition, self.s.table(at), settings=settings
        )

    def attach(self, partition="1", at="r1", settings=NOW):
        return self.t.table(at).attach_partition(partition, self.s.table(at), settings=settings)

    def move(self, partition="1", at="r1", settings=NOW):
        return self.s.table(at).move_partition(partition, self.t.table(at), settings=settings)


def filled(two, *, s=((1, 10), (1, 11)), t=((1, 1), (2, 2))):
    for pair in s:
        insert(two.s, pair)
    for pair in t:
        insert(two.t, pair)
    work(two.s)
    work(two.t)
