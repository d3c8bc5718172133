"""A peer of ours that lies: what it says of its rows is what ZooKeeper has, and they are others."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.jobs.mutate import LocalMutator
from rmt_pipeline.exchange.peers import Fetched, FetchRequest
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.work.execute import Executor, Tools
from rmt_pipeline.store import parquet
from rmt_pipeline.store.part_store import PartStore
from tests.support.local_replicas import DirectPeers, Replicas


class Liar(DirectPeers):
    """Sends this file for every part, and the manifest of the true one but for the file."""

    def __init__(self, replicas: Replicas, file: bytes) -> None:
        super().__init__(replicas.stores)
        self._file = file

    def fetch(
        self, requests: Sequence[FetchRequest], store: PartStore
    ) -> Iterator[Sequence[Fetched]]:
        for request in requests:
            true = self._stores["r1"].manifest(request.part)
            staging = store.begin("fetch", str(request.part))
            written = staging.write(true.files[0].name, self._file)
            size = len(self._file)
            lie = replace(true, files=(written,), bytes_on_disk=size)
            yield [(request, staging.seal(lie))]


def fetched_from_liar(replicas: Replicas, file: bytes) -> str:
    """The error that r2 has then; "" when it takes the part."""
    replicas.insert("r1", 1, 2, 3)
    pull_log(replicas["r2"])
    clock = replicas.clock
    tools = Tools(Liar(replicas, file), LocalMerger(clock), LocalMutator(clock))
    step = Executor(replicas["r2"], tools, "fetch").step(None)
    return "".join(done.error for done in step.done)


def bytes_of(table: pa.Table, codec: str = "") -> bytes:
    return b"".join(parquet.chunks_of(parquet.to_parquet(table, codec=codec)))


def column(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.uint64())})


@pytest.mark.parametrize(
    "lie",
    [
        lambda: bytes_of(column(1, 2, 4)),
        lambda: bytes_of(column(1, 2)),
        lambda: bytes_of(column(3, 2, 1)),
        lambda: bytes_of(column(1, 2, 3).rename_columns(["m"])),
        lambda: b"PAR1 none",
        lambda: b"",
    ],
    ids=["another row", "a row less", "another order", "another column", "no file", "nothing"],
)
def test_other_rows_than_promised_are_never_visible(tmp_path, lie: Callable[[], bytes]):
    with Replicas(tmp_path) as replicas:
        error = fetched_from_liar(replicas, lie())
        assert "not those that the manifest claims" in error
        assert replicas.parts("r2") == []
        assert replicas.stores["r2"].staged() == []
        replicas.clock.sleep_s(120)
        replicas.work_off("r2")
        assert replicas.parts("r2") == replicas.parts("r1")


def test_the_same_rows_stored_otherwise_are_taken(tmp_path):
    with Replicas(tmp_path) as replicas:
        assert fetched_from_liar(replicas, bytes_of(column(1, 2, 3), "LZ4")) == ""
        assert replicas.parts("r2") == replicas.parts("r1")
        assert replicas.table("r2").dataset().to_table()["n"].to_pylist() == [1, 2, 3]
