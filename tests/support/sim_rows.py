"""Parts without Parquet: a part's file is its rows as sorted lines. Hashes as in the real thing:
`row_hash` adds up and ignores order, `content_hash` is of the rows in their order.
"""

import errno
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import pyarrow as pa

from rmt_pipeline.compute.merge.job import MergeDone, MergeFailure, MergeJob, MergeOutcome
from rmt_pipeline.compute.rows.computed import ttl_rules
from rmt_pipeline.compute.rows.ttl import RowTtl
from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.log.entry import MERGE_TTL_DELETE
from rmt_pipeline.protocol.table import Column, TableDefinition
from rmt_pipeline.protocol.ttl import PartTtl, TtlRule, TtlTimes, something_expired
from rmt_pipeline.store import layout
from rmt_pipeline.store.hashes.checksums import hash_hex
from rmt_pipeline.store.manifest import Manifest, PartColumn, PartFile
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.store.staging import StagedPart
from tests.support.fake_disk import FakeDisk
from tests.support.sim_disk import SimDisk
from tests.support.world import Process

COLUMNS = (Column("partition", "String"), Column("row", "String"))
VALUE = Column("value", "String")
"""Of tables in which values expire, a column more."""
GONE = "+-"
"""What ends so is a row whose value has expired, in the text that stands for it."""
FILE = layout.data_file(0)
MASK_128 = 2**128 - 1
UNREADABLE: tuple[int, ...] = (errno.EIO,)
REMEMBERED_MAX = 10_000


def encode_rows(rows: Iterable[str]) -> bytes:
    return "".join(f"{row}\n" for row in rows).encode()


def decode_rows(data: bytes) -> list[str]:
    return data.decode().splitlines()


def hash_of_row(row: str) -> int:
    return int.from_bytes(hashlib.blake2b(row.encode(), digest_size=16).digest(), "little")


def manifest_of(
    partition: str,
    rows: Sequence[str],
    *,
    created_s: int,
    sources: tuple[str, ...] = (),
    insert_id: str = "",
) -> Manifest:
    data = encode_rows(rows)
    row_hash = sum(map(hash_of_row, rows)) & MASK_128
    files = (PartFile(FILE, len(data), hash_hex(data)),) if rows else ()
    return Manifest(
        columns=tuple(PartColumn(column.name, column.type) for column in COLUMNS),
        rows=len(rows),
        bytes_on_disk=len(data),
        partition_id=partition,
        partition=partition,
        key_bounds=(),
        files=files,
        row_hash=row_hash,
        column_hashes={"partition": 0, "row": row_hash},
        content_hash=hash_of_row("".join(rows)),
        created_s=created_s,
        sources=sources,
        insert_id=insert_id,
    )


@lru_cache(REMEMBERED_MAX)
def _compiled(rules: tuple[TtlRule, ...], expire_s: int) -> RowTtl:
    return RowTtl(rules, (*COLUMNS, VALUE), expire_s)


def aged(
    rules: tuple[TtlRule, ...], partition: str, rows: tuple[str, ...], expire_s: int
) -> tuple[tuple[str, ...], tuple[TtlTimes, ...]]:
    """The rows that have not expired, without values that have, and when these expire: by the real
    code.
    """
    ttl = _compiled(rules, expire_s)
    left = ttl.expire(table_of(partition, rows))
    return texts_of(left), ttl.measure(left)


def table_of(partition: str, texts: Sequence[str]) -> pa.Table:
    columns = {
        "partition": [partition] * len(texts),
        "row": [text.removesuffix(GONE) for text in texts],
        VALUE.name: ["" if text.endswith(GONE) else "v" for text in texts],
    }
    return pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})


def texts_of(table: pa.Table) -> tuple[str, ...]:
    rows, values = (table.column(name).to_pylist() for name in ("row", VALUE.name))
    return tuple(row if value else row + GONE for row, value in zip(rows, values, strict=True))


def with_ttl(
    manifest: Manifest, definition: TableDefinition, rows: Sequence[str], expired_s: int = 0
) -> Manifest:
    """What it says of a table that has a TTL; of others nothing. `expired_s`: what has is gone."""
    rules = ttl_rules(definition)
    if not rules:
        return manifest
    _, times = aged(rules, manifest.partition_id, tuple(rows), expired_s)
    return replace(
        manifest,
        metadata_version=definition.metadata_version,
        ttl=replace(manifest.ttl, times=times),
    )


def stage_rows(
    store: PartStore,
    partition: str,
    rows: Sequence[str],
    *,
    created_s: int,
    insert_id: str = "",
    definition: TableDefinition | None = None,
) -> StagedPart:
    """A block of an insert, as `compute.insert.blocks.stage` would leave it. `definition`: of a
    table that may have a TTL.
    """
    rows = sorted(rows)
    staging = store.begin("insert", partition)
    staging.write(FILE, encode_rows(rows))
    manifest = manifest_of(partition, rows, created_s=created_s, insert_id=insert_id)
    return staging.seal(
        manifest if definition is None else with_ttl(manifest, definition, rows)
    )


def rows_on(disk: FakeDisk, part: object) -> list[str]:
    """The rows of a part, looking at the disk from outside."""
    data = disk.peek(f"{part}/{FILE}")
    return [] if data is None else decode_rows(data)


def read_rows(disk: SimDisk, directory: str, file: PartFile) -> list[str]:
    """Raises Corruption: also of what can't be read, as the production code says it."""
    try:
        data = disk.read(f"{directory}/{file.name}")
    except OSError as error:
        if error.errno not in UNREADABLE:
            raise
        raise Corruption(f"{directory}/{file.name} can't be read: {error}") from error
    if data is None or hash_hex(data) != file.hash:
        raise Corruption(f"{directory}/{file.name} is not as its manifest says")
    return decode_rows(data)


class SimMerger:
    """A `Merger` in a simulated process: reads its sources, checks them, writes the result."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._disk = SimDisk(process)
        self._root = f"/{process.host.name}/"

    def merge(self, jobs: Sequence[MergeJob]) -> Iterator[MergeOutcome]:
        for job in jobs:
            yield self._merge(job)

    def _merge(self, job: MergeJob) -> MergeOutcome:
        world = self._process.world
        world.take_time(self._process)
        rows: list[str] = []
        for source in job.sources:
            for file in source.manifest.files:
                try:
                    rows += read_rows(self._disk, self._path(source.directory), file)
                except Corruption as problem:
                    return MergeFailure(job, problem, source.name)
        rows = self.merged(rows)
        if job.deduplicate:
            rows = list(dict.fromkeys(rows))
        partition = job.sources[0].manifest.partition_id
        known, rules = [one.manifest.ttl for one in job.sources], ttl_rules(job.definition)
        looks = job.expires and something_expired(known, rules, job.create_time_s)
        expire_s = job.create_time_s if looks else 0
        if looks:
            rows = list(aged(rules, partition, tuple(rows), expire_s)[0])
        if world.rng.random() < world.oddity:
            rows.reverse()
        names = tuple(source.name for source in job.sources)
        manifest = manifest_of(partition, rows, created_s=job.create_time_s, sources=names)
        last_s = max(one.deleted_s for one in known)
        deletes = job.merge_type == MERGE_TTL_DELETE
        past = PartTtl(deleted_s=job.create_time_s if deletes else last_s)
        manifest = with_ttl(replace(manifest, ttl=past), job.definition, rows, expire_s)
        if rows:
            self._disk.write(f"{self._path(job.staging)}/{FILE}", [encode_rows(rows)])
        return MergeDone(job, manifest, rows_in=len(rows), seconds=0.0)

    @staticmethod
    def merged(rows: list[str]) -> list[str]:
        """What becomes of the rows of all sources."""
        return sorted(rows)

    def _path(self, absolute: str) -> str:
        assert absolute.startswith(self._root), f"{absolute} is on another host"
        return absolute.removeprefix(self._root).rstrip("/")
