"""CSV with the original's reader options: the rows that ClickHouse reads, or a refusal by both."""

import json

import pytest

from rmt_pipeline.compute.inputs.conform import CsvFile, conform
from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.syntax.types import parse_type
from rmt_pipeline.types.to_text import column_values, formatter
from tests.support.clickhouse_oracle import connection

REFUSED = "refused"
TWO = "a Int32, b String"
CASES = [
    (TWO, "1;x\n2;y,z\n", {"format_csv_delimiter": ";"}),
    (TWO, "1|x\n2|\n", {"format_csv_delimiter": "|"}),
    (TWO, '1,"a,b"\n2,"say ""hi"""\n', {}),
    (TWO, "1,'a,b'\n2,'it''s'\n", {"format_csv_allow_single_quotes": 1}),
    (TWO, "1,'x'\n", {"format_csv_allow_single_quotes": 0}),
    (TWO, '1,"x"\n', {"format_csv_allow_double_quotes": 0}),
    (TWO, "1,'a'\n2,\"b\"\n", {"format_csv_allow_single_quotes": 1}),
    (TWO, "1,'a\"b'\n2,\"b'c\"\n", {"format_csv_allow_single_quotes": 1}),
    (TWO, "1,x,\n2,y,\n", {}),
    (TWO, "1,x\n2,y,\n", {}),
    (TWO, "1,x,,\n", {}),
    (TWO, "1,x,9\n", {}),
    (TWO, "1\n", {}),
    (TWO, "1,\n", {}),
    (TWO, "\ufeff1,x\n", {}),
    (TWO, "1,x\r\n2,y\r\n", {}),
    (TWO, '1,"a\nb"\n2,c\n', {}),
    (TWO, "1,x,9\n2\n3,y\n", {"input_format_csv_allow_variable_number_of_columns": 1}),
    (TWO, "1,x\nno,y\n3,z\n", {}),
    (TWO, "1,x\nno,y\n3,z\n", {"input_format_allow_errors_num": 1}),
    (TWO, "1,x\nno,y\nnor,z\n4,w\n", {"input_format_allow_errors_num": 1}),
    (TWO, "1,x\nno,y\nnor,z\n4,w\n", {"input_format_allow_errors_num": 2}),
    (TWO, "1,x\n2,y\n3,z\nno,w\n", {"input_format_allow_errors_ratio": 0.5}),
    (TWO, "no,x\n2,y\n3,z\n", {"input_format_allow_errors_ratio": 0.5}),
    (TWO, "1,x\n2\n3,z\n", {"input_format_allow_errors_num": 1}),
    (TWO, "1,x\n2,y,9\n3,z\n", {"input_format_allow_errors_num": 1}),
    (TWO, "\\N,x\n", {"input_format_null_as_default": 1}),
    (TWO, "\\N,x\n", {"input_format_null_as_default": 0}),
    ("a Nullable(Int32), b Nullable(String)", '\\N,\\N\n1,"\\N"\n', {}),
    ("a Int32 DEFAULT 7, b String", ",x\n", {}),
    ("t DateTime('UTC')", "3 Feb 2024 4:05 PM\n", {"date_time_input_format": "best_effort"}),
    ("t DateTime('UTC')", "03/02/2024 16:05\n", {"date_time_input_format": "best_effort"}),
    ("t DateTime('UTC')", "20240203160500\n", {"date_time_input_format": "best_effort"}),
    ("t DateTime('UTC')", "2024-02-03T16:05:00Z\n", {"date_time_input_format": "best_effort"}),
    ("t DateTime('UTC')", "1700000000\n", {"date_time_input_format": "best_effort"}),
    ("t DateTime('UTC')", "nonsense\n", {"date_time_input_format": "best_effort"}),
    (
        "t DateTime64(3, 'UTC')",
        "Feb 3 2024 04:05:06.789\n",
        {"date_time_input_format": "best_effort"},
    ),
    (
        "t DateTime('UTC')",
        '"Sat, 3 Feb 2024 16:05:06 GMT"\n',
        {"date_time_input_format": "best_effort"},
    ),
]
CASES += [
    (f"t {kind}", f"2024-02-03{clock}\n", {"date_time_input_format": "best_effort"})
    for kind in ("DateTime('UTC')", "DateTime64(3, 'UTC')")
    for clock in (
        *(" 16", "T16", " 1", " 16:05", " 16:5", " 6:5:7", " 160507", " 16:07.5", " 160507.5"),
        *(" 16Z", " 16:05+02:00", " 160", " 1605", " 16:0507", "16:05:07", " 16:", " 1607.5"),
    )
]
# Refused here, and quietly made something else of there.
STRICTER = [
    (TWO, '1,"open\n2,x\n', {}),
    ("t DateTime('UTC')", "3 Feb 2024 4:05 PM\n", {"date_time_input_format": "basic"}),
]


def columns_of(structure: str) -> tuple[Column, ...]:
    found = []
    for text in structure.split(", ") if "64" not in structure else [structure]:
        name, _, rest = text.partition(" ")
        kind, _, default = rest.partition(" DEFAULT ")
        found.append(
            Column(name, kind, default_kind="DEFAULT" if default else "", default=default)
        )
    return tuple(found)


def ours(structure: str, text: str, options: dict[str, object]) -> list[list[str]] | str:
    columns = columns_of(structure)
    settings = QuerySettings.of({name: str(value) for name, value in options.items()})
    write = [formatter(parse_type(column.type), "TSV") for column in columns]
    try:
        tables = list(
            conform(
                CsvFile("in", header=False, content=text.encode()), columns, settings=settings
            )
        )
    except UserError:
        return REFUSED
    rows = []
    for table in tables:
        texts = [
            [as_text(value) for value in column_values(array.combine_chunks())]
            for as_text, array in zip(write, table.columns, strict=True)
        ]
        rows += [list(row) for row in zip(*texts, strict=True)]
    return rows


def theirs(structure: str, text: str, options: dict[str, object]) -> list[list[str]] | str:
    connection().query(f"CREATE OR REPLACE TABLE read_csv ({structure}) ENGINE = Memory")
    options = {"date_time_input_format": "basic", **options}
    given = ", ".join(f"{name} = {json.dumps(value)}" for name, value in options.items())
    given = given.replace('"', "'")
    try:
        connection().query(f"INSERT INTO read_csv SETTINGS {given} FORMAT CSV {text}")
    except Exception:  # noqa: BLE001  chdb has no class of its own
        return REFUSED
    answer = connection().query("SELECT * FROM read_csv", "TSV").bytes().decode()
    return [line.split("\t") for line in answer.splitlines()]


@pytest.mark.parametrize(("structure", "text", "options"), CASES)
def test_csv_is_read_as_clickhouse_reads_it(structure, text, options):
    assert ours(structure, text, options) == theirs(structure, text, options)


@pytest.mark.parametrize(("structure", "text", "options"), STRICTER)
def test_what_clickhouse_guesses_is_refused(structure, text, options):
    assert ours(structure, text, options) == REFUSED
    assert theirs(structure, text, options) != REFUSED
