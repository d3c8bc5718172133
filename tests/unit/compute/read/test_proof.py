"""Bounds that a manifest claims, beside files that have them in their footers, or nowhere."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmt_pipeline.compute.read.proof import difference_from_bounds
from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.store.manifest import KeyBound, PartColumn
from tests.support.parts import manifest_of

ROWS = pa.table(
    {
        "n": pa.array([2**63 + 1, None, 3], pa.uint64()),
        "s": pa.array(["b", None, "ü"], pa.string()),
        "day": pa.array([1, None, 3], pa.date32()),
        "none": pa.array([None, None, None], pa.int8()),
    }
)
TYPES = {
    "n": "Nullable(UInt64)",
    "s": "LowCardinality(Nullable(String))",
    "day": "Nullable(Date)",
    "none": "Nullable(Int8)",
}


def difference(directory: Path, *bounds: KeyBound, statistics: bool) -> str | None:
    paths = []
    for number, rows in enumerate((ROWS.slice(0, 2), ROWS.slice(2))):
        paths.append(str(directory / f"data-{number:05d}.parquet"))
        pq.write_table(rows, paths[-1], write_statistics=statistics, store_schema=False)
    columns = tuple(PartColumn(*column) for column in TYPES.items())
    hashes = dict.fromkeys(TYPES, 0)
    claims = replace(
        manifest_of({}), columns=columns, column_hashes=hashes, key_bounds=tuple(bounds)
    )
    return difference_from_bounds(claims, paths)


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        (KeyBound("n", 3, 2**63 + 1), None),
        (KeyBound("n", 3, 2**63), f"n: its manifest says 3 to {2**63}, its files have 3 to"),
        (KeyBound("n", 4, 2**64), "n: its manifest says 4 to"),
        (KeyBound("n", "3", "9"), "n: its manifest says 3 to 9"),
        (KeyBound("s", "b", "ü"), None),
        (KeyBound("s", "b", "u"), "s: its manifest says b to u, its files have b to ü"),
        (KeyBound("s", "c", "ü"), "s: its manifest says c to ü, its files have b to ü"),
        (KeyBound("none", 5, 4), None),
        (KeyBound("day", "2000-01-01", "2000-01-01"), None),
    ],
)
def test_what_is_beyond_the_bounds_is_found(tmp_path, bound, expected, *, statistics):
    """Of what is compared as it is stored; by bounds of days nothing is passed by."""
    found = difference(tmp_path, bound, statistics=statistics)
    assert (found or "").startswith(expected or "\0") or found is expected


def test_a_file_that_is_none_is_said(tmp_path):
    difference(tmp_path, statistics=True)
    (tmp_path / "data-00001.parquet").write_bytes(b"PAR1")
    with pytest.raises(Corruption, match=r"data-00001.parquet is not a readable Parquet file"):
        difference_from_bounds(
            replace(
                manifest_of({}),
                columns=(PartColumn("n", "Nullable(UInt64)"),),
                column_hashes={"n": 0},
                key_bounds=(KeyBound("n", 0, 2**64),),
            ),
            [str(tmp_path / f"data-{number:05d}.parquet") for number in range(2)],
        )
