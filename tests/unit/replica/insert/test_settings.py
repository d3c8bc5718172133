"""What an insert may not ask for yet is refused by name, before anything is staged."""

import pytest

from rmt_pipeline.protocol.errors import NotImplementedStatement
from rmt_pipeline.protocol.settings.setting import BadSetting
from tests.support.local_replicas import Replicas


@pytest.fixture
def replicas(tmp_path):
    with Replicas(tmp_path, ["r1"]) as opened:
        yield opened


@pytest.mark.parametrize(
    ("setting", "value"),
    [("insert_quorum", "2"), ("insert_quorum", "auto")],
)
def test_it_is_not_ignored(replicas, setting, value):
    with pytest.raises(
        NotImplementedStatement, match=f"{setting} = {value} is not supported yet"
    ):
        replicas.table("r1").insert([{"n": 1}], settings={setting: value})
    assert replicas.parts("r1") == []
    assert replicas.stores["r1"].staged() == []


@pytest.mark.parametrize("quorum", ["two", "-1", ""])
def test_a_quorum_of_nonsense_is_an_error(replicas, quorum):
    with pytest.raises(BadSetting, match="neither a number of replicas nor auto"):
        replicas.table("r1").insert([{"n": 1}], settings={"insert_quorum": quorum})


@pytest.mark.parametrize("quorum", ["0", "1"])
def test_a_quorum_of_one_is_whoever_inserts(replicas, quorum):
    result = replicas.table("r1").insert([{"n": 1}], settings={"insert_quorum": quorum})
    assert len(result.parts) == 1
