"""Rows `(p, n)` of replicas of a table with a partition for each `p`."""

from collections.abc import Sequence
from typing import Any

from rmt_pipeline.replica.insert.result import InsertResult
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


def rows(replicas: Replicas, name: str = "r1") -> list[Pair]:
    found = replicas.table(name).dataset().to_table().to_pylist()
    return sorted((row["p"], row["n"]) for row in found)


def on_disk(replicas: Replicas, name: str) -> list[str]:
    return [str(part) for part in replicas.stores[name].parts()]


def swaps(op: Op) -> bool:
    """The multi that decides a replacement."""
    return isinstance(op, Create) and b"REPLACE_RANGE" in op.data
