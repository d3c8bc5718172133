"""An upgrade: the disk and the znodes that the version before has left, opened by this one. And the
way back: what this one has left, opened by the one before.

Recorded by its own code (`tests.support.recorded_version`), in the middle of work: a merge and a
mutation are done; a partition that is to be detached, a column that is to come and a mutation are
in the queue.
"""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from rmt_pipeline.sql.run.session import Session
from tests.support import recorded_version as recorded
from tests.support.local_session import rows
from tests.support.local_work import working
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
SOURCE = Path(__file__).parent / "data" / "recorded_version"


def answer(session: Session, query: str) -> list[list[object]]:
    found: list[list[object]] = json.loads(json.dumps(rows(session, query), default=str))
    return found


@pytest.mark.parametrize("query", recorded.QUERIES)
def test_what_was_answered_is_answered(tmp_path: Path, query: str) -> None:
    with recorded.opened(SOURCE, tmp_path) as session:
        assert answer(session, query) == recorded.answers(SOURCE)[query]


def test_an_insert_of_before_is_known(tmp_path: Path) -> None:
    """By its token it is a duplicate; and it can be undone."""
    with recorded.opened(SOURCE, tmp_path) as session:
        count = "SELECT count() FROM orders WHERE id BETWEEN 200 AND 299"
        assert answer(session, count) == [[20]]
        for statement in recorded.inserts():
            session.execute(statement)
        assert answer(session, count) == [[20]]
        table = session.context.server.table("orders")
        insert, *_ = [
            one
            for one in table.inserts()
            if {part.partition for part in one.parts} == {"202602"}
        ]
        table.undo(insert.insert_id, settings={"alter_sync": 0})
        server = session.context.server
        with working(server, server.catalog.definition("default", "orders")):
            # The mutation that was in the queue deletes one of the ten that stay.
            until(lambda: answer(session, count) == [[9]])


def test_what_was_in_the_queue_is_carried_out(tmp_path: Path) -> None:
    with recorded.opened(SOURCE, tmp_path) as session:
        server = session.context.server
        table = server.table("orders")
        definition = server.catalog.definition("default", "orders")
        with working(server, definition):
            until(lambda: all(one.status.is_done for one in table.mutations()))
            session.execute("OPTIMIZE TABLE orders FINAL")
        found = answer(session, "SELECT id, note FROM orders ORDER BY id")
        assert [id_ for id_, _ in found] == [
            *(n for month in (100, 200) for n in range(month, month + 20) if n != 205)
        ]
        assert all(note == f"n{id_}" for id_, note in found)
        assert [one.problem for one in table.check() if one.problem] == []


BEFORE = "05f909c77a4d"
"""The commit of the version before, whose own code opens what this one has written."""


@pytest.fixture
def code_before(tmp_path: Path) -> Path:
    """Its packages, and what records and answers."""
    place = tmp_path / "before"
    place.mkdir()
    packed = subprocess.run(
        ["git", "archive", BEFORE, "rmt_pipeline", "tests/support"],
        cwd=ROOT,
        check=False,
        capture_output=True,
    )
    if packed.returncode:
        pytest.skip(f"no commit {BEFORE} here: {packed.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as tar:
        tar.extractall(place, filter="data")
    shutil.copy(recorded.__file__, place / "tests" / "support")
    return place


def test_the_version_before_opens_what_this_one_has_written(
    tmp_path: Path, code_before: Path
) -> None:
    written = tmp_path / "written"
    recorded.record(written)
    asked = subprocess.run(
        [sys.executable, "-m", "tests.support.recorded_version", "answer", str(written)],
        cwd=code_before,
        check=False,
        env={**os.environ, "PYTHONPATH": str(code_before)},
        capture_output=True,
        text=True,
    )
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout) == recorded.answers(written)
