"""What is made and not published is not left on the disk."""

import errno
from pathlib import Path
from typing import Any

import pytest

from rmt_pipeline.protocol.errors import Unavailable
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.work import mutate
from tests.support.local_replicas import Replicas


@pytest.mark.parametrize(
    "error", [Unavailable("no answer"), OSError(errno.EIO, "input/output error")], ids=repr
)
def test_a_part_of_which_nobody_says_whether_it_is_still_wanted_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """It was mutated; whether the mutation was killed meanwhile, ZooKeeper did not say."""
    with Replicas(tmp_path) as replicas:
        replicas.insert("r1", 1, 2)
        replicas.insert("r1", 1, 3)
        replicas.table("r1").mutate("DELETE WHERE n = 1")
        assert assign_mutations(replicas["r1"])
        right, asked = mutate._killed, list[str]()

        def once(replica: Any, job: Any) -> Any:
            asked.append(job.result)
            if len(asked) == 1:
                raise error
            return right(replica, job)

        monkeypatch.setattr(mutate, "_killed", once)
        done = replicas.step("r1", "merge").done
        assert replicas.stores["r1"].staged() == []
        assert sorted(str(one.part) for one in done) == ["all_0_0_0_2", "all_1_1_0_2"]
        if isinstance(error, Unavailable):
            assert sorted(bool(one.error) for one in done) == [False, True]
        replicas.clock.passed_s += 100
        replicas.work_off("r1")
        found = replicas.table("r1").dataset().to_table().column("n").to_pylist()
        assert sorted(found) == [2, 3]
