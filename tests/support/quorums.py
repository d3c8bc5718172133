"""Inserts that wait for a quorum, as tests ask for them."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from rmt_pipeline.exchange.peers import Fetched, FetchRequest
from rmt_pipeline.protocol.errors import Unavailable
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.insert.result import InsertResult
from rmt_pipeline.store.part_store import PartStore
from tests.support.local_replicas import ROOT, DirectPeers, Replicas

QUORUM = f"{ROOT}/quorum"
BRIEFLY = {"insert_quorum": "2", "insert_quorum_timeout": "1000"}
ALONE = {**BRIEFLY, "insert_quorum_parallel": "0"}


def children(replicas: Replicas, path: str) -> set[str]:
    return set(replicas.zookeeper.nodes[f"{QUORUM}/{path}"].children)


def insert(replicas: Replicas, value: int = 1, at: str = "r1", **settings: Any) -> InsertResult:
    asked = {**BRIEFLY, **settings}
    return replicas.table(at).insert([{"n": value}], settings=asked)


def has_rows(replicas: Replicas, name: str) -> list[int]:
    table = replicas.table(name).dataset().to_table()
    return sorted(table.column("n").to_pylist())


def sends_one(monkeypatch: pytest.MonkeyPatch, wanted: PartName) -> None:
    """The other parts are gone from whoever sends them."""
    right = DirectPeers.fetch

    def fetch(
        self: DirectPeers, requests: Sequence[FetchRequest], store: PartStore
    ) -> Iterator[Sequence[Fetched]]:
        for together in right(self, requests, store):
            yield [
                (request, staged if request.part == wanted else Unavailable("gone"))
                for request, staged in together
            ]

    monkeypatch.setattr(DirectPeers, "fetch", fetch)
