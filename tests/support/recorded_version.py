"""The disk and the znodes of a server as an older version of this program has left them.

Recorded by that version's own code, in its checkout (with this file beside its tests/support):

    PYTHONPATH=CHECKOUT python -m tests.support.recorded_version record DIRECTORY

and what it answers to what another version has left:

    PYTHONPATH=CHECKOUT python -m tests.support.recorded_version answer DIRECTORY
"""

import base64
import json
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rmt_pipeline.config import load_config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.nodes.formats import ReplicaAddress
from rmt_pipeline.replica.life.start import start
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.system import SystemClock
from tests.support.fake_keeper import FakeZooKeeper, Node
from tests.support.local_session import create, local_session, rows
from tests.support.local_work import working

CREATE = """
CREATE TABLE orders (day Date, id UInt64, amount Decimal(18, 2), tags Array(String))
ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/orders', '{replica}')
PARTITION BY toYYYYMM(day) ORDER BY id
"""
LATEST = """
CREATE TABLE prices (id UInt64, price Float64, at DateTime)
ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/prices', '{replica}', at)
ORDER BY id
"""
QUERIES = (
    "SELECT * FROM orders ORDER BY id",
    "SELECT * FROM prices ORDER BY id, at",
    "SELECT * FROM prices FINAL ORDER BY id",
    "SELECT insert_id, rows FROM system.inserts ORDER BY insert_id",
)
TREE, DISK, ANSWERS = "znodes.json", "disk.tar.xz", "answers.json"


def inserts() -> Iterator[str]:
    for month in (1, 2, 3):
        for first in (0, 10):
            rows = ", ".join(
                f"('2026-0{month}-{1 + n:02d}', {100 * month + n}, {n}.5, ['a', 'b{n}'])"
                for n in range(first, first + 10)
            )
            token = f"SETTINGS insert_deduplication_token = 'orders/{month}/{first}'"
            yield f"INSERT INTO orders {token} VALUES {rows}"


def record(target: Path) -> None:
    """Inserts with and without tokens, a merge, a mutation that is done; in the queue a partition
    that is to be detached, a new column, a mutation.
    """
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, local_session(Path(name)) as session:
        orders, server = create(session, CREATE), session.context.server
        create(session, LATEST)
        for statement in inserts():
            session.execute(statement)
        for price in (1, 2):
            session.execute(f"INSERT INTO prices VALUES (7, {price}, {1_700_000_000 + price})")
        with working(server, orders):
            session.execute("OPTIMIZE TABLE orders PARTITION 202601 FINAL")
            session.execute(
                "ALTER TABLE orders UPDATE amount = amount * 2 WHERE id % 3 = 0 "
                "SETTINGS mutations_sync = 1"
            )
        session.execute("ALTER TABLE orders DETACH PARTITION 202603 SETTINGS alter_sync = 0")
        session.execute(
            "ALTER TABLE orders ADD COLUMN note String DEFAULT concat('n', toString(id)) "
            "SETTINGS alter_sync = 0"
        )
        session.execute("ALTER TABLE orders DELETE WHERE id = 205 SETTINGS mutations_sync = 0")
        answers = {
            query: json.loads(json.dumps(rows(session, query), default=str))
            for query in QUERIES
        }
        (target / ANSWERS).write_text(json.dumps(answers, indent=1) + "\n")
        zookeeper = server.keeper()._zookeeper  # type: ignore[attr-defined]  the fake's
        with tarfile.open(target / DISK, "w:xz") as tar:
            tar.add(Path(name) / "r1", arcname="r1")
    nodes = {
        path: [
            base64.b64encode(node.data).decode(),
            node.version,
            node.creations,
            node.modified_ms,
        ]
        for path, node in sorted(zookeeper.nodes.items())
        if not node.owner  # of a session: over
    }
    (target / TREE).write_text(json.dumps(nodes, indent=0) + "\n")


def answers(source: Path) -> dict[str, list[list[object]]]:
    found: dict[str, list[list[object]]] = json.loads((source / ANSWERS).read_text())
    return found


@contextmanager
def opened(source: Path, directory: Path) -> Iterator[Session]:
    """A session of this version on them, as after `rmt serve` has started."""
    with tarfile.open(source / DISK) as tar:
        tar.extractall(directory, filter="data")
    file = directory / "rmt.toml"
    file.write_text(
        f'[servers.r1]\ndata = "{directory / "r1"}"\nlisten = "127.0.0.1:9009"\n'
        'macros = {shard = "1", replica = "r1"}\n'
    )
    context = ServerContext(load_config(file), "r1")
    context.use(_zookeeper(source).connect())
    for definition in context.catalog.definitions():
        address = ReplicaAddress("r1", 9009, 9000, definition.database, definition.name)
        start(context.replica(definition), identity="r1", incarnation="2", address=address)
    with Session(context) as session:
        yield session


def _zookeeper(source: Path) -> FakeZooKeeper:
    zookeeper = FakeZooKeeper(SystemClock())
    tree = json.loads((source / TREE).read_text())
    children: dict[str, set[str]] = {path: set() for path in tree}
    for path in tree:
        if path != "/":
            parent, _, name = path.rpartition("/")
            children[parent or "/"].add(name)
    for path, (data, version, creations, modified_ms) in tree.items():
        zookeeper.zxid += 1
        zookeeper.nodes[path] = Node(
            base64.b64decode(data),
            version,
            modified_ms,
            modified_ms,
            zookeeper.zxid,
            creations,
            0,
            frozenset(children[path]),
            zookeeper.zxid,
            zookeeper.zxid,
        )
    return zookeeper


def answered(source: Path) -> dict[str, list[list[object]]]:
    """By this version."""
    with tempfile.TemporaryDirectory() as name, opened(source, Path(name)) as session:
        found = {query: rows(session, query) for query in QUERIES}
    told: dict[str, list[list[object]]] = json.loads(json.dumps(found, default=str))
    return told


if __name__ == "__main__":
    verb, directory = sys.argv[1], Path(sys.argv[2])
    if verb == "record":
        shutil.rmtree(directory, ignore_errors=True)
        record(directory)
    else:
        print(json.dumps(answered(directory)))
