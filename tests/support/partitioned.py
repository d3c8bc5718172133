"""Rows `(p, n)` of replicas of a table with a partition for each `p`."""

from collections.abc import Sequence
from typing import Any

from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.insert.result import InsertResult
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.replica.work.step import PartDone
from rmt_pipeline.zookeeper.keeper import Create, Op
from tests.support.local_replicas import Replicas

Pair = tuple[int, int]


def dicts(pairs: Sequence[Pair]) -> list[dict[str, int]]:
    return [{"p": p, "n": n} for p, n in pairs]


def insert(replicas: Replicas, *pairs: Pair, at: str = "r1", **options: Any) -> InsertResult:
    return replicas.table(at).insert(dicts(pairs), **options)


def work(replicas: Replicas, *names: str) -> list[PartDone]:
    """Until nothing is left to do on these, else on all; nothing fails."""
    done = replicas.work_off(*names)
    assert all(not one.error for one in done), done
    return done


def merge(replicas: Replicas) -> None:
    """All parts of partition 1, on every replica."""
    replicas.table("r1").optimize("1", final=True, settings=QuerySettings(alter_sync=0))
    work(replicas)


def clean_up(replicas: Replicas) -> None:
    """Until everything that is old is gone."""
    for _ in range(3):
        replicas.clock.passed_s += 10_000
        for name in ("r1", "r2"):
            carry_out(replicas[name], plan_clean_up(replicas[name]))


def rows(replicas: Replicas, name: str = "r1") -> list[Pair]:
    found = replicas.table(name).dataset().to_table().to_pylist()
    return sorted((row["p"], row["n"]) for row in found)


def on_disk(replicas: Replicas, name: str) -> list[str]:
    return [str(part) for part in replicas.stores[name].parts()]


def swaps(op: Op) -> bool:
    """The multi that decides a replacement."""
    return isinstance(op, Create) and b"REPLACE_RANGE" in op.data
