"""What who restores a replica is told."""

from dataclasses import replace

from rmt_pipeline.replica.life.restoring import Restored


def test_who_restores_is_told_all_that_came_of_it():
    """What can still be done about it is nowhere else."""
    plain = Restored(parts=2, rows=5, inserts=0)
    assert plain.words() == "5 rows in 2 parts of this disk are in ZooKeeper"
    assert "; the rest is cloned from them" in replace(plain, joined=True).words()
    assert (
        replace(plain, opened=True)
        .words()
        .endswith(
            "; the table is open: a DROP or DETACH, a mutation or an ALTER that no replica had "
            "carried out is not known any more, and a mutation may be in some parts only: look "
            "at the rows, and say it again"
        )
    )
    told = Restored(
        parts=2,
        rows=5,
        inserts=3,
        left_out=(("all_1_1_0", "it is broken"),),
        given_up=("all_7_7_0 is on no disk",),
        waits_for=("r2", "r3"),
    )
    assert told.words().split("; ") == [
        "5 rows in 2 parts of this disk are in ZooKeeper",
        "3 inserts are known again",
        "all_1_1_0 was left out: it is broken",
        "all_7_7_0 is on no disk",
        "read-only until it is restored on r2, r3, too",
        "a replica that is gone for good: SYSTEM DROP REPLICA",
    ]
