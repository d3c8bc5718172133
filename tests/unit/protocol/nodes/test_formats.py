"""Texts of the other nodes (spec §0.4.4 to §0.4.8), and ours."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.nodes.formats import (
    AddedParts,
    MutationEntry,
    PartHeader,
    QuorumEntry,
    QuorumStatus,
    ReplicaAddress,
    proof_of_files,
    varint,
)
from rmt_pipeline.protocol.nodes.records import (
    AS_STORED,
    NO_BLOCK,
    SEARCHED_MAX,
    UNKNOWN_BLOCK,
    Announced,
    AnnouncedTry,
    Attempts,
    Claim,
    InsertBatch,
    InsertRecord,
    LostPart,
    MissingRows,
    PartitionRows,
    Restoring,
    partition_line,
)
from rmt_pipeline.protocol.nodes.tasks import NamesBefore, TableRecord, Task, TaskOutcome
from rmt_pipeline.protocol.parts.name import drop_range
from tests.support.protocol import TIME_S, part, parts

ADDRESS = ReplicaAddress("r1.example", 9009, 9000, "d\tb", "t'", "https")
QUORUM = QuorumEntry(part("a_5_5_0"), 2, ("r1", "r\t2"))
ADDED = AddedParts.of(parts("b_1_1_0 a_5_5_0"))
HEADER = PartHeader(b"c" * 16, 200, b"a" * 16, b"u" * 16, b"r" * 16, 3)
MUTATION = MutationEntry(TIME_S, "r1", (("a", 7), ("b", 2)), "DELETE WHERE x = 'a\nb'", 4)
CLAIM = Claim("r1 fetch\t7", tuple(parts("a_0_1_1 a_0_9_999999999_999999999")))
ATTEMPTS = Attempts(3, "no route\nto r2", TIME_S, "a_0_0_0 is busy", is_unseen=True)
PARTITIONS = (
    PartitionRows("a", 5, "0" * 32, 3, 4, 4, 4, 9),
    PartitionRows("b", 7, "f" * 32),
)
NOTHING_NEW = PartitionRows("c", 1, "1" * 32, 3, 3, NO_BLOCK, NO_BLOCK)
RECORD = InsertRecord(TIME_S, "r1", "run-7", PARTITIONS, 2, 13, "a" * 32, 13)
LESS = replace(RECORD, batches=1, partitions=(), missing=(MissingRows("a", 3),))
BEGUN = InsertRecord(TIME_S, "r1", "", (), 2, 40, "a" * 32, 13, batches=1)
BATCH = InsertBatch((*PARTITIONS, NOTHING_NEW))

GOLDEN = [
    (
        ADDRESS,
        (
            b"host: r1.example\nport: 9009\ntcp_port: 9000\ndatabase: d\\tb\ntable: t\\'\n"
            b"scheme: https\n"
        ),
    ),
    (
        QUORUM,
        (
            b"version: 1\npart_name: a_5_5_0\nrequired_number_of_replicas: 2\n"
            b"actual_number_of_replicas: 2\nreplicas:\nr1\nr\\t2\n"
        ),
    ),
    (ADDED, b"version: 2\nparts count: 2\na\ta_5_5_0\nb\tb_1_1_0\n"),
    (
        HEADER,
        b"part header format version: 1\n"
        + b"c" * 16
        + b"\xc8\x01\x03"
        + b"a" * 16
        + b"u" * 16
        + b"r" * 16,
    ),
    (
        MUTATION,
        (
            b"format version: 1\ncreate time: 2026-11-20 14:19:47\nsource replica: r1\n"
            b"block numbers count: 2\na\t7\nb\t2\ncommands: DELETE WHERE x = \\'a\\nb\\'\n"
            b"alter version: 4"
        ),
    ),
    (
        CLAIM,
        (
            b"claim format version: 1\nworker: r1 fetch\\t7\nparts: 2\na_0_1_1\n"
            b"a_0_9_999999999_999999999\n"
        ),
    ),
    (
        ATTEMPTS,
        (
            b"attempts format version: 2\ntries: 3\nlast exception: no route\\nto r2\n"
            b"last attempt: 2026-11-20 14:19:47\npostpone reason: a_0_0_0 is busy\nunseen: 1\n"
        ),
    ),
    (
        RECORD,
        (
            b"insert format version: 5\ncreated: 2026-11-20 14:19:47\nreplica: r1\nrun: run-7\n"
            b"blocks: 2\nrows: 13\nrow hash: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\nrows in: 13\n"
            b"batches: 0\nmissing: 0\npartitions: 2\n"
            b"a\t5\t00000000000000000000000000000000\t3\t4\t4\t4\tof 9\n"
            b"b\t7\tffffffffffffffffffffffffffffffff\n"
        ),
    ),
    (
        BATCH,
        (
            b"insert batch format version: 4\npartitions: 3\n"
            b"a\t5\t00000000000000000000000000000000\t3\t4\t4\t4\tof 9\n"
            b"b\t7\tffffffffffffffffffffffffffffffff\n"
            b"c\t1\t11111111111111111111111111111111\t3\t3\t-\t-\n"
        ),
    ),
    (
        BEGUN,
        (
            b"insert format version: 5\ncreated: 2026-11-20 14:19:47\nreplica: r1\nrun: \n"
            b"blocks: 2\nrows: 40\nrow hash: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\nrows in: 13\n"
            b"batches: 1\nmissing: 0\npartitions: 0\n"
        ),
    ),
    (
        LESS,
        (
            b"insert format version: 5\ncreated: 2026-11-20 14:19:47\nreplica: r1\nrun: run-7\n"
            b"blocks: 2\nrows: 13\nrow hash: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\nrows in: 13\n"
            b"batches: 1\nmissing: 1\na\t3\npartitions: 0\n"
        ),
    ),
    (QuorumStatus((QUORUM,)), QUORUM.encode()),
    (
        QuorumStatus((QUORUM, QuorumEntry(part("b_0_0_0"), 3, ()))),
        (
            b"version: 2\nparts: 2\npart_name: a_5_5_0\nrequired_number_of_replicas: 2\n"
            b"actual_number_of_replicas: 2\nreplicas:\nr1\nr\\t2\npart_name: b_0_0_0\n"
            b"required_number_of_replicas: 3\nactual_number_of_replicas: 0\nreplicas:\n"
        ),
    ),
    (Restoring(7), b"restoring format version: 1\nlog: 7\n"),
    (Announced(()), b"announced format version: 1\ndropped: 0\n"),
    (
        Announced((), tuple(parts("a_1_1_0"))),
        b"announced format version: 1\ndropped: 0\nunseen: 1\na_1_1_0\n",
    ),
    (
        Announced((), (), (AnnouncedTry(part("a_1_1_0"), "x\ty", 7),)),
        b"announced format version: 2\ndropped: 0\nunseen: 0\ntries: 1\na_1_1_0\tx\\ty\t7\n",
    ),
    (
        Announced((), (), (), ("r1", "r2")),
        (
            b"announced format version: 1\ndropped: 0\nunseen: 0\ntries: 0\n"
            b"given up among: 2\nr1\nr2\n"
        ),
    ),
    (
        LostPart(TIME_S, "r1", ("x", "y")),
        (
            b"lost part format version: 1\nreplaced: 2026-11-20 14:19:47\nreplica: r1\n"
            b"inserts: 2\nx\ny\n"
        ),
    ),
    (
        Task("SELECT 1", ("h1", "h2"), "h1", "id", "db", (("s", "1"), ("t", "a = b"))),
        (
            b"version: 1\nquery: SELECT 1\nhosts: 2\nh1\nh2\ninitiator: h1\nsettings: 2\n"
            b"s = 1\nt = a = b\ninitial_query_id: id\ndatabase: db\n"
        ),
    ),
    (TaskOutcome(), b"0\n\n\n"),
    (TaskOutcome("NO_ZOOKEEPER", "away"), b"225\naway\nNO_ZOOKEEPER\n"),
    (TaskOutcome("OURS_ALONE", "no"), b"1002\nno\nOURS_ALONE\n"),
    (NamesBefore(), b"names: 0\n"),
    (
        TableRecord("o", "CREATE", 3, 4),
        b"version: 1\norigin: o\nmetadata version: 3\ntask: 4\nquery: CREATE\n",
    ),
    (
        TableRecord("o", "CREATE", 3, 4, is_detached=True),
        (b"version: 2\norigin: o\nmetadata version: 3\ntask: 4\nquery: CREATE\ndetached: 1\n"),
    ),
    (
        NamesBefore((("db", "t", "u1"), ("db2", "", "db2"))),
        b"names: 2\ndb\tt\tu1\ndb2\t\tdb2\n",
    ),
]


@pytest.mark.parametrize(("value", "text"), GOLDEN)
def test_texts_never_change(value, text: bytes) -> None:
    """P4. Other versions of this program read them."""
    assert value.encode() == text
    assert type(value).decode(text) == value


@pytest.mark.parametrize(
    ("decode", "text", "old", "new"),
    [
        (ReplicaAddress.decode, GOLDEN[0][1], b"9009", b"65536"),
        (ReplicaAddress.decode, GOLDEN[0][1], b"https", b"ftp"),
        (ReplicaAddress.decode, GOLDEN[0][1], b"https\n", b"https\n\n"),
        (QuorumEntry.decode, GOLDEN[1][1], b"version: 1", b"version: 2"),
        (QuorumEntry.decode, GOLDEN[1][1], b"r1\n", b""),
        (QuorumEntry.decode, GOLDEN[1][1], b"a_5_5_0", b"a_5"),
        (AddedParts.decode, GOLDEN[2][1], b"count: 2", b"count: 3"),
        (AddedParts.decode, GOLDEN[2][1], b"count: 2", b"count: 1"),
        (AddedParts.decode, GOLDEN[2][1], b"a\ta_", b"x\ta_"),
        (PartHeader.decode, GOLDEN[3][1], b"version: 1", b"version: 2"),
        (PartHeader.decode, GOLDEN[3][1], b"rrrr", b"rrr"),
        (PartHeader.decode, GOLDEN[3][1], b"rrrr", b"rrrrr"),
        (PartHeader.decode, GOLDEN[3][1], b"\xc8\x01", b"\xff" * 9 + b"\x01"),
        (MutationEntry.decode, GOLDEN[4][1], b"count: 2", b"count: 1"),
        (MutationEntry.decode, GOLDEN[4][1], b"b\t2", b"a\t2"),
        (MutationEntry.decode, GOLDEN[4][1], b"b\t2", b"b\t-2"),
        (MutationEntry.decode, GOLDEN[4][1], b"\\nb\\'\n", b"\nb\\'\n"),
        (MutationEntry.decode, GOLDEN[4][1], b"version: 4", b"version: x"),
        (Claim.decode, GOLDEN[5][1], b"claim format version: 1", b"claim format version: 2"),
        (Claim.decode, GOLDEN[5][1], b"parts: 2", b"parts: 2147483647"),
        (Attempts.decode, GOLDEN[6][1], b"tries: 3", b"tries: -3"),
        (Attempts.decode, GOLDEN[6][1], b"2026-11", b"2026-13"),
        (InsertRecord.decode, GOLDEN[7][1], b"partitions: 2", b"partitions: 1"),
        (InsertRecord.decode, GOLDEN[7][1], b"ffffffff\n", b"fffffff\n"),
        (InsertRecord.decode, GOLDEN[7][1], b"b\t7", b"a\t4"),
        (InsertRecord.decode, GOLDEN[7][1], b"b\t7", b"b7"),
        (InsertRecord.decode, GOLDEN[7][1], b"b\t7", b"\t7"),
        (InsertRecord.decode, GOLDEN[7][1], b"rows in: 13", b"rows in: 14"),
        (InsertRecord.decode, GOLDEN[7][1], b"row hash: a", b"row hash: A"),
        (InsertRecord.decode, GOLDEN[7][1], b"version: 5", b"version: 6"),
        (InsertBatch.decode, GOLDEN[8][1], b"partitions: 3", b"partitions: 4"),
        (InsertRecord.decode, GOLDEN[7][1], b"of 9", b"of 5"),
        (InsertRecord.decode, GOLDEN[10][1], b"a\t3", b"\t3"),
        (InsertBatch.decode, GOLDEN[8][1], b"b\t7", b"a\t4"),
        (InsertBatch.decode, GOLDEN[8][1], b"\t4\t4\tof", b"\t4\t5\tof"),
        (InsertBatch.decode, GOLDEN[8][1], b"\t4\t4\tof", b"\t4\tof"),
    ],
)
def test_other_texts_are_corrupt(
    decode: Callable[[bytes], object], text: bytes, old: bytes, new: bytes
) -> None:
    """P4."""
    assert old in text
    with pytest.raises(Corruption):
        decode(text.replace(old, new, 1))


@pytest.mark.parametrize(("value", "text"), GOLDEN)
def test_a_text_that_goes_on_or_is_of_a_newer_version_is_corrupt(value, text: bytes) -> None:
    """P4."""
    newer = text.replace(b"version: ", b"version: 9", 1)
    for other in (text + b"\n", text + b"x\n", newer):
        if other != text:
            with pytest.raises(Corruption):
                type(value).decode(other)


@pytest.mark.parametrize(
    ("decode", "text"),
    [
        (
            Task.decode,
            (
                b"version: 1\nquery: q\nhosts: 0\ninitiator: h\nsettings: 1\ns\n"
                b"initial_query_id: i\ndatabase: d\n"
            ),
        ),
        (TaskOutcome.decode, b"2147483648\n\n\n"),
        (TaskOutcome.decode, b"x\n\n\n"),
        (NamesBefore.decode, b"names: 1\ndb\tt\n"),
        (NamesBefore.decode, b"names: 1\ndb\tt\tu\tv\n"),
        (InsertRecord.decode, GOLDEN[7][1].replace(b"missing: 0", b"missing: 2\nb\t1\na\t1")),
        (InsertBatch.decode, GOLDEN[8][1].replace(b"\t3\t4\t4\t4\tof 9", b"\t4\t3")),
        (InsertBatch.decode, GOLDEN[8][1].replace(b"\na\t5", b"\n\t5")),
        (InsertBatch.decode, GOLDEN[8][1].replace(b"\t3\t4\t4\t4\tof 9", b"\t3\t4\t0\t4")),
    ],
)
def test_what_is_no_text_of_its_kind(decode: Callable[[bytes], object], text: bytes) -> None:
    """P4."""
    with pytest.raises(Corruption):
        decode(text)


def test_a_line_of_which_it_is_not_known_which_blocks_are_its_own() -> None:
    assert partition_line(PartitionRows("a", 5, "0" * 32, 3, 4)) == f"a\t5\t{'0' * 32}\t3\t4\n"


def test_which_table_a_name_stood_for() -> None:
    names = NamesBefore((("db", "t", "u1"), ("db", "t2", "u2"), ("db2", "", "db2")))
    assert [names.of("db", "t"), names.of("db", "t2"), names.of("db2")] == ["u1", "u2", "db2"]
    assert names.of("db") == names.of("db3", "t") == ""


def test_a_record_is_older_by_its_statement_and_then_by_its_alters() -> None:
    records = [TableRecord("o", "q", *pair) for pair in ((5, 1), (6, 1), (0, 2))]
    for at, one in enumerate(records):
        assert [one.is_older_than(other) for other in records] == [at < n for n in range(3)]


def test_a_replica_is_counted_once_for_a_quorum() -> None:
    assert QUORUM.with_replica("r1") is QUORUM
    assert QUORUM.with_replica("r3").replicas == ("r1", "r\t2", "r3")


def test_the_rows_of_a_line_that_a_drop_takes_or_touches() -> None:
    """By their blocks; where these are not known, only a drop of the whole partition does."""
    drops = [
        part(f"{name}_{low}_{high}_0") for name in "ab" for low in range(3) for high in (2, 3)
    ]
    drops += [drop_range("a", 3), drop_range("b", 3), replace(drop_range("a", 3), block_min=1)]
    for first in range(5):
        for last in range(first, 5):
            line, held = PartitionRows("a", 5, "0" * 32, first, last), range(first, last + 1)
            for one in drops:
                taken = set(held) & set(range(one.block_min, one.block_max + 1))
                in_it = one.partition == "a" and taken == set(held)
                assert line.is_in(one) == in_it, (line, one)
                assert line.touches(one) == (one.partition == "a" and bool(taken)), (line, one)
    unknown = PartitionRows("a", 5, "0" * 32)
    assert [one for one in drops if unknown.is_in(one)] == [drop_range("a", 3)]
    assert [one for one in drops if unknown.touches(one)] == [drop_range("a", 3)]


def test_partitions_of_a_record_that_is_only_looked_through() -> None:
    many = {f"p{number}" for number in range(SEARCHED_MAX)}
    for others in (set[str](), many):
        assert not InsertRecord.may_be_of(RECORD.encode(), others | {"x", "5"})
        assert InsertRecord.may_be_of(RECORD.encode(), others | {"b"})
        assert InsertRecord.may_be_of(BEGUN.encode(), others | {"x"}), (
            "its batches are not looked at"
        )
        old = GOLDEN[7][1].replace(b"batches: 0\n", b"")
        assert not InsertRecord.may_be_of(old, others | {"x"})


def test_all_partitions_that_an_insert_will_ever_have() -> None:
    """None where a retry may bring others."""
    whole = replace(RECORD, rows=16, rows_in=16)
    assert InsertRecord.all_partitions(whole.encode()) == {"a", "b"}
    for other in (
        RECORD,  # 16 rows were given of 13
        replace(whole, batches=1),
        replace(whole, rows_in=15),
        replace(whole, missing=(MissingRows("a", 0),)),
    ):
        assert InsertRecord.all_partitions(other.encode()) == frozenset()
    assert InsertRecord.all_partitions(b"damaged") == frozenset()


def test_rows_that_are_missing_beyond_those_that_came_leave_none() -> None:
    assert replace(RECORD, missing=(MissingRows("a", 99),)).rows_there == 0
    assert [one.rows_given for one in PARTITIONS] == [9, 7]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, b"\0"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (16383, b"\xff\x7f"),
        (16384, b"\x80\x80\x01"),
    ],
)
def test_counts_of_files_in_seven_bits_a_byte(number: int, text: bytes) -> None:
    header = replace(HEADER, files=number)
    assert varint(number) == text
    assert text in header.encode()
    assert PartHeader.decode(header.encode()) == header


def test_the_version_of_the_metadata_that_a_part_is_read_with() -> None:
    for version in (0, 1, 300):
        header = replace(HEADER, hash_of_all_files=proof_of_files(b"a" * 16, version))
        assert header.metadata_version == version
        assert PartHeader.decode(header.encode()).metadata_version == version
    too_large = replace(HEADER, hash_of_all_files=proof_of_files(b"a" * 16, 2**20))
    assert too_large.metadata_version is None
    assert HEADER.metadata_version is None, "of a version that has the whole hash there"


def test_an_address_without_a_scheme_is_of_http() -> None:
    text = GOLDEN[0][1].replace(b"scheme: https\n", b"")
    assert ReplicaAddress.decode(text).scheme == "http"


def test_the_last_quorum_part_of_a_partition_takes_the_earlier_ones_place() -> None:
    added = AddedParts.of([*ADDED.parts, part("a_6_6_0")])
    assert len(added.parts) == len(ADDED.parts)
    assert part("a_6_6_0") in added.parts


def test_old_forms_of_the_last_quorum_parts() -> None:
    """P4. An empty node, and version 1: a name."""
    assert AddedParts.decode(b"") == AddedParts()
    assert AddedParts.decode(b"a_5_5_0") == AddedParts((part("a_5_5_0"),))
    with pytest.raises(Corruption):
        AddedParts.decode(b"version: 3\n")


def test_part_headers_are_compared_by_columns_files_rows_and_order() -> None:
    """P25. The files' own bytes may differ: two writers store the same rows in two ways."""
    other = PartHeader(b"c" * 16, 200, b"A" * 16, b"u" * 16, b"r" * 16, 3)
    assert HEADER.difference(other) is None
    columns = PartHeader(b"C" * 16, 200, b"a" * 16, b"u" * 16, b"r" * 16, 3)
    assert HEADER.difference(columns) == "their columns differ"
    files = PartHeader(b"c" * 16, 201, b"a" * 16, b"u" * 16, b"r" * 16, 3)
    assert HEADER.difference(files) == "203 files here and 204 there"
    rows = PartHeader(b"c" * 16, 200, b"a" * 16, b"u" * 16, b"R" * 16, 3)
    assert "their rows differ" in (HEADER.difference(rows) or "")
    order = PartHeader(b"c" * 16, 200, b"a" * 16, b"U" * 16, b"r" * 16, 3)
    assert "another order" in (HEADER.difference(order) or "")


def test_a_mutation_concerns_the_partitions_that_it_names() -> None:
    assert MUTATION.version_in("a") == 7
    assert [MUTATION.version_in(name) for name in ("", "aa", "b", "c")] == [None, None, 2, None]


def test_an_insert_is_whole_when_all_its_rows_are_in() -> None:
    """P37."""
    assert RECORD.is_whole
    assert not BEGUN.is_whole
    assert not LESS.is_whole
    assert LESS.rows_there == 10


def test_a_record_of_the_third_format_says_of_no_block_what_it_was_made_of() -> None:
    """P4. Its lines are of all the blocks in a partition."""
    text = (
        b"insert format version: 3\ncreated: 2026-11-20 14:19:47\nreplica: r1\nrun: run-7\n"
        b"blocks: 2\nrows: 13\nrow hash: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\nrows in: 13\n"
        b"batches: 0\npartitions: 2\n"
        b"a\t5\t00000000000000000000000000000000\t3\t4\nb\t7\tffffffffffffffffffffffffffffffff\n"
    )
    own = {"own_first": UNKNOWN_BLOCK, "own_last": UNKNOWN_BLOCK}
    lines = (PARTITIONS[0]._replace(given=AS_STORED, **own), PARTITIONS[1])
    assert InsertRecord.decode(text) == replace(RECORD, partitions=lines)


def test_a_record_of_the_third_format_does_not_say_which_blocks_are_its_own() -> None:
    """P4. Others' may be between the first and the last."""
    text = (
        b"insert format version: 3\ncreated: 2026-11-20 14:19:47\nreplica: r1\nrun: run-7\n"
        b"blocks: 1\nrows: 5\nrow hash: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\nrows in: 5\n"
        b"batches: 0\npartitions: 1\na\t5\t00000000000000000000000000000000\t3\t6\n"
    )
    [line] = InsertRecord.decode(text).partitions
    assert line == PartitionRows("a", 5, "0" * 32, 3, 6, UNKNOWN_BLOCK, UNKNOWN_BLOCK)


def test_a_record_of_the_first_format_is_of_a_whole_insert() -> None:
    """P4. It had no sums of the rows as they were given."""
    text = (
        b"insert format version: 1\ncreated: 2026-11-20 14:19:47\nreplica: r1\nrun: run-7\n"
        b"blocks: 2\npartitions: 2\n"
        b"a\t5\t00000000000000000000000000000000\nb\t7\tffffffffffffffffffffffffffffffff\n"
    )
    record = InsertRecord.decode(text)
    unknown = tuple(PartitionRows(*one[:3]) for one in PARTITIONS[:2])
    assert record == InsertRecord(TIME_S, "r1", "run-7", unknown, 2, 12, "", 12)
    assert record.is_whole
    assert InsertRecord.decode(record.encode()) == record


@pytest.mark.parametrize(
    ("decode", "keyword"),
    [
        (InsertRecord.decode, b"insert"),
        (InsertBatch.decode, b"insert batch"),
        (Claim.decode, b"claim"),
    ],
)
def test_a_text_of_a_newer_version_names_the_remedy(decode, keyword):
    """Servers are upgraded one after the other: what a newer one writes is not damaged."""
    with pytest.raises(Corruption, match=r"newer version of rmt .* format 99; .* upgrade it"):
        decode(keyword + b" format version: 99\nwho knows: what\n")


def test_a_message_of_megabytes_fits_into_its_node_and_one_that_is_no_utf_8_too() -> None:
    for text in ("x" * 3_000_000, "\N{SNOWMAN}" * 1_000_000, "\n" * 2_000_000):
        for data in (Attempts(1, text, 0, "").encode(), TaskOutcome("X", text).encode()):
            assert len(data) < 50_000
    outcome = TaskOutcome.decode(TaskOutcome("X", "y" * 10_007).encode())
    assert outcome.message == "y" * 9_900 + "… (107 characters more)"
    assert TaskOutcome.decode(outcome.encode()) == outcome, "it is not shortened once more"
    no_name = Attempts(1, "no such file: a\udcff", 0, "").encode()
    assert Attempts.decode(no_name).last_exception == r"no such file: a\udcff"


def test_attempts_that_can_not_be_read_are_one_failure_after_which_to_look() -> None:
    found = Attempts.read(b"attempts format version: 99\nwho knows: what\n")
    assert (found.tries, found.is_unseen) == (1, True)
    assert "newer version of rmt" in found.last_exception
    assert Attempts.read(ATTEMPTS.encode()) == ATTEMPTS


def test_attempts_of_before_leave_nothing_to_look_at() -> None:
    older = ATTEMPTS.encode().replace(b"version: 2", b"version: 1").replace(b"unseen: 1\n", b"")
    assert Attempts.decode(older) == replace(ATTEMPTS, is_unseen=False)


def test_a_try_that_an_older_version_announced_has_no_second() -> None:
    older = b"announced format version: 1\ndropped: 0\nunseen: 0\ntries: 1\na_1_1_0\tx\n"
    assert Announced.decode(older).tries == (AnnouncedTry(part("a_1_1_0"), "x"),)
    with pytest.raises(Corruption):
        Announced.decode(older.replace(b"\tx", b"\tx\tsoon"))
