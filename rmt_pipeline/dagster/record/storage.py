"""Stores many events in one transaction of Dagster's storage.

This is for SQLite, Dagster's default, which opens and syncs two files for each single event: most
of what an event costs. Other storages take the events one by one.
"""

import functools
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.events import ASSET_EVENTS
from dagster._core.storage.event_log import SqliteEventLogStorage
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS
from sqlalchemy import Connection, Engine, NullPool, QueuePool, create_engine

EVENTS_AT_ONCE = 200
"""How many events one transaction stores. It takes part of a second, in which no other process can
write to Dagster's storage.
"""

_ONE = threading.Lock()
_collecting: set[int] = set()
"""The threads that are in a block of `one_transaction`."""


@contextmanager
def one_transaction(instance: dg.DagsterInstance) -> Iterator[None]:
    """Collect the asset events that this thread logs for one run, and store them in their order
    when the block ends, in few transactions if they are very many. If the block raises or the
    process ends before that, none is stored. A block inside another one belongs to that.

    SQLite has two files, which are committed one after the other, the one of assets first.
    """
    storage, thread = instance.event_log_storage, threading.get_ident()
    if not isinstance(storage, SqliteEventLogStorage) or thread in _collecting:
        yield
        return
    events: list[dg.EventLogEntry] = []

    def store_event(event: dg.EventLogEntry) -> None:
        if threading.get_ident() == thread and event.dagster_event_type in ASSET_EVENTS:
            events.append(event)
        else:
            store_one(event)

    with _ONE:
        store_one = storage.store_event  # not that of a thread whose block has just ended
        storage.store_event = store_event  # type: ignore[method-assign]
        _collecting.add(thread)
        try:
            yield
        finally:
            _collecting.discard(thread)
            del storage.store_event  # the class's own method is in force again
        directory = Path(storage.path_for_shard("any")).parent
        for start in range(0, len(events), EVENTS_AT_ONCE):
            _store_together(directory, events[start : start + EVENTS_AT_ONCE])


def _store_together(directory: Path, events: Sequence[dg.EventLogEntry]) -> None:
    """Store events, which are all of one run."""
    [run_id] = {event.run_id for event in events}
    runs, assets = (
        _file(str(directory), name, os.getpid()) for name in (run_id, INDEX_SHARD_NAME)
    )
    with runs.begin() as run, assets.begin() as index:
        _Together(str(directory), run, index).store_event_batch(events)


class _Together(SqliteEventLogStorage):
    """A storage over the same files whose connections are transactions that the caller has begun.
    How an event is stored is left to Dagster, which changes it even between patch releases.
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
def _file(directory: str, name: str, process: int) -> Engine:
    """The file of a run or of the assets, in this process: a fork needs connections of its own.

    It is kept, so that statements are compiled once, and so is the connection to the assets' file.
    The last connection that closes makes SQLite move its log into the file and sync both, which
    takes as long as the transaction. The file of a run has to be closed each time: the UI shows a
    run's new events when that file changes.
    """
    del process
    storage = SqliteEventLogStorage(directory)
    with storage.run_connection(name):
        pass  # makes the file, or checks its schema
    return create_engine(
        storage.conn_string_for_shard(name),
        poolclass=QueuePool if name == INDEX_SHARD_NAME else NullPool,
        connect_args={"timeout": SQLITE_BUSY_TIMEOUT_SECONDS},
    )
