"""What a short command does not wait for: modules that it may not import."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy import tree

OTHERS = {
    *("pyspark", "pandas", "dagster", "dagster_pyspark", "kazoo", "urllib3", "structlog"),
    *("starlette", "uvicorn", "prometheus_client", "pyarrow.parquet"),
    *("asyncio", "ssl", "http.client", "pydantic", "rich", "prompt_toolkit"),
}
ENGINE = {
    f"rmt_pipeline.{name}"
    for name in ("compute", "dagster", "exchange", "replica", "server", "store", "table")
} | {"rmt_pipeline.zookeeper", "rmt_pipeline.sql.system.tables", "rmt_pipeline.processes"}
LANGUAGE = {"rmt_pipeline.syntax", "rmt_pipeline.translate", "rmt_pipeline.types"}
DATA = {"duckdb", "numpy", "pyarrow"}

NOT_FOR = {
    ("--help",): OTHERS | ENGINE | LANGUAGE | DATA,
    ("sql", "--help"): OTHERS | ENGINE | LANGUAGE | DATA,
    ("sql", "SELECT 1"): OTHERS | ENGINE | {"pyarrow.compute"},
    ("sql", "SELECT number + 1 FROM numbers(3) WHERE number > 1"): OTHERS | ENGINE,
    ("sql", "SHOW DATABASES"): OTHERS | ENGINE | {"duckdb", "rmt_pipeline.translate"},
    ("sql", "SET max_threads = 1"): OTHERS | ENGINE | {"duckdb", "rmt_pipeline.translate"},
}
RUN = """
import sys
from rmt_pipeline.cli.main import main
try:
    main()
finally:
    print(*sorted(sys.modules), file=sys.stderr)
"""


@pytest.mark.parametrize("command", NOT_FOR, ids=" ".join)
def test_a_short_command_imports_nothing_that_it_does_not_need(command, tmp_path: Path) -> None:
    config = tmp_path / "rmt.toml"
    config.write_text(f'[servers.r1]\ndata = "{tmp_path}/r1"\nlisten = "127.0.0.1:1"\n')
    ran = subprocess.run(
        [sys.executable, "-c", RUN, "--config", str(config), *command],
        capture_output=True,
        text=True,
        check=True,
        cwd=tree.ROOT,
    )
    loaded = ran.stderr.splitlines()[-1].split()
    assert "rmt_pipeline.cli.main" in loaded
    assert sorted(NOT_FOR[command] & set(loaded)) == []
