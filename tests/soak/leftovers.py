"""What a soak may not leave behind once everything is calm: files, nodes, threads, descriptors."""

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.settings.table import TableSettings
from rmt_pipeline.replica.readable import readable_parts
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.store import layout

THREADS_MORE = 24
"""Than an idle server that has just started: pools that fetch, send, merge, and those of Arrow."""
FILES_MORE = 40
LOG_MORE = 20
"""Entries that come between two clean-ups of a table that has come to rest."""


@dataclass(frozen=True, slots=True)
class Held:
    """By one process: its threads, and what its descriptors are open for, digits left out."""

    threads: int
    files: Counter[str]

    @classmethod
    def by(cls, pid: int) -> "Held":
        process = Path(f"/proc/{pid}")
        files: Counter[str] = Counter()
        for descriptor in (process / "fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                files[re.sub(r"\d+", "N", str(descriptor.readlink()))] += 1
        return cls(sum(1 for _ in (process / "task").iterdir()), files)


def grown(before: Held, after: Held) -> Iterable[str]:
    if after.threads > before.threads + THREADS_MORE:
        yield f"{after.threads} threads; it began with {before.threads}"
    if after.files.total() > before.files.total() + FILES_MORE:
        more = (after.files - before.files).most_common(5)
        kinds = ", ".join(f"{count} more of {kind}" for kind, count in more)
        yield (
            f"{after.files.total()} open files; it began with {before.files.total()}: {kinds}"
        )


def files_left(context: ServerContext) -> Iterable[str]:
    """Directories of the table that are no part which is promised, and nothing that stays."""
    table = context.table("t")
    replica = table.replica
    promised = set(replica.keeper.children(replica.paths.parts))
    directory = Path(table.store.directory(next(iter(table.store.parts())))).parent
    for one in sorted(directory.iterdir()):
        is_kept = one.name in {*promised, layout.DETACHED, layout.FETCHING, layout.GIVEN_UP}
        if one.is_dir() and not is_kept:
            yield f"{one.name} on the disk"
    here = {str(part) for part in table.store.parts()}
    yield from (f"{name} promised and not on the disk" for name in sorted(promised - here))
    for part in readable_parts(replica).absent:  # other marks: it is here, or was dropped
        yield f"{part} has not been fetched again"


def nodes_left(replica: Replica, replicas: Iterable[str]) -> Iterable[str]:
    """Of a table in which nothing happens any more."""
    keeper, table = replica.keeper, replica.table
    settings = TableSettings.of(dict(replica.definition.settings))
    bounds: Mapping[str, int] = {
        table.log: settings.min_replicated_logs_to_keep + LOG_MORE,
        table.mutations: settings.finished_mutations_to_keep + 1,
        table.blocks: settings.replicated_deduplication_window + LOG_MORE,
        table.inserts: settings.replicated_deduplication_window + LOG_MORE,
        table.quorum_parallel: 0,
    }
    for path, most in bounds.items():
        found = len(keeper.children(path)) if keeper.exists(path) else 0
        if found > most:
            yield f"{found} nodes in {path}, {most} at most"
    for partition in keeper.children(table.block_numbers):
        for lock in keeper.children(table.partition(partition)):
            yield f"lock {lock} of partition {partition}"
    for name in replicas:
        paths = table.replica(name)
        for path in (paths.queue, paths.executing, paths.attempts):
            if keeper.exists(path):
                yield from (f"{path}/{node}" for node in keeper.children(path))
    active = {table.replica(name).is_active for name in replicas}
    yield from (f"{path} of a session" for path in _ephemerals(replica, table.root, active))


def _ephemerals(replica: Replica, path: str, expected: set[str]) -> Iterable[str]:
    stat = replica.keeper.exists(path)
    if stat is None:  # forgotten meanwhile
        return
    if stat.ephemeral_owner and path not in expected:
        yield path
    for child in replica.keeper.children(path) if stat.children_count else ():
        yield from _ephemerals(replica, f"{path}/{child}", expected)
