"""Mutations of simulated parts: the real commands on the rows of `sim_rows`."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from rmt_pipeline.compute.mutate.commands import CompiledCommands
from rmt_pipeline.compute.mutate.job import (
    MutateDone,
    MutateFailure,
    MutateJob,
    MutateOutcome,
    Untouched,
    as_result,
)
from rmt_pipeline.protocol.errors import Corruption
from tests.support.sim_disk import SimDisk
from tests.support.sim_rows import (
    COLUMNS,
    FILE,
    VALUE,
    encode_rows,
    manifest_of,
    read_rows,
    table_of,
    texts_of,
    with_ttl,
)
from tests.support.world import Process

REMEMBERED_MAX = 10_000


@lru_cache(REMEMBERED_MAX)
def _compiled(texts: tuple[str, ...], partition: str) -> CompiledCommands:
    return CompiledCommands(texts, (*COLUMNS, VALUE), partition)


@lru_cache(REMEMBERED_MAX)
def _carried_out(
    texts: tuple[str, ...], partition: str, rows: tuple[str, ...]
) -> tuple[str, ...] | None:
    """The rows that are left, sorted; None when no command is for any of them."""
    table = table_of(partition, rows)
    commands = _compiled(texts, partition)
    if not commands.match(table):
        return None
    return tuple(sorted(texts_of(commands.apply(table).rows)))


class SimMutator:
    """A `Mutator` in a simulated process: reads its source, checks it, writes the result."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._disk = SimDisk(process)
        self._root = f"/{process.host.name}/"

    def mutate(self, jobs: Sequence[MutateJob]) -> Iterator[MutateOutcome]:
        for job in jobs:
            yield self._mutate(job)

    def _mutate(self, job: MutateJob) -> MutateOutcome:
        self._process.world.take_time(self._process)
        source, partition = job.source, job.source.manifest.partition_id
        rows: list[str] = []
        for file in source.manifest.files:
            try:
                rows += read_rows(self._disk, self._path(source.directory), file)
            except Corruption as problem:
                return MutateFailure(job, problem, source.name)
        left = _carried_out(job.commands, partition, tuple(rows)) if rows else None
        if left is None:
            return Untouched(job)
        manifest = manifest_of(partition, left, created_s=job.create_time_s)
        manifest = with_ttl(replace(manifest, ttl=source.manifest.ttl), job.definition, left)
        if left:
            self._disk.write(f"{self._path(job.staging)}/{FILE}", [encode_rows(left)])
        return MutateDone(job, as_result(job, manifest))

    def _path(self, absolute: str) -> str:
        assert absolute.startswith(self._root), f"{absolute} is on another host"
        return absolute.removeprefix(self._root).rstrip("/")
