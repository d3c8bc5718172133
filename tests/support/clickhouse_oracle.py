"""ClickHouse itself (the chdb package), asked for the right answer."""

import re
from contextlib import suppress
from functools import lru_cache

import chdb
import pyarrow as pa

from rmt_pipeline.protocol.table import Column
from rmt_pipeline.syntax.types import arrow_schema, parse_type
from rmt_pipeline.types.escapes import unescape_literal
from rmt_pipeline.types.from_text import parse_value

# What the answers stand on: our servers' zone, defaults of 24.x that later versions changed,
# functions that later versions discourage, and a letter of formatDateTime as in 18.16.
SETTINGS = (
    "SETTINGS session_timezone = 'UTC', output_format_json_quote_64bit_integers = 1, "
    "allow_deprecated_error_prone_window_functions = 1, any_join_distinct_right_table_keys = 1, "
    "formatdatetime_parsedatetime_m_is_month_name = 0"
)


class ClickHouseRefused(Exception):
    """ClickHouse answered with an error; the text is its message."""


@lru_cache(maxsize=1)
def connection() -> "chdb.Connection":
    return chdb.connect(":memory:")


def ask(query: str, output: str = "TSV") -> str:
    """The answer without its last newline. Raises ClickHouseRefused."""
    try:
        answer = connection().query(f"{query} {SETTINGS}", output)
    except Exception as problem:  # noqa: BLE001  chdb has no class of its own
        with suppress(Exception):  # chdb answers the next query with what was left of this one
            connection().query("SELECT 0")
        raise ClickHouseRefused(str(problem)) from None
    return answer.bytes().decode("utf-8", "surrogateescape").removesuffix("\n")


def type_name(expression: str, table: str = "") -> str:
    """`toTypeName`, on one line."""
    source = f" FROM {table} LIMIT 1" if table else ""
    return re.sub(r"\s*\n\s*", "", ask(f"SELECT toTypeName({expression}){source}", "TSVRaw"))


def create_table(name: str, columns: tuple[Column, ...], values: str) -> pa.Table:
    """The same rows in ClickHouse, as table `name`, and as Arrow in the stored forms."""
    listed = ", ".join(f"`{column.name}` {column.type}" for column in columns)
    connection().query(f"DROP TABLE IF EXISTS {name}")
    connection().query(f"CREATE TABLE {name} ({listed}) ENGINE = MergeTree ORDER BY tuple()")
    connection().query(f"INSERT INTO {name} VALUES {values}")
    rows = [line.split("\t") for line in ask(f"SELECT * FROM {name}").split("\n")]
    arrays = []
    for place, column in enumerate(columns):
        data_type = parse_type(column.type)
        # TSV escapes what is inside of arrays, tuples and maps once: their own quoting does.
        plain = (
            unescape_literal if data_type.plain.family not in {"Array", "Tuple", "Map"} else str
        )
        fields = [row[place] for row in rows]
        read = [parse_value(data_type, None if x == "\\N" else plain(x)) for x in fields]
        arrays.append(pa.array(read, data_type.arrow))
    return pa.Table.from_arrays(arrays, schema=arrow_schema(columns))
