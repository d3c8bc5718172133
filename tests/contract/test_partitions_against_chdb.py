"""Commands on partitions through a session and through ClickHouse itself: what they answer, how a
snapshot is laid out, and what is refused with which code.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.sql.formats.rows import Rows
from rmt_pipeline.sql.run.session import Session
from tests.support.clickhouse_oracle import connection
from tests.support.local_session import create, local_session

Answer = tuple[list[str], list[list[str]]] | str
"""Names of columns and rows, as texts; the code of a refusal; "" for nothing."""

COLUMNS = "(p UInt8, n UInt64) ENGINE = {engine} PARTITION BY p ORDER BY n"
VERBOSE = "SETTINGS alter_partition_verbose_result = 1"
PART = re.compile(r"\b(\d+)_(\d+)_\d+_\d+\b")


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with local_session(tmp_path) as opened:
        create(opened, f"CREATE TABLE t {COLUMNS.format(engine='ReplicatedMergeTree')}")
        opened.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
        yield opened


@pytest.fixture
def _theirs() -> None:
    connection().query(f"CREATE OR REPLACE TABLE t {COLUMNS.format(engine='MergeTree')}")
    connection().query("INSERT INTO t VALUES (1, 1), (2, 2)")


def ours(session: Session, statement: str) -> Answer:
    try:
        answer = session.execute(statement)
    except RmtError as error:
        return error.code
    if not isinstance(answer, Rows):
        return ""
    rows = [
        [str(value) for value in row.values()]
        for batch in answer.batches
        for row in batch.to_pylist()
    ]
    return [column.name for column in answer.columns], sorted(map(_same, rows))


def theirs(statement: str) -> Answer:
    try:
        answer = connection().query(statement, "TSVWithNames").bytes().decode()
    except Exception as problem:  # noqa: BLE001  chdb has no class of its own
        return re.findall(r"\(([A-Z_]+)\)", str(problem))[-1]
    if not answer:
        return ""
    names, *rows = answer.removesuffix("\n").split("\n")
    return names.split("\t"), sorted(_same(row.split("\t")) for row in rows)


def _same(row: list[str]) -> list[str]:
    """Without what differs by design: where the data is, how a table's directory is called, which
    numbers blocks have.
    """
    row = [re.sub(r"^.*/shadow/([^/]*)/(data|store)/[^/]*/[^/]*/", r"\1: ", one) for one in row]
    return [PART.sub(r"\1_part", one) for one in row]


SCRIPT = f"""
ALTER TABLE t FREEZE WITH NAME 'a name/ä.'
ALTER TABLE t FREEZE PARTITION 1 WITH NAME 'a name/ä.'
ALTER TABLE t UNFREEZE PARTITION 1 WITH NAME 'a name/ä.' {VERBOSE}
ALTER TABLE t FREEZE PARTITION 1 WITH NAME 'a name/ä.' {VERBOSE}
ALTER TABLE t FREEZE PARTITION 77 WITH NAME 'none' {VERBOSE}
ALTER TABLE t FREEZE PARTITION ALL
ALTER TABLE t FREEZE PART '1_0_0_0'
ALTER TABLE t UNFREEZE
ALTER TABLE t UNFREEZE PARTITION 1
ALTER TABLE t UNFREEZE WITH NAME 'nosuch'
ALTER TABLE t UNFREEZE WITH NAME 'nosuch' {VERBOSE}
ALTER TABLE nosuch FREEZE
ALTER TABLE t FREEZE WITH NAME 'b', UNFREEZE PARTITION 2 WITH NAME 'b' {VERBOSE}
ALTER TABLE t UNFREEZE WITH NAME 'a name/ä.' {VERBOSE}
SYSTEM UNFREEZE 'x'
"""


@pytest.mark.usefixtures("_theirs")
def test_snapshots_are_as_in_clickhouse(session: Session) -> None:
    try:
        for statement in SCRIPT.strip().split("\n"):
            assert ours(session, statement) == theirs(statement), statement
    finally:
        for name in ("a name/ä.", "none", "b"):
            connection().query(f"ALTER TABLE t UNFREEZE WITH NAME '{name}'")


@pytest.mark.usefixtures("_theirs")
def test_a_snapshot_without_a_name_gets_a_number_as_in_clickhouse(session: Session) -> None:
    numbers = []
    for answer in (ours, lambda _, statement: theirs(statement)):
        found = []
        for _ in range(2):
            _, rows = answer(session, f"ALTER TABLE t FREEZE PARTITION 1 {VERBOSE}")
            assert [row[:3] for row in rows] == [["FREEZE PARTITION", "1", "1_part"]]
            found.append(int(rows[0][3]))
        numbers.append(found[1] - found[0])
    assert numbers == [1, 1]
