"""Many events in one transaction of Dagster's storage.

For SQLite, its default: that opens and syncs two files for each single event, most of what an event
costs. Other storages take the events one by one.
"""

import functools
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.events import ASSET_EVENTS
from dagster._core.storage.event_log import SqliteEventLogStorage
from sqlalchemy import Connection

_ONE = threading.Lock()


@contextmanager
def one_transaction(instance: dg.DagsterInstance) -> Iterator[None]:
    """The asset events that this thread logs, of one run, are stored when the block ends: all, or
    none when it raises or the process ends. Of SQLite's two files that of assets is written first.
    """
    storage = instance.event_log_storage
    if not isinstance(storage, SqliteEventLogStorage):
        yield
        return
    thread, store_one = threading.get_ident(), storage.store_event
    events: list[dg.EventLogEntry] = []

    def store_event(event: dg.EventLogEntry) -> None:
        if threading.get_ident() == thread and event.dagster_event_type in ASSET_EVENTS:
            events.append(event)
        else:
            store_one(event)

    with _ONE:
        storage.store_event = store_event  # type: ignore[method-assign]
        try:
            yield
        finally:
            del storage.store_event  # the class's own is back
        if events:
            _store_together(Path(storage.path_for_shard("any")).parent, events)


def _store_together(directory: Path, events: Sequence[dg.EventLogEntry]) -> None:
    """Of one run."""
    [run_id] = {event.run_id for event in events}
    runs, assets = _opened(str(directory))
    with runs.run_connection(run_id) as run, assets.index_connection() as index:
        _Together(str(directory), run, index).store_event_batch(events)


class _Together(SqliteEventLogStorage):
    """The same files, in a transaction of each that was begun. How an event is stored is Dagster's
    own to know: from one patch release to the next it does it otherwise.
    """

    def __init__(self, directory: str, run: Connection, index: Connection) -> None:
        super().__init__(directory)
        self._run, self._index = run, index

    def run_connection(self, run_id: str | None = None) -> Any:
        del run_id
        return nullcontext(self._run)

    def index_connection(self) -> AbstractContextManager[Connection]:
        return nullcontext(self._index)


@functools.lru_cache(maxsize=2)
def _opened(directory: str) -> tuple[SqliteEventLogStorage, SqliteEventLogStorage]:
    """For runs and for assets: a storage opens one file at a time. Kept: it first looks whether
    each file that it has not seen is as it should be.
    """
    return SqliteEventLogStorage(directory), SqliteEventLogStorage(directory)
