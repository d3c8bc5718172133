"""SYSTEM STOP: what is not to be begun any more, and what runs and is to end."""

from collections.abc import Callable, Iterator

from rmt_pipeline.compute.stop import ask_to_stop
from rmt_pipeline.protocol.background import Background, stopped_words
from rmt_pipeline.protocol.log.entry import MERGE_REGULAR, MergeParts
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.work.running import running_merges
from rmt_pipeline.store.layout import parse_staged
from rmt_pipeline.store.part_store import PartStore


def stop_by_hand(store: PartStore, what: Background, replica: Callable[[], Replica]) -> None:
    """Nothing of that kind is begun for the table any more, by any process of this host, and what
    runs ends within seconds: merges and mutations between two batches of rows; fetches and sends,
    which look at the mark themselves, between two chunks. What they have made is thrown away, and
    their entries stay in the queue.

    Only to know which merges are for TTL the queue is looked at, in a session of `replica`. Raises
    what that raises; then nothing is begun all the same.
    """
    store.marks.stop(what)  # first of all: see `make_here`
    for result, directory in _running(store, what, replica):
        reason = f"{result}: {stopped_words(what)}; what was made is thrown away"
        ask_to_stop(directory, reason)


def _running(
    store: PartStore, what: Background, replica: Callable[[], Replica]
) -> Iterator[tuple[str, str]]:
    """Of what runs and is to end: its result, and the directory that it writes to."""
    if what is Background.MERGES:
        for name in store.staged():
            staged, where = parse_staged(name), store.staged_at(name)
            if staged is not None and staged.kind in ("merge", "mutate") and where is not None:
                yield staged.hint, where[1]
    elif what is Background.TTL_MERGES:
        for merge in running_merges(replica()):
            if isinstance(merge.entry, MergeParts) and merge.entry.merge_type != MERGE_REGULAR:
                yield str(merge.result), merge.directory
