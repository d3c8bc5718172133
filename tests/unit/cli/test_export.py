"""`rmt export`: a table as others read it, and what to open."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from rmt_pipeline.cli import export
from rmt_pipeline.cli.main import app
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import UnknownTable
from tests.support.local_session import session_with_numbers

deltalake = pytest.importorskip("deltalake", reason="rmt-pipeline[export] is not installed")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerContext]:
    with session_with_numbers(tmp_path) as session:
        session.execute("INSERT INTO t VALUES (3), (4)")
        opened = session.context.server
        monkeypatch.setattr(export, "ServerContext", lambda *_, **__: nullcontext(opened))
        yield opened


def told(server: ServerContext, capsys: pytest.CaptureFixture[str], *forms: str) -> list[str]:
    assert (
        export.run_export(server.config, "r1", "t", forms=forms, columns=(), lease_s=60.0) == 0
    )
    return capsys.readouterr().out.splitlines()


def test_it_says_what_to_open(
    server: ServerContext, capsys: pytest.CaptureFixture[str]
) -> None:
    delta, iceberg = told(server, capsys)
    place, rest = delta.removeprefix("delta ").split(": ")
    assert rest == "2 rows in 1 parts; 1 files more, 0 fewer"
    assert deltalake.DeltaTable(place).to_pyarrow_table()["n"].to_pylist() == [3, 4]
    assert iceberg.startswith("iceberg file://")
    [again] = told(server, capsys, "delta")
    assert again.endswith("; nothing has changed")


def test_a_table_that_is_not_there_is_named(server: ServerContext) -> None:
    with pytest.raises(UnknownTable, match="nothing"):
        export.run_export(server.config, "r1", "nothing", forms=(), columns=(), lease_s=60.0)


def test_a_format_that_there_is_not_is_refused() -> None:
    found = CliRunner().invoke(app, ["export", "t", "--format", "parquet"])
    assert found.exit_code == click.UsageError.exit_code
    assert "'parquet' is not one of" in found.output
