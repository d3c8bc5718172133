"""Recognizes a Spark DataFrame that reads Parquet files and leaves their rows as they are: then
tasks read the files themselves, and no row goes through the JVM. To turn rows into Arrow there
takes longer than all the rest of an insert.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

SCANNED_BYTES_MIN = 16 << 20
"""To ask Spark about a DataFrame takes longer than to insert smaller files through it."""

_ARROW_TYPES: Mapping[str, str] = {
    "boolean": "bool",
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date32[day]",
    "timestamp": "timestamp[us, tz=UTC]",
}
"""Spark's types, and the types of Arrow whose values in a Parquet file are the same."""

_PATTERN = frozenset("*?[]{}\\")
_SPARK_WROTE_IT = b"org.apache.spark.version"
_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


def scanned_files(frame: Any) -> list[str]:
    """The Parquet files on this host of which the DataFrame is all rows and columns, as they are.
    Empty for any other DataFrame, for small files, and where Spark may read another value than is
    in the file: a type that Arrow reads differently, or times of the Julian calendar.

    That the DataFrame is nothing else Spark itself says: one that only reads these files, or their
    directory, has the same semantics.
    """
    files = [_local_path(url) for url in frame.inputFiles()]
    if not files or None in files:
        return []
    paths = sorted(path for path in files if path is not None)
    try:
        if sum(map(os.path.getsize, paths)) < SCANNED_BYTES_MIN:
            return []
        metadata = [pq.read_metadata(path) for path in paths]
    except (pa.ArrowException, OSError):
        return []  # Spark says what is wrong with them
    wanted = {
        field.name: _ARROW_TYPES.get(field.dataType.simpleString())
        for field in frame.schema.fields
    }
    if not all(_is_read_alike(one, wanted) for one in metadata):
        return []
    return paths if _only_reads(frame, paths) else []


def _only_reads(frame: Any, paths: Sequence[str]) -> bool:
    reader = frame.sparkSession.read
    candidates = [paths, *_directory_of(paths)]
    return any(frame.sameSemantics(reader.parquet(*one)) for one in candidates)


def _directory_of(paths: Sequence[str]) -> list[list[str]]:
    """The directory that Spark would read as these files, if there is one. It is not asked about
    one with others: these may be no Parquet files, which is an error, or very many.
    """
    directories = {Path(path).parent for path in paths}
    if len(directories) > 1:
        return []
    [directory] = directories
    there = [entry for entry in directory.iterdir() if entry.name[0] not in "._"]
    return [[str(directory)]] if len(there) == len(paths) else []


def _is_read_alike(file: pq.FileMetaData, wanted: Mapping[str, str | None]) -> bool:
    schema = file.schema.to_arrow_schema()
    noted = file.metadata or {}
    is_old = noted.get(_SPARK_WROTE_IT, b"9").startswith((b"1.", b"2."))
    there = {field.name: str(field.type) for field in schema}
    return not is_old and not any(one in noted for one in _LEGACY) and there == wanted


def _local_path(url: str) -> str | None:
    """The path of a file on this host; None for one that is elsewhere, or whose name a reader of
    Spark takes for a pattern.
    """
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.scheme != "file" or parts.netloc or _PATTERN.intersection(path):
        return None
    return path if Path(path).is_file() else None
