"""A peer of ours that lies: what it says of its rows is what ZooKeeper has, and they are others."""

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.jobs.mutate import LocalMutator
from rmt_pipeline.exchange.peers import Fetched, FetchRequest
from rmt_pipeline.protocol.nodes.formats import PartHeader, ReplicaAddress
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.claims import Holder
from rmt_pipeline.replica.publish import publish
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.work.carry import Tools
from rmt_pipeline.store import parquet
from rmt_pipeline.store.manifest import KeyBound
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.zookeeper.keeper import SetData
from rmt_pipeline.zookeeper.snapshot import queue_snapshot
from tests.support.executor import Executor
from tests.support.local_replicas import DirectPeers, Replicas


class Liar(DirectPeers):
    """Sends this file for every part (None: the true one), and the manifest of the true one but for
    the file and these claims.
    """

    def __init__(self, replicas: Replicas, file: bytes | None, **claims: Any) -> None:
        super().__init__(replicas.stores)
        self._file = file
        self._claims = claims

    def fetch(
        self, requests: Sequence[FetchRequest], store: PartStore
    ) -> Iterator[Sequence[Fetched]]:
        for request in requests:
            true = self._stores["r1"].manifest(request.part)
            staging = store.begin("fetch", str(request.part))
            [name] = [file.name for file in true.files]
            path = f"{self._stores['r1'].directory(request.part)}/{name}"
            file = Path(path).read_bytes() if self._file is None else self._file
            written = staging.write(name, file)
            lie = replace(true, files=(written,), bytes_on_disk=len(file), **self._claims)
            yield [(request, staging.seal(lie))]


def fetched_from_liar(replicas: Replicas, file: bytes | None, **claims: Any) -> str:
    """The error that r2 has then; "" when it takes the part."""
    replicas.insert("r1", 1, 2, 3)
    pull_log(replicas["r2"])
    clock = replicas.clock
    tools = Tools(Liar(replicas, file, **claims), LocalMerger(clock), LocalMutator(clock))
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


def test_another_part_under_its_name_is_never_visible(tmp_path):
    """It is whole, and all that its manifest says of it is true."""
    with Replicas(tmp_path) as replicas, Replicas(tmp_path / "other") as others:
        part = replicas.insert("r1", 1, 2, 3)
        assert others.insert("r1", 1, 2, 4) == part
        theirs = replicas.stores["r1"].directory(part)
        shutil.rmtree(theirs)
        shutil.copytree(others.stores["r1"].directory(part), theirs)
        [done] = replicas.step("r2", "fetch").done
        # Where r1 takes files of the same moment for its own, it sends its own manifest.
        assert re.search("their rows differ|data-00000.parquet has hash", done.error)
        assert replicas.parts("r2") == []
        assert replicas.stores["r2"].staged() == []


def test_the_same_rows_stored_otherwise_are_taken(tmp_path):
    with Replicas(tmp_path) as replicas:
        assert fetched_from_liar(replicas, bytes_of(column(1, 2, 3), "LZ4")) == ""
        assert replicas.parts("r2") == replicas.parts("r1")
        assert replicas.table("r2").dataset().to_table()["n"].to_pylist() == [1, 2, 3]


def test_a_footer_that_hides_a_row_is_never_believed(tmp_path):
    """The promised rows, in a file that only this peer has: a mutation for 3 would ask its footer,
    and pass it by.
    """
    file = bytes_of(column(1, 2, 3), "LZ4")
    start = len(file) - 8 - int.from_bytes(file[-8:-4], "little")
    three, two = (value.to_bytes(8, "little") for value in (3, 2))
    assert three in file[start:]
    lie = file[:start] + file[start:].replace(three, two)
    with Replicas(tmp_path) as replicas:
        error = fetched_from_liar(replicas, lie)
        assert "not those that the manifest claims" in error
        assert replicas.parts("r2") == []


@pytest.mark.parametrize("bounds", [(2, 3), (1, 2), (7, 9)])
def test_bounds_that_rows_are_beyond_are_never_believed(tmp_path, bounds: tuple[int, int]):
    """A mutation would take the part for one without rows for it, and be done."""
    with Replicas(tmp_path) as replicas:
        error = fetched_from_liar(replicas, None, key_bounds=(KeyBound("n", *bounds),))
        assert f"its manifest says {bounds[0]} to {bounds[1]}, its files have 1 to 3" in error
        assert replicas.parts("r2") == []
        assert replicas.stores["r2"].staged() == []
        replicas.clock.sleep_s(120)
        replicas.work_off("r2")
        assert replicas.parts("r2") == replicas.parts("r1")


@pytest.mark.parametrize(
    "bounds",
    [[], [KeyBound("n", None, None)], [KeyBound("n", 0, 4)], [KeyBound("m", 8, 9)]],
    ids=["none", "unknown", "wide", "of no column"],
)
def test_bounds_that_hide_no_row_are_taken(tmp_path, bounds: Sequence[KeyBound]):
    """As other versions may write them."""
    with Replicas(tmp_path) as replicas:
        assert fetched_from_liar(replicas, None, key_bounds=tuple(bounds)) == ""
        assert replicas.parts("r2") == replicas.parts("r1")


@pytest.mark.parametrize("is_stored_otherwise", [False, True])
@pytest.mark.parametrize("version", [7, 2**31 - 1])
def test_another_version_of_the_metadata_than_promised_is_never_believed(
    tmp_path, version: int, is_stored_otherwise: bool
):
    """By it a reader knows which ALTERs came after the part: with another one, rows of a column
    that was dropped come back under the name of a new one, or those of the new one are hidden.
    """
    file = bytes_of(column(1, 2, 3), "LZ4") if is_stored_otherwise else None
    with Replicas(tmp_path) as replicas:
        error = fetched_from_liar(replicas, file, metadata_version=version)
        assert f"metadata version: its manifest says {version}, promised is 0" in error
        assert replicas.parts("r2") == []
        assert replicas.stores["r2"].staged() == []
        replicas.clock.sleep_s(120)
        replicas.work_off("r2")
        assert replicas.parts("r2") == replicas.parts("r1")


@pytest.mark.parametrize("is_stored_otherwise", [False, True])
def test_a_promise_of_before_there_were_versions_in_it_is_kept(
    tmp_path, is_stored_otherwise: bool
):
    """By its files, or by its rows, as it was then."""
    with Replicas(tmp_path) as replicas:
        part = replicas.insert("r1", 1, 2, 3)
        manifest = replicas.stores["r1"].manifest(part)
        files_hash = bytes(range(200, 216)) if is_stored_otherwise else manifest.files_hash
        before = replace(manifest.header(), hash_of_all_files=files_hash)
        replicas["r1"].keeper.multi([SetData(replicas["r1"].paths.part(part), before.encode())])
        [done] = replicas.step("r2", "fetch").done
        assert done.error == ""
        assert replicas.parts("r2") == replicas.parts("r1")


def test_what_can_not_be_read_is_no_part_although_only_its_name_was_promised(tmp_path):
    """Then nothing but the bytes themselves says what they are."""
    with Replicas(tmp_path) as replicas:
        part = replicas.insert("r1", 1, 2, 3)
        replicas["r1"].keeper.multi([SetData(replicas["r1"].paths.part(part), b"")])
        pull_log(replicas["r2"])
        clock = replicas.clock
        tools = Tools(Liar(replicas, b"PAR1 none"), LocalMerger(clock), LocalMutator(clock))
        [done] = Executor(replicas["r2"], tools, "fetch").step(None).done
        assert "is not what ZooKeeper has for it: content: " in done.error
        assert replicas.parts("r2") == replicas.stores["r2"].staged() == []


def left_by_the_dead(replicas: Replicas, file: bytes) -> PartName:
    """r1 has a part; on r2's disk a directory has its name, its claims and this file: who fetched
    it died before ZooKeeper knew.
    """
    part = replicas.insert("r1", 1, 2, 3)
    replicas.step("r1", "fetch")
    liar, store = Liar(replicas, file), replicas.stores["r2"]
    request = FetchRequest(ReplicaAddress("r1", 9009, 9000, "default", "t"), "/r1", part)
    [[(_, staged)]] = liar.fetch([request], store)
    assert isinstance(staged, StagedPart)
    store.publish(staged, part)
    return part


def test_what_a_dead_try_stored_otherwise_is_not_asked_for_again(tmp_path):
    with Replicas(tmp_path) as replicas:
        part = left_by_the_dead(replicas, bytes_of(column(1, 2, 3), "LZ4"))
        [done] = replicas.step("r2", "fetch").done
        assert done.error == ""
        store = replicas.stores["r2"]
        promised, _ = replicas["r2"].keeper.get(replicas["r2"].paths.part(part))
        assert PartHeader.decode(promised) == store.manifest(part).header()
        assert store.staged() == []


def test_what_a_dead_try_had_from_a_liar_is_fetched_again(tmp_path):
    with Replicas(tmp_path) as replicas:
        part = left_by_the_dead(replicas, bytes_of(column(1, 2, 4)))
        [done] = replicas.step("r2", "fetch").done
        assert done.error == ""
        assert replicas.stores["r2"].verify(part) == replicas.stores["r1"].verify(part)
        assert replicas.table("r2").dataset().to_table()["n"].to_pylist() == [1, 2, 3]
        assert replicas.stores["r2"].staged() == []


def test_a_directory_with_the_same_claims_and_other_files_is_not_what_is_published(tmp_path):
    """Its rows are what it says they are, or not: nobody has looked."""
    with Replicas(tmp_path) as replicas:
        part = left_by_the_dead(replicas, bytes_of(column(1, 2, 4)))
        replica, store = replicas["r2"], replicas.stores["r2"]
        pull_log(replica)
        snapshot = queue_snapshot(replica.keeper, replica.paths, replica.memory.queue)
        [node] = snapshot.entries
        assert Holder.new(replica).take(snapshot, {node: (part,)})
        [[(_, staged)]] = replicas.peers().fetch(
            [FetchRequest(ReplicaAddress("r1", 9009, 9000, "default", "t"), "/r1", part)], store
        )
        assert isinstance(staged, StagedPart)
        publish(replica, node, part, staged, is_theirs=True)
        promised, _ = replica.keeper.get(replica.paths.part(part))
        assert PartHeader.decode(promised) == store.verify(part).header()
        assert replicas.table("r2").dataset().to_table()["n"].to_pylist() == [1, 2, 3]
