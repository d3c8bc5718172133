"""What an insert asks for is refused by name before anything is staged, when it is nonsense."""

import pytest

from rmt_pipeline.protocol.settings.setting import BadSetting
from tests.support.local_replicas import Replicas


@pytest.fixture
def replicas(tmp_path):
    with Replicas(tmp_path, ["r1"]) as opened:
        yield opened


@pytest.mark.parametrize("quorum", ["two", "-1", ""])
def test_a_quorum_of_nonsense_is_an_error(replicas, quorum):
    with pytest.raises(BadSetting, match="neither a number of replicas nor auto"):
        replicas.table("r1").insert([{"n": 1}], settings={"insert_quorum": quorum})
    assert replicas.stores["r1"].staged() == []


@pytest.mark.parametrize("quorum", ["0", "1", "auto"])
def test_a_quorum_of_one_is_whoever_inserts(replicas, quorum):
    """auto is the majority, and the table has one replica."""
    result = replicas.table("r1").insert([{"n": 1}], settings={"insert_quorum": quorum})
    assert len(result.parts) == 1
    assert replicas.zookeeper.nodes["/tables/t/quorum/parallel"].children == set()


def test_the_window_of_tables_of_one_copy_is_not_that_of_a_replicated_one(replicas):
    replicas.set(non_replicated_deduplication_window=1, replicated_deduplication_window=2)
    replica = replicas["r1"]
    assert (replica.has_own_window, replica.deduplication_window) == (False, 2)
