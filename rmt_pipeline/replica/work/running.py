"""The merges and mutations that run now, in any process: their progress, and how to stop them.

Which ones run is in ZooKeeper: a claim exists while its worker lives (design §4). What they have
done is in the staging directories beside the replica's parts, where their units write it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rmt_pipeline.compute.insert.partition import shown_partition
from rmt_pipeline.compute.progress import Progress, read_progress
from rmt_pipeline.compute.stop import ask_to_stop
from rmt_pipeline.protocol.background import Background, stopped_words
from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.log.entry import MERGE_REGULAR, MergeParts, MutatePart, sources_of
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.store import layout
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.zookeeper.snapshot import queue_snapshot

SKEW_MAX_S = 60.0  # between ZooKeeper's clock and the disk's


@dataclass(frozen=True, slots=True)
class RunningMerge:
    """A merge (or, with a MutatePart entry, a mutation) that a worker of this replica carries out.

    `elapsed_s` counts from the claim, so it includes waiting for a slot of Spark. Sizes are of the
    sources, in bytes. `directory` is the absolute path where the result is being staged.
    """

    entry: MergeParts | MutatePart
    worker: str
    elapsed_s: float
    partition: str
    rows: int
    bytes_on_disk: int
    bytes_uncompressed: int
    done: Progress
    directory: str

    @property
    def result(self) -> PartName:
        return self.entry.result

    @property
    def sources(self) -> tuple[PartName, ...]:
        return sources_of(self.entry)

    @property
    def is_mutation(self) -> bool:
        return isinstance(self.entry, MutatePart)

    @property
    def share_done(self) -> float:
        """The share of the sources' rows that have been read, 0 to 1."""
        return min(1.0, self.done.rows_read / self.rows) if self.rows else 0.0


def running_merges(replica: Replica) -> list[RunningMerge]:
    """The merges and mutations that this replica's workers have begun, oldest claim first.

    Entries whose result is fetched are not among them, nor are those whose worker has died: its
    claims end with its session. Raises ReplicaRetired.
    """
    snapshot = queue_snapshot(replica.keeper, replica.paths, replica.memory.queue)
    entries = snapshot.entries
    claimed = [
        (node, entry)
        for node in snapshot.claims
        if isinstance(entry := entries.get(node), MergeParts | MutatePart)
    ]
    if not claimed:
        return []
    reads = replica.keeper.get_many([replica.paths.claim(node) for node, _ in claimed])
    staged = _staged_by_result(replica)
    now_s = replica.clock.now_s()
    found = []
    for (node, entry), read in zip(claimed, reads, strict=True):
        at = staged.get(str(entry.result))
        if read is None or at is None:
            continue  # it has just ended; or its result is fetched
        since_s = read[1].created_ms / 1000
        if at[0] < since_s - SKEW_MAX_S:
            continue  # the directory is of an attempt that died
        worker = snapshot.claims[node].worker
        merge = _running(replica, entry, worker, max(0.0, now_s - since_s), at[1])
        if merge is not None:
            found.append(merge)
    return sorted(found, key=lambda one: -one.elapsed_s)


def _staged_by_result(replica: Replica) -> dict[str, tuple[float, str]]:
    """For each result, when its staging directory changed last, and where that is. If there are
    several directories, the one that changed last.
    """
    found: dict[str, tuple[float, str]] = {}
    for name in replica.store.staged():
        staged = layout.parse_staged(name)
        if staged is None or staged.kind not in ("merge", "mutate"):
            continue
        at = replica.store.staged_at(name)
        if at is not None:
            found[staged.hint] = max(found.get(staged.hint, at), at)
    return found


def _running(
    replica: Replica,
    entry: MergeParts | MutatePart,
    worker: str,
    elapsed_s: float,
    directory: str,
) -> RunningMerge | None:
    """None if a source is gone: then the merge has just been published; or if it can't be read:
    then the merge is about to fail.
    """
    try:
        manifests: list[Manifest] = [
            replica.store.manifest(source) for source in sources_of(entry)
        ]
    except Corruption:
        return None
    return RunningMerge(
        entry=entry,
        worker=worker,
        elapsed_s=elapsed_s,
        partition=shown_partition(manifests[0], replica.definition),
        rows=sum(manifest.rows for manifest in manifests),
        bytes_on_disk=sum(manifest.bytes_on_disk for manifest in manifests),
        bytes_uncompressed=sum(manifest.bytes_uncompressed for manifest in manifests),
        done=read_progress(directory) or Progress(),
        directory=directory,
    )


def stop_by_hand(store: PartStore, what: Background, replica: Callable[[], Replica]) -> None:
    """Let no process of this host begin work of this kind for the table, and make what runs end
    within seconds: merges and mutations between two batches of rows; fetches and sends, which look
    at the mark themselves, between two chunks. What they have made is thrown away, and their
    entries stay in the queue.

    The queue is read, in the session of `replica`, only to know which merges are for TTL. Raises
    what that raises; even then nothing new is begun.
    """
    store.marks.stop(what)  # first of all: see `make_here`
    for result, directory in _to_stop(store, what, replica):
        reason = f"{result}: {stopped_words(what)}; what was made is thrown away"
        ask_to_stop(directory, reason)


def _to_stop(
    store: PartStore, what: Background, replica: Callable[[], Replica]
) -> Iterator[tuple[str, str]]:
    """The work that is to end: its result, and the directory that it writes to."""
    if what is Background.MERGES:
        for name in store.staged():
            staged, where = layout.parse_staged(name), store.staged_at(name)
            if staged is not None and staged.kind in ("merge", "mutate") and where is not None:
                yield staged.hint, where[1]
    elif what is Background.TTL_MERGES:
        for merge in running_merges(replica()):
            if isinstance(merge.entry, MergeParts) and merge.entry.merge_type != MERGE_REGULAR:
                yield str(merge.result), merge.directory
