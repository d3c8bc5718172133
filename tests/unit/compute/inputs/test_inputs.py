"""Data of every kind comes in as the same rows; what is wrong is named, with its place."""

import datetime as dt
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from rmt_pipeline.compute.inputs import memory as input_memory
from rmt_pipeline.compute.inputs.conform import CsvFile, JsonLinesFile, ParquetFile
from rmt_pipeline.protocol.errors import BadValue, IncorrectData, UnknownColumn, UserError
from rmt_pipeline.protocol.table import Column
from tests.support.insert_data import COLUMNS, CSV, JSON, ROWS, TABLE, csv_file, rows_of

IN_MEMORY = {
    "Table": lambda: TABLE,
    "RecordBatch": lambda: TABLE.to_batches()[0],
    "RecordBatchReader": lambda: TABLE.to_reader(max_chunksize=1),
    "Dataset": lambda: ds.dataset(TABLE),
    "pandas": TABLE.to_pandas,
    "pandas of Arrow": lambda: TABLE.to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda: pl.DataFrame(ROWS),
    "dicts": ROWS.copy,
    "a generator of dicts": ROWS.__iter__,
}


@pytest.mark.parametrize("kind", IN_MEMORY)
def test_every_kind_of_table_gives_the_same_rows(kind: str) -> None:
    assert rows_of(IN_MEMORY[kind]()) == ROWS


def test_files_give_the_same_rows(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "in.parquet", row_group_size=2)
    assert rows_of(ParquetFile(tmp_path / "in.parquet")) == ROWS
    assert rows_of(CsvFile(csv_file(tmp_path, CSV))) == ROWS
    assert rows_of(JsonLinesFile(csv_file(tmp_path, JSON, "in.jsonl"))) == ROWS


def test_compressed_files_are_known_by_their_names(tmp_path: Path) -> None:
    packed = csv_file(tmp_path, gzip.compress(CSV.encode()), "in.csv.gz")
    assert rows_of(CsvFile(packed)) == ROWS
    lines = csv_file(tmp_path, pa.compress(JSON.encode(), "zstd", asbytes=True), "in.jsonl.zst")
    assert rows_of(JsonLinesFile(lines)) == ROWS


def test_a_pattern_names_many_files_read_in_order(tmp_path: Path) -> None:
    for number, row in enumerate(JSON.splitlines()):
        csv_file(tmp_path, row, f"{number}.jsonl")
    assert rows_of(JsonLinesFile(tmp_path / "*.jsonl")) == ROWS
    odd = csv_file(tmp_path, CSV, "odd[name].csv")
    assert rows_of(CsvFile(odd)) == ROWS


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none-\*\.csv does not exist"):
        rows_of(CsvFile(tmp_path / "none-*.csv"))
    with pytest.raises(UserError, match="is a directory"):
        rows_of(CsvFile(tmp_path))


def test_no_rows_are_no_error() -> None:
    assert rows_of(TABLE.slice(0, 0)) == []
    assert rows_of([]) == []
    assert rows_of(TABLE.slice(0, 0).to_pandas()) == []
    with pytest.raises(UnknownColumn, match="nonsense"):
        rows_of(pa.table({"nonsense": pa.array([], pa.int8())}))


# What is missing


def test_a_missing_column_gets_its_types_default() -> None:
    assert rows_of([{"id": 7}]) == [
        {"id": 7, "day": dt.date(1970, 1, 1), "name": None, "price": 0.0}
    ]
    assert rows_of(pa.table({"price": [1.5]}))[0]["id"] == 0


def test_a_key_missing_in_some_rows_gets_the_default_there() -> None:
    found = rows_of([{"id": 1, "price": 2.5}, {"price": 3.5}, {"id": 3}])
    assert [(row["id"], row["price"]) for row in found] == [(1, 2.5), (0, 3.5), (3, 0.0)]


def test_nested_defaults() -> None:
    columns = (
        Column("id", "Int8"),
        Column("list", "Array(Int8)"),
        Column("pair", "Tuple(a Int8, b String)"),
        Column("map", "Map(String, Int8)"),
    )
    empty = {"list": [], "pair": {"a": 0, "b": ""}, "map": []}
    assert rows_of([{"id": 1}], columns) == [{"id": 1, **empty}]
    assert rows_of([{"id": 1}, {"list": [1]}], columns) == [
        {"id": 1, **empty},
        {"id": 0, **empty, "list": [1]},
    ]


def test_the_list_of_columns_says_which_the_data_may_have(tmp_path: Path) -> None:
    assert rows_of([{"id": 1}], given=["id", "price"])[0]["price"] == 0
    with pytest.raises(UserError, match="column price, but the list of columns lacks it"):
        rows_of([{"price": 1}], given=["id"])
    with pytest.raises(UnknownColumn, match="no column 'idd'; did you mean 'id'"):
        rows_of([], given=["idd"])
    with pytest.raises(UserError, match="twice"):
        rows_of([], given=["id", "id"])
    headless = CsvFile(csv_file(tmp_path, "1.5,7\n"), header=False)
    found = rows_of(headless, given=["price", "id"])
    assert (found[0]["id"], found[0]["price"]) == (7, 1.5)


def test_computed_columns_can_not_be_given() -> None:
    columns = (*COLUMNS, Column("twice", "UInt16", "MATERIALIZED", "id * 2"))
    with pytest.raises(UserError, match="twice, but it is MATERIALIZED"):
        rows_of([{"twice": 4}], columns)
    with pytest.raises(UserError, match="twice is MATERIALIZED: its values are computed"):
        rows_of([], columns, given=["twice"])


def test_an_alias_is_not_stored_and_an_ephemeral_column_only_read() -> None:
    columns = (
        Column("id", "UInt8"),
        Column("same", "UInt8", "ALIAS", "id"),
        Column("raw", "String", "EPHEMERAL"),
    )
    assert rows_of([{"id": 1, "raw": "x"}], columns) == [{"id": 1}]


# NULL


def test_null_in_memory_is_never_a_default() -> None:
    with pytest.raises(BadValue, match=r"^row 2, column id: NULL does not fit UInt8"):
        rows_of([{"id": 1}, {"id": None}])
    with pytest.raises(BadValue, match=r"^row 2, column id: NULL does not fit UInt8"):
        rows_of(pa.table({"id": [1, None]}))


def test_null_of_a_file_is_the_default_as_the_setting_says(tmp_path: Path) -> None:
    null = pa.table({"id": pa.array([1, None], pa.uint8())})
    pq.write_table(null, tmp_path / "in.parquet")
    files = [
        ParquetFile(tmp_path / "in.parquet"),
        CsvFile(csv_file(tmp_path, "id\n1\n\\N\n")),
        JsonLinesFile(csv_file(tmp_path, '{"id":1}\n{"id":null}\n', "in.jsonl")),
    ]
    places = ["in.parquet row 2", "in.csv line 3", "in.jsonl line 2"]
    for file, place in zip(files, places, strict=True):
        assert [row["id"] for row in rows_of(file)] == [1, 0]
        with pytest.raises(BadValue, match=f"{place}, column id: NULL does not fit UInt8"):
            rows_of(file, input_format_null_as_default=False)
        with pytest.raises(BadValue, match=f"{place}, column id: NULL does not fit UInt8"):
            rows_of(file, keys=["id"])


def test_an_empty_csv_value_is_the_default_as_the_setting_says(tmp_path: Path) -> None:
    file = CsvFile(csv_file(tmp_path, "id,name,price\n,,\n5,x,2\n"))
    found = [(row["id"], row["name"], row["price"]) for row in rows_of(file)]
    assert found == [(0, None, 0.0), (5, "x", 2.0)]
    with pytest.raises(BadValue, match=r"in\.csv line 2, column id: '' is not an integer"):
        rows_of(file, input_format_csv_empty_as_default=False)


def test_empty_and_null_are_told_apart_in_csv(tmp_path: Path) -> None:
    file = CsvFile(csv_file(tmp_path, "id,price\n,1\n\\N,2\n"))
    with pytest.raises(BadValue, match=r"in\.csv line 3, column id: NULL"):
        rows_of(file, keys=["id"])
    assert [row["id"] for row in rows_of(file)] == [0, 0]


def test_nan_of_pandas_is_null_where_null_may_be() -> None:
    frame = pd.DataFrame({"price": [1.5, np.nan], "name": ["x", np.nan]})
    found = rows_of(frame)
    assert np.isnan(found[1]["price"])
    assert found[1]["name"] is None
    nullable = (Column("price", "Nullable(Float64)"), Column("name", "Nullable(String)"))
    assert rows_of(frame, nullable)[1] == {"price": None, "name": None}
    whole = pd.DataFrame({"id": [1.0, np.nan]})
    with pytest.raises(BadValue, match="row 2, column id: NULL"):
        rows_of(whole)
    assert rows_of(whole, (Column("id", "Nullable(UInt8)"),))[1] == {"id": None}


def test_pandas_columns_of_mixed_values_are_read_one_by_one() -> None:
    frame = pd.DataFrame({"id": [1, "2"]}, dtype=object)
    assert [row["id"] for row in rows_of(frame)] == [1, 2]
    frame = pd.DataFrame({"id": [1, "x"]}, dtype=object)
    with pytest.raises(BadValue, match="row 2, column id: 'x' is not an integer"):
        rows_of(frame)
    missing = [pd.NA, None, np.nan, np.float32("nan"), pd.NaT]
    frame = pd.DataFrame({"id": [1, "2", *missing]}, dtype=object)
    found = rows_of(frame, (Column("id", "Nullable(UInt8)"),))
    assert [row["id"] for row in found] == [1, 2, *[None] * 5]
    lists = pd.DataFrame({"id": [np.array([1, 2]), [1, "3"]]}, dtype=object)
    assert rows_of(lists, (Column("id", "Array(UInt8)"),))[1]["id"] == [1, 3]
    huge = pd.DataFrame({"n": [2**100]}, dtype=object)
    assert len(rows_of(huge, (Column("n", "Int128"),))) == 1


def test_what_pandas_has_grouped_by_is_a_column() -> None:
    """It was left out, and each row got the column's default."""
    frame = pd.DataFrame({"id": [7, 7, 8], "name": ["x", "x", "y"], "price": [1.0, 2.0, 4.0]})
    wanted = [{"id": 7, "name": "x", "price": 3.0}, {"id": 8, "name": "y", "price": 4.0}]
    columns = (Column("id", "UInt8"), Column("name", "String"), Column("price", "Float64"))
    grouped = frame.groupby(["id", "name"]).sum()
    assert rows_of(grouped, columns) == wanted
    assert rows_of(grouped.reset_index().set_index("id", drop=False), columns) == wanted
    assert rows_of(grouped.reset_index().iloc[::-1].sort_values("id"), columns) == wanted
    with pytest.raises(UnknownColumn, match="no column 'day'"):
        rows_of(frame.rename_axis("day"), columns)


# What does not fit


WRONG: list[tuple[Any, str]] = [
    (
        [{"id": 1}, {"id": 300}],
        r"^row 2, column id: 300 .*does not fit UInt8 \(0 to 255\)\. Noth",
    ),
    (pa.table({"id": [1, -1]}), r"^row 2, column id: -1 .*does not fit UInt8"),
    (pa.table({"id": ["x"]}), "row 1, column id: 'x' is not an integer"),
    (pa.table({"day": [5]}), r"row 1, column day: 5 \(int\) does not fit Date"),
    (pd.DataFrame({"name": [5]}), "row 1, column name: 5"),
    ([{"price": "cheap"}], "row 1, column price: 'cheap' is not a number"),
]


@pytest.mark.parametrize(("data", "message"), WRONG)
def test_a_value_that_does_not_fit_is_named_with_its_row(data: Any, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        rows_of(data)


def test_rows_are_counted_over_all_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_memory, "BATCH_ROWS", 10)
    monkeypatch.setattr(input_memory, "PYTHON_ROWS", 10)
    ids = [1] * 25 + [300]
    for data in (
        pa.table({"id": ids}),
        pd.DataFrame({"id": ids}),
        [{"id": each} for each in ids],
        pa.table({"id": ids}).to_reader(max_chunksize=7),
    ):
        with pytest.raises(BadValue, match="row 26, column id"):
            rows_of(data)


def test_an_unknown_column_is_named_with_the_nearest_one(tmp_path: Path) -> None:
    message = "the table has no column 'prize'; did you mean 'price'"
    text = '{"id":1}\n{"prize":2}\n'
    for data in (
        pa.table({"prize": [1]}),
        [{"prize": 1}],
        CsvFile(csv_file(tmp_path, "id,prize\n1,2\n")),
        JsonLinesFile(csv_file(tmp_path, text, "in.jsonl")),
    ):
        with pytest.raises(UnknownColumn, match=message):
            rows_of(data)
        assert rows_of(data, input_format_skip_unknown_fields=True)


def test_what_is_no_table_is_refused() -> None:
    for data in (5, "text", {"id": 1}, [1]):
        with pytest.raises(UserError, match="dict"):
            rows_of(data)
    with pytest.raises(UserError, match="two columns 'a'"):
        rows_of(pa.table([pa.array([1]), pa.array([2])], ["a", "a"]))
    with pytest.raises(UserError, match="no name of its own"):
        rows_of(pd.DataFrame([[1]]))


def test_a_broken_parquet_file_is_named(tmp_path: Path) -> None:
    broken = csv_file(tmp_path, b"PAR1 but no more", "in.parquet")
    with pytest.raises(IncorrectData, match=r"in\.parquet can't be read as Parquet"):
        rows_of(ParquetFile(broken))
