"""Which running jobs carry out which mutation, so that a kill stops them (spec §7.8)."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from rmt_pipeline.compute.mutate.job import MutateJob
from rmt_pipeline.compute.stop import ask_to_stop, forget_stop
from rmt_pipeline.zookeeper.keeper import Keeper
from rmt_pipeline.zookeeper.paths import TablePaths

WATCHED_PER_JOB_MAX = 64
"""Of a job with more mutations only the last ones are watched. A kill of another one is noticed
before the part is published.
"""


class Kills:
    """The running jobs of one session, by the mutations that they carry out. A job is asked to stop
    when one of its mutations is killed. Thread-safe: watches are called from another thread.

    A mutation's node is watched once, when its first job starts. The jobs are asked to stop when
    the node is deleted, or when the session ends, since nothing can be published then either.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, set[str]] = {}
        self._watched: set[str] = set()
        self._asked: set[str] = set()

    @contextmanager
    def watching(
        self, keeper: Keeper, table: TablePaths, jobs: Sequence[MutateJob]
    ) -> Iterator[None]:
        """While this is open, a kill of one of their mutations stops the jobs."""
        try:
            for job in jobs:
                for mutation in _watched(job):
                    with self._lock:
                        self._running.setdefault(mutation, set()).add(job.staging)
                    self._watch(keeper, table, mutation)
            yield
        finally:
            for job in jobs:
                self.ended(job)

    def ended(self, job: MutateJob) -> None:
        """Forget a job that does not run any more, so that its directory is left alone. May be
        repeated.
        """
        with self._lock:
            for mutation in _watched(job):
                self._running.get(mutation, set()).discard(job.staging)
            if job.staging in self._asked:
                self._asked.discard(job.staging)
                forget_stop(job.staging)

    def _watch(self, keeper: Keeper, table: TablePaths, mutation: str) -> None:
        """Watch the node of a mutation, unless it is watched already. If two threads come at once,
        one of them asks ZooKeeper. If that fails, the next call asks again.
        """
        with self._lock:
            if mutation in self._watched:
                return
            self._watched.add(mutation)
        try:
            stat = keeper.exists(table.mutation(mutation), lambda: self._gone(mutation))
        except BaseException:
            with self._lock:
                self._watched.discard(mutation)
            raise
        if stat is None:
            self._gone(mutation)

    def _gone(self, mutation: str) -> None:
        with self._lock:
            self._watched.discard(mutation)
            for staging in self._running.get(mutation, ()):
                self._asked.add(staging)
                ask_to_stop(
                    staging,
                    f"mutation {mutation} was killed, or our session with ZooKeeper ended, while "
                    "this part was mutated; what was made is thrown away",
                )


def _watched(job: MutateJob) -> Iterable[str]:
    return job.mutations[-WATCHED_PER_JOB_MAX:]
