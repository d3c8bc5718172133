"""`part.json`: read back as written; anything else is Corruption and nothing else."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.store.hashes.checksums import hash_hex
from rmt_pipeline.store.manifest import KeyBound, Manifest, PartColumn, PartFile
from tests.support.parts import manifest_of

GOLDEN = Path(__file__).parents[2] / "golden" / "part_format_1.json"
HASHES = st.integers(0, 2**128 - 1)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
KEY_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXTS,
)


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    names = draw(st.lists(TEXTS, unique=True, max_size=4))
    files = tuple(
        PartFile(
            f"data-{number:05d}.parquet", size, draw(st.binary(min_size=32, max_size=32)).hex()
        )
        for number, size in enumerate(draw(st.lists(st.integers(0, 2**50), max_size=3)))
    )
    return Manifest(
        columns=tuple(PartColumn(name, draw(TEXTS)) for name in names),
        rows=draw(st.integers(0, 2**40)),
        bytes_on_disk=sum(file.size for file in files),
        partition_id=draw(st.text("abc123-", min_size=1)),
        partition=draw(TEXTS),
        key_bounds=tuple(KeyBound(name, draw(KEY_VALUES), draw(KEY_VALUES)) for name in names),
        files=files,
        row_hash=draw(HASHES),
        column_hashes={name: draw(HASHES) for name in names},
        content_hash=draw(HASHES),
        created_s=draw(st.integers(0, 2**33)),
        bytes_uncompressed=draw(st.integers(0, 2**50)),
        insert_id=draw(TEXTS),
        run_id=draw(TEXTS),
        sources=tuple(draw(st.lists(st.sampled_from(["all_1_1_0", "all_2_5_3_9"])))),
        mutations=tuple(draw(st.lists(TEXTS, max_size=2))),
        engine_version=draw(TEXTS),
    )


@given(manifests())
def test_it_reads_back_as_written(manifest: Manifest) -> None:
    assert Manifest.decode(manifest.encode()) == manifest


@given(st.binary(max_size=300))
def test_any_bytes_are_corruption(data: bytes) -> None:
    with pytest.raises(Corruption):
        Manifest.decode(data)


@given(st.data())
def test_a_flipped_bit_is_found(data: st.DataObject) -> None:
    encoded = bytearray(manifest_of({"data-00000.parquet": b"rows"}).encode())
    encoded[data.draw(st.integers(0, len(encoded) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(Corruption):
        Manifest.decode(bytes(encoded))


def forged(**changes: Any) -> bytes:
    """A text whose check sum is right and whose content is not ours."""
    text = manifest_of({"data-00000.parquet": b"rows"}).encode()
    fields = {**json.loads(text), **changes}
    del fields["check"]
    fields = {name: value for name, value in fields.items() if value is not ...}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(fields[name])}" for name in fields)
    return checked(f"{{\n{lines}".encode())


def checked(body: bytes) -> bytes:
    return body + f',\n"check": "{hash_hex(body)}"\n}}\n'.encode()


def test_a_forgery_without_changes_is_the_manifest() -> None:
    assert Manifest.decode(forged()) == manifest_of({"data-00000.parquet": b"rows"})


HASH = "0" * 64
FORGERIES: dict[str, dict[str, Any]] = {
    "format 2; this version reads 1": {"format": 2},
    "rows can't be": {"rows": "3"},
    "rows can't be 'None'": {"rows": ...},
    "can't be negative": {"rows": -1},
    "nor the last more than 2147483647": {"metadata_version": 2**31},
    "as this program writes": {"rows": True},
    "columns can't be": {"columns": [["n", 1]]},
    "appears twice in": {"columns": [["n", "A"], ["n", "B"]]},
    "column hashes": {"columns": []},
    "are not names of data files": {"files": [["../../etc/passwd", 4, HASH]]},
    "not names of data files": {"files": [["part.json", 4, HASH]]},
    "not names of data": {"files": [[".hidden", 4, HASH]]},
    "hash of a file is wrong": {"files": [["data", 4, "00"]]},
    "size or hash": {"files": [["data", -4, HASH]]},
    "a file appears twice": {"files": [["data", 2, HASH], ["data", 2, HASH]]},
    "the files are": {"bytes_on_disk": 5},
    "row_hash can't be": {"row_hash": "xyz"},
    "column_hashes can't be": {"column_hashes": {"n": 7}},
    "sources are not part names": {"sources": ["../x"]},
    "sources can't be": {"sources": [7]},
    "key_bounds can't be": {"key_bounds": [["n", [1], 2]]},
    "as this program": {"something": 1},
}


@pytest.mark.parametrize("message", FORGERIES)
def test_wrong_content_is_named(message: str) -> None:
    with pytest.raises(Corruption, match=message):
        Manifest.decode(forged(**FORGERIES[message]))


@pytest.mark.parametrize(
    "body",
    [b"[", b'{"a": ' + b"[" * 100_000, b'{"format": 1' + b"0" * 10_000, b"\xff", b'{"a":1}'],
)
def test_what_is_not_json_is_corruption_even_with_a_right_check_sum(body: bytes) -> None:
    with pytest.raises(Corruption):
        Manifest.decode(checked(body))


def test_a_manifest_that_contradicts_itself_can_not_exist() -> None:
    with pytest.raises(AssertionError, match="bytes_on_disk"):
        dataclasses.replace(manifest_of({"data": b"rows"}), bytes_on_disk=1)


def test_the_header_compares_rows_and_not_files() -> None:
    """Replicas with equal rows agree, whatever Parquet made of them (spec §0.4.7)."""
    one = manifest_of({"data-00000.parquet": b"rows"}).header()
    other = manifest_of({"data-00000.parquet": b"the same rows, other bytes"}).header()
    assert one.hash_of_all_files != other.hash_of_all_files
    assert one.hash_of_uncompressed_files == other.hash_of_uncompressed_files
    assert one.uncompressed_hash_of_compressed_files == (7).to_bytes(16, "little")
    assert one.columns_hash == other.columns_hash


def test_format_1_is_still_read() -> None:
    """Parts of years are on disks: this file never changes."""
    manifest = Manifest.decode(GOLDEN.read_bytes())
    assert manifest.columns[1] == PartColumn("carrier", "LowCardinality(String)")
    assert manifest.key_bounds == (KeyBound("day", "2013-01-01", "2013-01-31"),)
    assert manifest.sources == ("201301_1_1_0", "201301_2_2_0")
    assert manifest.row_hash == 2**127 + 1
    assert manifest.encode() == GOLDEN.read_bytes()
