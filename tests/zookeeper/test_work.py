"""Queues worked without Dagster: `serve --work` and `rmt worker`."""

import os
import subprocess
import sys
from contextlib import ExitStack

import pytest

from rmt_pipeline.context import ServerContext
from rmt_pipeline.zookeeper.paths import TablePaths
from tests.support.serving import Served, create, definition_of, insert
from tests.support.waiting import BUSY, LIMIT_S

pytestmark = pytest.mark.zookeeper

BLOCKS = [b"one", b"two", b"three"]


@pytest.fixture
def root(chroot) -> str:
    return f"{chroot}/work/t"


@pytest.fixture
def tables(config, root):
    """The table on r1, and on r2."""
    with ExitStack() as opened:
        found = []
        for name in ("r1", "r2"):
            context = opened.enter_context(ServerContext.open(config, name))
            create(config, context.keeper(), definition_of(root, name), name)
            found.append(context.table("t"))
        yield found


def contents(table) -> dict[str, bytes]:
    return {
        str(part.name): b"".join(table.store.file_chunks(part.name, "data-00000.parquet"))
        for part in table.parts()
    }


def test_servers_that_work_replicate_by_themselves(config, tables):
    one, two = tables
    with Served(config, work=True) as r1, Served(config, "r2", work=True) as r2:
        r1.until(r1.is_active)
        r2.until(r2.is_active)
        names = insert(one, *BLOCKS)
        r2.until(lambda: len(contents(two)) == 3)
        assert contents(two) == dict(zip(names, BLOCKS, strict=True))
        more = insert(two, b"four")
        r1.until(lambda: more[0] in contents(one))
        assert r1.stop() < 5 * BUSY
        assert r2.stop() < 5 * BUSY


def rmt_worker(config, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "rmt_pipeline.cli", "--config", str(config.path), "worker"]
    done = subprocess.run(
        [*command, *arguments], stderr=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("how", ["--once", "--until-idle"])
def test_a_worker_works_off_what_there_is_and_ends(config, tables, how):
    one, two = tables
    with Served(config) as r1, Served(config, "r2") as r2:
        r1.until(r1.is_active)
        r2.until(r2.is_active)
        insert(one, *BLOCKS)
        assert contents(two) == {}
        status, lines = rmt_worker(config, "--server", "r2", "--pool", "fetch", how)
        assert status == 0
        assert contents(two) == contents(one)
        assert "idle parts=3 rows=9 failures=0" in lines


def test_a_worker_says_with_its_status_that_entries_failed(config, tables, root):
    one, _ = tables
    with Served(config) as r1, Served(config, "r2") as r2:
        r1.until(r1.is_active)
        r2.until(r2.is_active)
        insert(one, *BLOCKS)
        (path,) = one.store.files(one.parts()[0].name)
        os.truncate(path, 0)
        status, lines = rmt_worker(config, "--server", "r2", "--pool", "fetch", "--once")
        assert status == 1
        assert "entry failed" in lines
        assert "is broken here" in lines
        queue = TablePaths(root).replica("r2").queue
        assert len(one.replica.keeper.children(queue)) == 1
