"""Three rows in every form that an insert takes, and their table's columns."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from rmt_pipeline.compute.inputs.conform import conform
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.syntax.types import arrow_schema

COLUMNS = (
    Column("id", "UInt8"),
    Column("day", "Date"),
    Column("name", "Nullable(String)"),
    Column("price", "Float64"),
)
ROWS = [
    {"id": 1, "day": dt.date(2013, 7, 1), "name": "a", "price": 1.5},
    {"id": 2, "day": dt.date(2013, 7, 2), "name": None, "price": -2.0},
    {"id": 3, "day": dt.date(2013, 7, 3), "name": 'say "hi",\nthen go', "price": 0.0},
]
TABLE = pa.Table.from_pylist(ROWS)


def rows_of(data: Any, columns: tuple[Column, ...] = COLUMNS, **options: Any) -> list[dict]:
    given = options.pop("given", None)
    keys = options.pop("keys", ())
    tables = list(
        conform(
            data,
            columns,
            settings=QuerySettings(**options),
            columns_given=given,
            key_columns=keys,
        )
    )
    stored = [column for column in columns if column.default_kind not in ("ALIAS", "EPHEMERAL")]
    for table in tables:
        assert table.schema.equals(arrow_schema(stored), check_metadata=True)
    return [row for table in tables for row in table.to_pylist()]


def csv_file(path: Path, text: str | bytes, name: str = "in.csv") -> Path:
    file = path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


CSV = """id,day,name,price
1,2013-07-01,a,1.5
2,2013-07-02,\\N,-2
3,2013-07-03,"say ""hi"",
then go",0
"""
JSON = "".join(json.dumps({**row, "day": str(row["day"])}) + "\n" for row in ROWS)

TSV = '1\t2013-07-01\ta\t1.5\n2\t2013-07-02\t\\N\t-2\n3\t2013-07-03\tsay "hi",\\nthen go\t0\n'
