"""What this disk has left of a part that nobody else has."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.log.entry import GetPart, MergeParts
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.put_back import PutBack, stage_what_is_left, what_is_left
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.check import check_part
from tests.support.local_replicas import Replicas

PART = PartName("all", 0, 0, 0)
BROUGHT = GetPart(create_time=1, source_replica="r1", part=PART)
MERGED = MergeParts(
    create_time=1, source_replica="r1", sources=(PART,), result=PartName("all", 0, 0, 1)
)


@pytest.fixture
def replica(tmp_path) -> Iterator[Replica]:
    """It has given the part up."""
    with Replicas(tmp_path, ["r1"]) as opened:
        assert opened.insert("r1", 1) == PART
        shutil.rmtree(opened.stores["r1"].directory(PART))
        check_part(opened["r1"], PART)
        yield opened["r1"]


def test_a_part_that_was_given_up_here_is_looked_for_here(replica: Replica) -> None:
    assert what_is_left(replica, BROUGHT) == PutBack(PART)


def test_what_nobody_had_before_is_not_looked_for(replica: Replica) -> None:
    assert what_is_left(replica, MERGED) is None


def test_what_was_looked_for_in_vain_is_looked_for_once(replica: Replica) -> None:
    replica.store.marks.looked_again(PART)
    assert what_is_left(replica, BROUGHT) is None


def test_what_is_whole_here_and_as_promised_is_staged_and_nothing_else(
    tmp_path: Path,
) -> None:
    """Other rows under the part's name, which somebody put there, are not what was promised."""
    with Replicas(tmp_path, ["r1"]) as opened:
        replica, store = opened["r1"], opened.stores["r1"]
        opened.insert("r1", 1)
        right, strange = (
            Path(store.directory(part)) for part in (PART, opened.insert("r1", 2))
        )
        right.rename(tmp_path / "right")
        check_part(replica, PART)
        (tmp_path / "right").rename(right)
        assert stage_what_is_left(replica, "queue-0000000000", PART).manifest.rows == 1
        shutil.rmtree(right)
        shutil.copytree(strange, right)
        with pytest.raises(Corruption, match="is not whole"):
            stage_what_is_left(replica, "queue-0000000000", PART)


def test_what_another_one_has_is_fetched_whatever_is_left_of_it_here(tmp_path: Path) -> None:
    """1. r2 gets what r1's replacement brought, and dies when it has its name, and before it is
    promised. 2. Its bytes break.
    """
    with Replicas(tmp_path) as replicas:
        replicas.insert("r1", 1)
        replicas.work_off()
        table = replicas.table("r1")
        [new] = table.replace([{"n": 2}], partition="all", settings={"alter_sync": 0}).parts
        left = tmp_path / "r2" / str(new)
        shutil.copytree(tmp_path / "r1" / str(new), left)
        (left / "part.json").write_text("{")
        assert [one.error for one in replicas.work_off("r2")] == [""]
        assert replicas.table("r2").dataset().to_table().to_pylist() == [{"n": 2}]
