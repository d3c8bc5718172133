"""Of which files a Spark DataFrame is all rows, as they are. With Spark itself: `tests/spark`."""

from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmt_pipeline.compute.insert import scanned
from rmt_pipeline.compute.insert.scanned import scanned_files


class Frame:
    """What is asked of a DataFrame. It is `same` as one that reads its files."""

    def __init__(self, *urls, same=True, kind="bigint"):
        self.urls, self.same = urls, same
        field = SimpleNamespace(name="n", dataType=SimpleNamespace(simpleString=lambda: kind))
        self.schema = SimpleNamespace(fields=[field])
        reader = SimpleNamespace(parquet=lambda *paths: paths)
        self.sparkSession = SimpleNamespace(read=reader)

    def inputFiles(self):  # noqa: N802  Spark's name
        return self.urls

    def sameSemantics(self, other):  # noqa: N802  Spark's name
        return self.same


@pytest.fixture(autouse=True)
def however_small(monkeypatch):
    monkeypatch.setattr(scanned, "SCANNED_BYTES_MIN", 0)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a file.parquet"
    pq.write_table(pa.table({"n": [1, 2]}), path)
    return path


def test_its_files_are_named_without_what_a_url_escapes(file):
    assert scanned_files(Frame(file.as_uri())) == [str(file)]


def test_who_computes_other_rows_is_not_taken_for_its_files(file):
    assert scanned_files(Frame(file.as_uri(), same=False)) == []


@pytest.mark.parametrize(
    "frame",
    [
        Frame(),
        Frame("hdfs://there/a.parquet"),
        Frame("file://there/a.parquet"),
        Frame("file:///nowhere/a.parquet"),
    ],
)
def test_what_is_not_a_file_of_this_host_is_left_to_spark(frame):
    assert scanned_files(frame) == []


def test_a_name_that_spark_takes_for_a_pattern_is_left_to_it(file):
    assert scanned_files(Frame(file.rename(file.parent / "[ab].parquet").as_uri())) == []


def test_a_column_that_spark_reads_as_another_type_is_left_to_it(file):
    assert scanned_files(Frame(file.as_uri(), kind="int")) == []
    assert scanned_files(Frame(file.as_uri(), kind="timestamp_ntz")) == []


def test_a_file_that_is_no_parquet_is_left_to_it(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_text("n")
    assert scanned_files(Frame(path.as_uri())) == []


def test_small_files_are_left_to_it(file, monkeypatch):
    monkeypatch.setattr(scanned, "SCANNED_BYTES_MIN", file.stat().st_size + 1)
    assert scanned_files(Frame(file.as_uri())) == []


def test_a_directory_with_other_files_is_not_asked_about(file):
    """Spark refuses to read one whose first file is no Parquet: so it was with each DataFrame that
    computed something of a file with such neighbours.
    """

    def parquet(*paths):
        assert paths == (str(file),), "there are other files in the directory"

    frame = Frame(file.as_uri(), same=False)
    frame.sparkSession.read.parquet = parquet
    (file.parent / "README.md").write_text("of the files")
    assert scanned_files(frame) == []
