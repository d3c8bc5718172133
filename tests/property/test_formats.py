"""Every decoder: the inverse of its encoder, and any bytes give a value or Corruption."""

from hypothesis import given, settings
from hypothesis import strategies as st

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.inserts.rows import InsertRows
from rmt_pipeline.protocol.log.codec import decode, encode
from rmt_pipeline.protocol.log.entry import LogEntry
from rmt_pipeline.protocol.nodes.columns import columns_text, parse_columns
from rmt_pipeline.protocol.nodes.formats import (
    AddedParts,
    MutationEntry,
    PartHeader,
    QuorumEntry,
    ReplicaAddress,
)
from rmt_pipeline.protocol.nodes.metadata import Metadata, metadata_mismatch, parse_metadata
from rmt_pipeline.protocol.nodes.records import (
    AS_STORED,
    NO_BLOCK,
    UNKNOWN_BLOCK,
    Attempts,
    Claim,
    InsertBatch,
    InsertRecord,
    MissingRows,
    PartitionRows,
)
from rmt_pipeline.protocol.nodes.tasks import NamesBefore, Task, TaskOutcome
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.table import Column
from tests.support.strategies import (
    log_entries,
    numbers,
    part_names,
    partitions,
    replica_names,
    texts,
    times,
)

hashes = st.binary(min_size=16, max_size=16)
ports = st.integers(0, 65_535)
counts = st.integers(0, 2**31 - 1)
hex_hashes = st.binary(min_size=16, max_size=16).map(bytes.hex)
one_liners = st.text(
    st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=9
)

addresses = st.builds(
    ReplicaAddress, texts, ports, ports, texts, texts, st.sampled_from(["http", "https"])
)
quorums = st.builds(QuorumEntry, part_names(), counts, st.lists(texts, max_size=4).map(tuple))
added_parts = st.lists(part_names(), max_size=4).map(AddedParts.of)
headers = st.builds(PartHeader, hashes, numbers, hashes, hashes, hashes, numbers)
mutations = st.builds(
    MutationEntry,
    times,
    replica_names,
    st.dictionaries(partitions, numbers, max_size=4).map(lambda d: tuple(sorted(d.items()))),
    texts,
    st.integers(-1, 2**31 - 1),
)
claims = st.builds(Claim, texts, st.lists(part_names(), max_size=4).map(tuple))
attempts = st.builds(Attempts, counts, texts, times, texts)
unknown = (UNKNOWN_BLOCK, UNKNOWN_BLOCK)
blocks = st.just((*unknown, *unknown)) | st.lists(counts, min_size=4, max_size=4).map(
    lambda four: (min(four), max(four), sorted(four)[1], sorted(four)[2])
)
own_blocks = st.tuples(blocks, st.sampled_from((None, NO_BLOCK, UNKNOWN_BLOCK))).map(
    lambda one: one[0] if one[1] is None or one[0][0] < 0 else (*one[0][:2], one[1], one[1])
)
partition_lines = st.builds(
    lambda name, rows, text, held, more: PartitionRows(
        name, rows, text, *held, rows + more if more else AS_STORED
    ),
    partitions,
    numbers,
    hex_hashes,
    own_blocks,
    st.integers(0, 3),
)
partition_rows = st.lists(partition_lines, max_size=4).map(lambda found: tuple(sorted(found)))
missing_rows = st.dictionaries(partitions, counts, max_size=3).map(
    lambda found: tuple(MissingRows(*one) for one in sorted(found.items()))
)
insert_batches = st.builds(InsertBatch, partition_rows)


@st.composite
def inserts(draw: st.DrawFn) -> InsertRecord:
    rows = draw(numbers)
    return InsertRecord(
        draw(times),
        draw(texts),
        draw(texts),
        draw(partition_rows),
        draw(counts),
        rows,
        draw(st.just("") | hex_hashes),
        draw(st.integers(0, rows)),
        draw(counts),
        draw(missing_rows),
    )


NODES = (
    addresses
    | quorums
    | added_parts
    | headers
    | mutations
    | claims
    | attempts
    | insert_batches
    | inserts()
)
columns = st.lists(
    st.builds(
        Column,
        texts.filter(bool),
        texts.filter(bool),
        comment=texts,
        codec=texts,
        ttl=texts,
    )
    | st.builds(Column, texts.filter(bool), st.just("Int8"), st.just("DEFAULT"), texts),
    max_size=5,
    unique_by=lambda column: column.name,
).map(tuple)
metadata = st.builds(
    Metadata,
    one_liners,
    one_liners,
    st.integers(0, 7),
    *[one_liners] * 12,
    counts,
    counts,
    st.integers(0, 1),
    counts,
)


@given(log_entries())
def test_log_entries_are_read_back(entry: LogEntry) -> None:
    """P4."""
    assert decode(encode(entry)) == entry


@given(NODES)
def test_nodes_are_read_back(node) -> None:
    """P4."""
    assert type(node).decode(node.encode()) == node


@given(columns)
def test_columns_are_read_back(given_columns: tuple[Column, ...]) -> None:
    """P4."""
    assert parse_columns(columns_text(given_columns)) == given_columns


@given(metadata, metadata)
def test_metadata_are_read_back_and_compared(mine: Metadata, theirs: Metadata) -> None:
    """P4, P27."""
    assert parse_metadata(mine.text) == mine
    assert metadata_mismatch(mine, mine.text) is None
    differs = metadata_mismatch(mine.text, theirs.text) is not None
    ignored = {"merge_parameters_version"}
    names = [name for name in Metadata.__slots__ if name not in ignored]
    assert differs == any(getattr(mine, name) != getattr(theirs, name) for name in names)


DECODERS = (
    decode,
    ReplicaAddress.decode,
    QuorumEntry.decode,
    AddedParts.decode,
    PartHeader.decode,
    MutationEntry.decode,
    Claim.decode,
    Attempts.decode,
    InsertRecord.decode,
    InsertBatch.decode,
    Task.decode,
    TaskOutcome.decode,
    NamesBefore.decode,
    lambda data: parse_columns(data.decode(errors="replace")),
    lambda data: parse_metadata(data.decode(errors="replace")),
)
VALID = (
    log_entries().map(encode)
    | NODES.map(lambda node: node.encode())
    | columns.map(lambda found: columns_text(found).encode())
    | metadata.map(lambda found: found.text.encode())
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A valid text with a few bytes cut out, put in, or taken from another text."""
    data = draw(VALID)
    for _ in range(draw(st.integers(1, 3))):
        begin = draw(st.integers(0, len(data)))
        end = draw(st.integers(begin, min(len(data), begin + 12)))
        put = draw(
            st.binary(max_size=6) | st.sampled_from([b"\n", b"\\", b"0", b"-1", b"9" * 19])
        )
        data = data[:begin] + put + data[end:]
    return data


@given(damaged())
@settings(max_examples=400)
def test_damaged_texts_are_values_or_corrupt(data: bytes) -> None:
    """P4. Never another error."""
    for decoder in DECODERS:
        try:
            decoder(data)
        except Corruption:
            continue


@given(st.binary(max_size=200))
def test_any_bytes_are_values_or_corrupt(data: bytes) -> None:
    """P4."""
    for decoder in DECODERS:
        try:
            decoder(data)
        except Corruption:
            continue


@given(log_entries(), st.data())
def test_an_entry_that_ends_in_the_middle_of_a_line_is_corrupt(
    entry: LogEntry, data: st.DataObject
) -> None:
    """P4. Only where a line is optional may a shorter text be a whole one."""
    text = encode(entry)
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    try:
        decode(cut)
    except Corruption:
        return
    assert cut.endswith(b"\n")


@given(inserts(), st.lists(part_names(), max_size=3), st.booleans())
def test_a_record_that_loses_something_is_not_passed_over(record, dropped, are_held):
    """By the lines of its text alone."""
    if are_held:
        dropped = [
            PartName(one.partition, max(0, one.first), max(0, one.last), 9)
            for one in record.partitions[:1]
        ]
    rows = InsertRows(record)
    is_told = InsertRecord.may_be_of(record.encode(), {one.partition for one in dropped})
    for left in (
        rows.after_drop(dropped, "x"),
        *(rows.after_loss(one, "x") for one in dropped),
    ):
        assert is_told or left == rows
    others = {"no such partition", "created: 1"}
    assert InsertRecord.may_be_of(record.encode(), others) == (record.batches > 0)
