"""ALTER against ClickHouse itself: what a table is afterwards, what rows that were there are read
as, and what is refused. Ours reads the part as it was written; nothing is rewritten in between.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmt_pipeline.compute.merge.job import SourcePart
from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.protocol.table import Column, Engine, TableDefinition
from rmt_pipeline.sql.formats.write import column_text
from rmt_pipeline.sql.run.table_relation import TableFiles, relation_over
from rmt_pipeline.store.manifest import PartColumn
from rmt_pipeline.translate.connection import open_connection
from rmt_pipeline.translate.evaluate import in_stored_form
from rmt_pipeline.translate.select.query import translate_query
from tests.support.clickhouse_oracle import ClickHouseRefused, ask, connection, create_table
from tests.support.merging import write_part
from tests.support.queries import parse_query
from tests.unit.protocol.alter.altering import alter

COLUMNS = (
    Column("id", "Int64"),
    Column("a", "String"),
    Column("b", "Nullable(Int32)"),
    Column("d", "Date"),
    Column("f", "Float64"),
    Column("u", "UInt8"),
)
ROWS = "(1, '10', 7, '2020-02-29', 1.5, 200), (2, '-20', NULL, '1970-01-01', -0.25, 0)"
TABLE = TableDefinition(
    database="default",
    name="t",
    columns=COLUMNS,
    engine=Engine("MergeTree", "/t", "r1"),
    order_by=("id",),
)
SEQUENCES = {
    "come and go": (
        "ADD COLUMN x Int32, ADD COLUMN y Array(String) FIRST",
        "ADD COLUMN z Date DEFAULT d + 1 AFTER a",
        "DROP COLUMN y, DROP COLUMN b",
        "ADD COLUMN b String, ADD COLUMN IF NOT EXISTS b Int8, DROP COLUMN IF EXISTS nosuch",
        "DROP COLUMN z, ADD COLUMN z LowCardinality(String) DEFAULT concat(a, '!')",
    ),
    "names": (
        "ADD COLUMN e String DEFAULT concat(a, toString(u)), ADD COLUMN al String ALIAS upper(a)",
        "RENAME COLUMN a TO `a b`, RENAME COLUMN u TO a",
        "RENAME COLUMN `a b` TO u",
        "RENAME COLUMN f TO g, ADD COLUMN f Float64 DEFAULT g * 2",
        "RENAME COLUMN b TO t",
        "RENAME COLUMN d TO b, ADD COLUMN c String",
        "RENAME COLUMN t TO d",
    ),
    "types": (
        "MODIFY COLUMN a Int32, MODIFY COLUMN b Nullable(String), MODIFY COLUMN u Int64",
        "MODIFY COLUMN d String, MODIFY COLUMN f Decimal(9, 3)",
        "MODIFY COLUMN a Nullable(Float64), MODIFY COLUMN u LowCardinality(String)",
    ),
    "wider": (
        "MODIFY COLUMN d DateTime('UTC'), MODIFY COLUMN f Float32, MODIFY COLUMN a FixedString(4)",
        "MODIFY COLUMN u UInt128, MODIFY COLUMN b Nullable(Float64), MODIFY COLUMN d Date32",
    ),
    "defaults": (
        "ADD COLUMN x Int64 DEFAULT 5, ADD COLUMN y Int64 DEFAULT x * 2",
        "MODIFY COLUMN x DEFAULT 6",
        "MODIFY COLUMN x Int32, MODIFY COLUMN y MATERIALIZED x + 1",
        "MODIFY COLUMN x REMOVE DEFAULT",
        "MODIFY COLUMN a String DEFAULT 'none' AFTER y, MODIFY COLUMN u UInt8 FIRST",
        "ADD COLUMN w String DEFAULT a",
    ),
    "refused": (
        "ADD COLUMN a Int8",
        "DROP COLUMN nosuch",
        "DROP COLUMN id",
        "RENAME COLUMN id TO id2",
        "RENAME COLUMN a TO b",
        "MODIFY COLUMN id String",
        "MODIFY COLUMN nosuch String",
        "ADD COLUMN x Int8 AFTER nosuch",
        "ADD COLUMN x NoSuchType",
        "ADD COLUMN x Int8 DEFAULT nosuch + 1",
        "ADD COLUMN x Int8 DEFAULT 'abc'",
        "MODIFY COLUMN a REMOVE DEFAULT",
        "MODIFY ORDER BY (id, a)",
        "ADD COLUMN x Int8 DEFAULT 1, MODIFY ORDER BY (id, x)",
        "MODIFY SETTING nosuch = 1",
        "ADD COLUMN m Int64 DEFAULT id, ADD COLUMN n Int64 DEFAULT m, DROP COLUMN m",
        "ADD COLUMN q Int64, MODIFY ORDER BY (id, q)",
    ),
}


@pytest.fixture
def part(tmp_path: Path) -> SourcePart:
    """The rows, in ClickHouse as table `altered`, and as a part of ours."""
    rows = create_table("altered", COLUMNS, ROWS)
    connection().query("DROP TABLE altered")
    listed = ", ".join(f"`{column.name}` {column.type}" for column in COLUMNS)
    connection().query(f"CREATE TABLE altered ({listed}) ENGINE = MergeTree ORDER BY id")
    connection().query(f"INSERT INTO altered VALUES {ROWS}")
    return write_part(tmp_path, "all_0_0_0", rows)


def ours(table: TableDefinition, part: SourcePart, query: str) -> list[str]:
    kinds = tuple(PartColumn(column.name, column.type) for column in COLUMNS)
    files = [f"{part.directory}/{file.name}" for file in part.manifest.files]
    relation = relation_over([TableFiles(kinds, files, 0)], table)
    translated = translate_query(parse_query(query), lambda *_: relation)
    with open_connection(directories=[Path(part.directory)]) as duck:
        found = duck.sql(translated.sql).to_arrow_table()
    texts = [
        list(column_text(in_stored_form(array, column.type), column.type, "TSV"))
        for array, column in zip(found.columns, translated.columns, strict=True)
    ]
    return ["\t".join(row) for row in zip(*texts, strict=True)]


def structure(table: TableDefinition) -> Iterator[str]:
    for column in table.columns:
        yield f"{column.name}|{column.type}|{column.default_kind}|{column.default}"


@pytest.mark.parametrize("name", SEQUENCES)
def test_an_alter_does_what_clickhouse_does(name: str, part: SourcePart) -> None:
    """P33, P35."""
    table = TABLE
    for text in SEQUENCES[name]:
        refused = ""
        try:
            ask(f"ALTER TABLE altered {text}")
        except ClickHouseRefused as error:
            refused = str(error)
        if refused:
            with pytest.raises(UserError):
                alter(text, table=table)
            continue
        table = alter(text, table=table).definition
        columns = ", ".join(f"`{column.name}`" for column in table.columns)
        query = f"SELECT {columns} FROM altered ORDER BY id"
        assert ours(table, part, query) == ask(query).split("\n"), text
        theirs = ask("DESCRIBE altered", "TSVRaw").split("\n")
        shown = ["|".join(line.split("\t")[:4]) for line in theirs]
        assert list(structure(table)) == shown, text
