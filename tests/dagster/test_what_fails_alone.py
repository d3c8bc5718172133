"""What goes wrong with one table of a server, or with its disk: sensors, workers and clean-up go on
with the others, and say so.
"""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from rmt_pipeline.context import ServerContext
from rmt_pipeline.dagster.engine import EngineResource
from rmt_pipeline.dagster.record.unrecorded import Unrecorded
from rmt_pipeline.dagster.spark import SparkResource
from rmt_pipeline.dagster.upkeep.clean_up import clean_up_job
from rmt_pipeline.dagster.work import workers
from rmt_pipeline.dagster.work.watching import MergeWatch, QueueWatch
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.work.loop import Flush, WorkSummary
from rmt_pipeline.replica.work.pools import Pool
from rmt_pipeline.replica.work.step import PartDone
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.store.disk import LocalDisk
from tests.support.local_session import session_with_two_tables


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """Tables `t` and `u`, with two parts each. The resource `engine` opens their server."""
    with session_with_two_tables(tmp_path) as opened:
        for name in ("t", "u"):
            for number in range(2):
                opened.execute(f"INSERT INTO {name} VALUES ({number})")
        server = opened.context.server

        @contextmanager
        def given(*_: object, **__: object) -> Iterator[ServerContext]:
            yield server

        monkeypatch.setattr(EngineResource, "server", given)
        yield opened


@pytest.fixture
def server(session: Session) -> ServerContext:
    return session.context.server


@pytest.fixture
def t_fails(server: ServerContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk of table `t` answers with an error, whatever it is asked."""
    definition = server.catalog.definition("default", "t")
    directory, path_of = str(server.catalog.table_directory(definition)), LocalDisk.local_path

    def refuse(disk: LocalDisk, path: str) -> str:
        if disk.root == directory:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return path_of(disk, path)

    monkeypatch.setattr(LocalDisk, "local_path", refuse)


def queues(server: ServerContext) -> str:
    return QueueWatch(server).look({}).words()


def merges(server: ServerContext) -> str:
    return MergeWatch(server).wait(dict, wait_s=0)


@pytest.mark.usefixtures("t_fails")
@pytest.mark.parametrize("look", [queues, merges])
def test_a_sensor_says_which_table_s_disk_fails_and_looks_at_the_others(
    server: ServerContext, look: Callable[[ServerContext], str]
) -> None:
    words = look(server)
    assert "default.t: [Errno 5]" in words
    if look is merges:
        assert "default.u: " in words


@pytest.mark.usefixtures("t_fails")
def test_what_was_inserted_into_other_tables_is_recorded(
    server: ServerContext, instance: dg.DagsterInstance
) -> None:
    unrecorded = Unrecorded(server, instance, None)
    assert unrecorded.there()
    told = [event.asset_key.to_user_string() for event in unrecorded.told()]
    assert "u/r1_parts" in told
    assert not [one for one in told if one.startswith("t/")]
    [failed] = [one for one in unrecorded.words if "can't be recorded yet" in one]
    assert failed.startswith("default.t: ")


@pytest.mark.usefixtures("t_fails")
def test_the_other_tables_are_cleaned(instance: dg.DagsterInstance) -> None:
    result = clean_up_job("r1").execute_in_process(
        instance=instance, resources={"engine": EngineResource()}, raise_on_error=False
    )
    assert not result.success
    said = "\n".join(entry.message for entry in instance.all_logs(result.run_id))
    assert "default.u: " in said


@pytest.mark.parametrize("pool", ["fetch", "merge"])
@pytest.mark.parametrize("how", ["DROP TABLE t", "DROP TABLE t SYNC", "DETACH TABLE t"])
def test_a_table_that_goes_while_a_worker_has_it_fails_no_run(
    session: Session,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    pool: Pool,
    how: str,
) -> None:
    """The worker has made a part of it, and has not recorded that yet."""

    def work(
        _: object, *__: object, on_flush: Callable[[Flush], None], **___: Any
    ) -> WorkSummary:
        session.execute(how)
        made = PartDone(PartName("all", 0, 1, 1), "MERGE_PARTS", rows=2)
        on_flush(Flush("default.t", "r1", (made,)))
        return WorkSummary(parts=1)

    monkeypatch.setattr(workers, "work", work)
    ready = iter([{"default.t": 1}])
    monkeypatch.setattr(QueueWatch, "ready", lambda *_: next(ready, {}))
    result = workers.worker_job("r1", pool).execute_in_process(
        instance=instance,
        resources={"engine": EngineResource(), "spark": SparkResource()},
        raise_on_error=False,
    )
    assert result.success, [entry.message for entry in instance.all_logs(result.run_id)]
