"""The whole tree of a table on a real ClickHouse 18.16, and one text of each kind that we write."""

from pathlib import Path
from typing import get_args

import pytest

from rmt_pipeline.protocol.log.codec import decode, encode
from rmt_pipeline.protocol.log.entry import LogEntry, describe_entry, kind_name
from rmt_pipeline.protocol.nodes.columns import columns_text, parse_columns
from rmt_pipeline.protocol.nodes.formats import (
    AddedParts,
    MutationEntry,
    PartHeader,
    ReplicaAddress,
)
from rmt_pipeline.protocol.nodes.metadata import parse_metadata
from rmt_pipeline.protocol.parts.name import PartName
from tests.support.znodes import recorded_nodes

DATA = Path(__file__).parent / "data"
NODES = recorded_nodes(DATA / "znodes_18.16.txt")


def _named(*ends: str) -> list[str]:
    return [path for path, data in NODES.items() if data and path.endswith(ends)]


def _texts() -> list[tuple[str, bytes]]:
    blocks = (DATA / "entries.txt").read_text().split("--- ")[1:]
    pairs = [block.split("\n", 1) for block in blocks]
    return [(description, text.encode()) for description, text in pairs]


def test_recorded_log_entries_are_read_and_written_back_byte_for_byte() -> None:
    """P4. The real thing: inserts, a merge, mutations, a drop, a quorum insert."""
    logged = [data for path, data in NODES.items() if path.startswith("log/")]
    assert [encode(decode(data)) for data in logged] == logged
    assert [kind_name(decode(data)) for data in logged] == [
        "GET_PART",
        "GET_PART",
        "GET_PART",
        "MERGE_PARTS",
        "MUTATE_PART",
        "MUTATE_PART",
        "DROP_RANGE",
        "GET_PART",
    ]
    assert [describe_entry(decode(data)) for data in logged] == [
        "get 1_0_0_0",
        "get 2_0_0_0",
        "get 1_1_1_0",
        "merge 1_0_0_0, 1_1_1_0 into 1_0_1_1",
        "mutate 1_0_1_1 to 1_0_1_1_2",
        "mutate 2_0_0_0 to 2_0_0_0_1",
        "drop range 2_0_1_999999999_1",
        "get 1_3_3_0",
    ]


@pytest.mark.parametrize(("description", "text"), _texts())
def test_every_kind_of_entry_keeps_its_text(description: str, text: bytes) -> None:
    """P4. What older versions wrote must stay readable: these bytes never change."""
    entry = decode(text)
    assert describe_entry(entry) == description
    assert encode(entry) == text


def test_every_kind_of_entry_has_such_a_text() -> None:
    """P4."""
    assert {type(decode(text)) for _, text in _texts()} == set(get_args(LogEntry))


def test_recorded_addresses_columns_and_metadata() -> None:
    """P4."""
    for path in _named("/host"):
        assert ReplicaAddress.decode(NODES[path]).encode() == NODES[path]
    for path in _named("columns"):
        text = NODES[path].decode()
        assert columns_text(parse_columns(text)) == text
    for path in _named("metadata"):
        text = NODES[path].decode()
        assert parse_metadata(text).text == text
    assert parse_metadata(NODES["metadata"].decode()).partition_key == "p"
    assert parse_columns(NODES["columns"].decode())[3].default == "CAST(7, 'Int32')"


def test_recorded_mutation_and_last_quorum_part() -> None:
    """P4. The mutation is of a version that did not write the alter version yet."""
    mutation = MutationEntry.decode(NODES["mutations/0000000000"])
    assert mutation.block_numbers == (("1", 2), ("2", 1))
    assert mutation.commands == "DELETE WHERE key = 105 "
    assert mutation.alter_version == -1
    last = NODES["quorum/last_part"]
    assert AddedParts.decode(last).encode() == last


def test_recorded_checksums_are_the_body_of_a_part_header() -> None:
    """P4. 18.16 kept columns and checksums in two nodes; the newer header holds the same bytes."""
    path = "replicas/r1/parts/1_0_1_1/checksums"
    body = NODES[path].removeprefix(b"checksums format version: 5\n")
    data = b"part header format version: 1\n" + bytes(range(16)) + body
    header = PartHeader.decode(data)
    assert (header.files, header.uncompressed_files) == (3, 7)
    assert header.encode() == data


def test_recorded_block_ids_name_parts() -> None:
    names = [data.decode() for path, data in NODES.items() if path.startswith("blocks/")]
    assert [str(PartName.parse(name)) for name in names] == names
