"""NaN in a table of one part, whose file DuckDB reads by what the file says of its values."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from rmt_pipeline.sql.formats.rows import Rows
from rmt_pipeline.sql.formats.write import write_rows
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.sql.run.table_relation import table_relation
from rmt_pipeline.syntax.statements.nodes import SelectStatement
from rmt_pipeline.syntax.statements.parse import parse
from tests.support.local_session import create, local_session, rows


@pytest.fixture(scope="module", params=["now", "by an earlier build"])
def written(request) -> str:
    """When the table's files were written."""
    return request.param


@pytest.fixture(scope="module")
def session(tmp_path_factory, written: str) -> Iterator[Session]:
    with (
        local_session(tmp_path_factory.mktemp("server")) as opened,
        pytest.MonkeyPatch.context() as patched,
    ):
        if written != "now":
            patched.setattr("rmt_pipeline.store.parquet.columns_with_bounds", lambda *_: True)
            earlier = "rmt_pipeline 0.1.0, pyarrow 26.0.1"
            patched.setattr(
                "rmt_pipeline.compute.insert.blocks.engine_version", lambda: earlier
            )
        create(
            opened,
            "CREATE TABLE t (id Int32, x Float64, n Nullable(Float32), a Array(Float64), "
            "s Tuple(f Float64, i Int8), m Map(String, Float64)) "
            "ENGINE = ReplicatedReplacingMergeTree('/tables/t', 'r1') ORDER BY id",
        )
        opened.execute(
            "INSERT INTO t VALUES (1, 1, 1, [1], (1, 1), {'k': 1}), (2, 2, NULL, [], (2, 2), {}), "
            "(3, nan, nan, [nan], (nan, 3), {'k': nan}), (4, -0.5, 0, [0, 0], (0, 4), {'k': 0})"
        )
        yield opened


@pytest.mark.parametrize("final", ["", " FINAL"])
@pytest.mark.parametrize("value", ["x", "n", "a[1]", "s.f", "m['k']", "x + 1", "-n", "abs(x)"])
def test_it_is_found_and_is_neither_more_nor_less_than_any_number(
    session: Session, value: str, final: str
) -> None:
    """By a filter, and by what is computed of it."""
    for condition in (
        "isNaN({})",
        "isNaN({}) AND id > 0",
        "{} != {}",
        "{} >= -9 AND NOT {} <= 9",
    ):
        text = condition.replace("{}", value)
        expected = [] if condition.startswith("{} >=") else [(3,)]
        assert rows(session, f"SELECT id FROM t{final} WHERE {text}") == expected, text
    found = rows(
        session,
        f"SELECT id, isNaN({value}), {value} <= 99, {value} > 99 FROM t{final} WHERE id = 3",
    )
    assert found == [(3, 1, 0, 0)]
    [(greatest,)] = rows(session, f"SELECT max({value}) FROM t{final}")
    assert greatest == greatest, "not NaN"  # noqa: PLR0124


@pytest.mark.parametrize("written", ["now"], indirect=True)
@pytest.mark.parametrize("by", ["inserts", "a SELECT"])
def test_other_programs_find_it_in_the_files(session: Session, by: str, tmp_path: Path) -> None:
    files = session.context.server.table("t").files()
    if by == "a SELECT":
        files = [str(tmp_path / "answer.parquet")]
        with Path(files[0]).open("wb") as out:
            answer = session.execute("SELECT * FROM t")
            assert isinstance(answer, Rows)
            write_rows(answer, "Parquet", out)
    for value in ("x", "n", "a[1]", "s.f", "m['k']"):
        found = duckdb.sql(f"SELECT id FROM read_parquet({files}) WHERE isnan({value})")
        assert found.fetchall() == [(3,)], value


def test_only_what_may_hide_one_is_read_with_less_regard_to_bounds(
    session: Session, written: str
) -> None:
    statement = parse("SELECT * FROM t")
    assert isinstance(statement, SelectStatement)
    table = session.context.server.table("t")
    with table.snapshot() as snapshot:
        sql = table_relation(table, snapshot, statement.query).sql
    assert ("can_have_nan" in sql) == (written != "now")
