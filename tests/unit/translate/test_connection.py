"""The second wall: what reaches DuckDB can reach nothing else."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmt_pipeline.protocol.errors import BadValue
from rmt_pipeline.translate.connection import (
    OutOfMemory,
    open_connection,
    thread_connection,
    user_error,
)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A file that is given, and one beside its directory that is not."""
    given = tmp_path / "given" / "x.parquet"
    hidden = tmp_path / "hidden.parquet"
    given.parent.mkdir()
    for file in (given, hidden):
        pq.write_table(pa.table({"a": [1, 2]}), file)
    return given, hidden


def test_directories_that_are_given_can_be_read(files: tuple[Path, Path]) -> None:
    given, hidden = files
    with open_connection(directories=[given.parent]) as connection:
        total = f"SELECT sum(a) FROM read_parquet(['{given}'])"
        assert connection.execute(total).fetchall() == [(3,)]
        for other in (hidden, f"{given.parent}/../hidden.parquet"):
            with pytest.raises(duckdb.PermissionException):
                connection.execute(f"SELECT * FROM read_parquet(['{other}'])")


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_csv('https://example.com/x.csv')",
        "SELECT * FROM glob('/etc/*')",
        "COPY (SELECT 1) TO 'rmt_escape.csv'",
        "ATTACH 'rmt_escape.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET threads = 64",
        "SELECT * FROM secret_rows",
    ],
)
def test_nothing_else_can_be_reached(statement: str) -> None:
    secret_rows = pa.table({"a": [1]})
    connection = open_connection()
    with pytest.raises(duckdb.Error):
        connection.execute(statement).fetchall()
    connection.close()
    assert secret_rows.num_rows == 1


def test_memory_is_bounded_and_the_refusal_says_so() -> None:
    connection = open_connection(memory_bytes=20 * 1024 * 1024, threads=1)
    query = "SELECT list(range ORDER BY -range) FROM range(20000000)"
    with pytest.raises(duckdb.Error) as problem:
        connection.sql(query).fetchall()
    assert isinstance(user_error(problem.value, query), OutOfMemory)
    connection.close()


def test_a_value_that_cannot_be_computed_is_the_users_mistake() -> None:
    connection = open_connection()
    with pytest.raises(duckdb.Error) as problem:
        connection.sql("SELECT CAST('x' AS INTEGER)").fetchall()
    refusal = user_error(problem.value, "toInt32('x')")
    assert isinstance(refusal, BadValue)
    assert "toInt32('x')" in str(refusal)
    assert "LINE" not in str(refusal)
    connection.close()


def test_a_thread_keeps_a_connection_of_its_own() -> None:
    mine = thread_connection()
    assert thread_connection() is mine
    with ThreadPoolExecutor(1) as other:
        assert other.submit(thread_connection).result() is not mine


INTERRUPTED_IN_THE_MIDDLE = """
import signal, sys

loading = []

def hook(event, details):
    if event == "import" and (loading or details[0] == "_duckdb"):
        loading.append(details[0])
        if len(loading) == 4:  # what DuckDB imports while it begins
            signal.raise_signal(signal.SIGINT)

sys.addaudithook(hook)
try:
    import MODULE
except KeyboardInterrupt:
    print("interrupted after", loading[0])
import MODULE
print("and loaded")
"""


@pytest.mark.parametrize(
    "module",
    [
        "rmt_pipeline.translate.connection",
        "rmt_pipeline.translate.evaluate",
        "rmt_pipeline.sql.run.select",
    ],
)
def test_ctrl_c_while_duckdb_is_loaded_interrupts_and_does_not_abort(module: str) -> None:
    """Python's exception in the middle of it is one that DuckDB's C++ does not expect."""
    code = INTERRUPTED_IN_THE_MIDDLE.replace("MODULE", module)
    ended = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "interrupted after _duckdb\nand loaded\n"
