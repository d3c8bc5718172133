"""A table that is dropped while others still work on it, and made again under the same name."""

import pytest

from rmt_pipeline.protocol.errors import Conflict
from rmt_pipeline.zookeeper.keeper import Create
from rmt_pipeline.zookeeper.trees import delete_tree
from tests.conftest import Sessions


class Writer:
    """A session whose listings come with company: somebody writes below `/t` right after."""

    def __init__(self, sessions: Sessions, times: int) -> None:
        self.keeper, self.other = sessions.connect(), sessions.connect()
        self.times = times

    def children_many(self, paths):
        names = self.keeper.children_many(paths)
        if "/t" in paths and self.times:
            self.times -= 1
            self.other.multi([Create(f"/t/late-{self.times}")])
        return names

    def multi_many(self, batches):
        return self.keeper.multi_many(batches)


def test_what_is_written_below_a_node_while_it_goes_goes_too(sessions):
    writer = Writer(sessions, times=5)
    writer.other.multi([Create("/t"), Create("/t/a"), Create("/t/a/b")])
    delete_tree(writer, "/t")
    assert writer.other.exists("/t") is None


def test_a_writer_that_never_stops_is_named(sessions):
    writer = Writer(sessions, times=1_000)
    writer.other.multi([Create("/t"), Create("/t/a")])
    with pytest.raises(Conflict, match="/t can't be removed: another process keeps writing"):
        delete_tree(writer, "/t")
