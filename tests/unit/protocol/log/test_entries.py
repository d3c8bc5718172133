"""Log entries: what they stand for, and what is not one (spec §0.4.1, §0.4.3)."""

import dataclasses
import typing

import hypothesis
import pytest

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.log.codec import decode, encode
from rmt_pipeline.protocol.log.entry import (
    AttachPart,
    DropRange,
    GetPart,
    Header,
    LogEntry,
    MergeParts,
    MutatePart,
    describe_entry,
    drop_range_of,
    kind_name,
    partitions_about,
    parts_brought,
    result_of,
    sources_of,
    subject_of,
    virtual_parts,
)
from rmt_pipeline.protocol.queue import rules
from tests.support.protocol import (
    TIME_S,
    alter,
    drop,
    drop_part,
    get,
    merge,
    mutate,
    part,
    parts,
    replace,
)
from tests.support.strategies import log_entries

ATTACH = AttachPart(part("4_4_0"), "0" * 32, create_time=TIME_S, source_replica="")
FULL = "0_4_999999999_999999999"


@pytest.mark.parametrize(
    ("entry", "kind", "virtual", "dropped", "result"),
    [
        (get("1_1_0"), "GET_PART", "1_1_0", None, "1_1_0"),
        (ATTACH, "ATTACH_PART", "4_4_0", None, "4_4_0"),
        (merge("0_0_0 1_1_0"), "MERGE_PARTS", "0_1_1", None, "0_1_1"),
        (mutate("0_0_0", "0_0_0_5"), "MUTATE_PART", "0_0_0_5", None, "0_0_0_5"),
        (drop(5), "DROP_RANGE", FULL, FULL, None),
        (drop_part("3_3_0"), "DROP_PART", "", "3_3_0", None),
        (replace(4, "5_5_0 6_6_0"), "REPLACE_RANGE", f"5_5_0 6_6_0 {FULL}", FULL, None),
        (replace(0, "5_5_0"), "REPLACE_RANGE", "5_5_0", None, None),
        (alter(3), "ALTER_METADATA", "", None, None),
    ],
)
def test_what_an_entry_stands_for(entry, kind, virtual, dropped, result) -> None:
    """P8. The table of spec §0.4.3."""
    assert kind_name(entry) == kind
    assert list(virtual_parts(entry)) == parts(virtual)
    assert drop_range_of(entry) == (part(dropped) if dropped else None)
    assert result_of(entry) == (part(result) if result else None)
    assert decode(encode(entry)) == entry


@pytest.mark.parametrize(
    ("entry", "subject", "brought", "words"),
    [
        (get("1_1_0"), "1_1_0", "1_1_0", "get all_1_1_0"),
        (ATTACH, "4_4_0", "4_4_0", "attach all_4_4_0"),
        (merge("0_0_0 1_1_0"), "0_1_1", "0_1_1", "merge all_0_0_0, all_1_1_0 into all_0_1_1"),
        (mutate("0_0_0", "0_0_0_5"), "0_0_0_5", "0_0_0_5", "mutate all_0_0_0 to all_0_0_0_5"),
        (drop(5), FULL, "", f"drop range all_{FULL}"),
        (dataclasses.replace(drop(5), detach=True), FULL, "", f"detach range all_{FULL}"),
        (drop_part("3_3_0"), "3_3_0", "", "drop part all_3_3_0"),
        (
            dataclasses.replace(drop_part("3_3_0"), detach=True),
            "3_3_0",
            "",
            "detach part all_3_3_0",
        ),
        (replace(4, "5_5_0"), FULL, "5_5_0", f"replace range all_{FULL} with all_5_5_0"),
        (
            replace(0, "5_5_0 6_6_0"),
            "0_0_0",
            "5_5_0 6_6_0",
            "replace range all_0_0_0 with all_5_5_0, all_6_6_0",
        ),
        (replace(4, ""), FULL, "", f"replace range all_{FULL} with nothing"),
    ],
)
def test_what_an_entry_is_about_and_what_it_brings(entry, subject, brought, words) -> None:
    assert subject_of(entry) == part(subject)
    assert partitions_about(entry) == {"all"}
    assert list(parts_brought(entry)) == parts(brought)
    assert describe_entry(entry) == words


def test_an_alter_is_about_no_partition() -> None:
    assert partitions_about(alter(3)) == frozenset()
    assert parts_brought(alter(3)) == ()
    assert describe_entry(alter(3)) == "alter metadata to version 3"


def test_a_range_of_two_blocks_is_no_dummy() -> None:
    assert drop_range_of(replace(1, "5_5_0")) == part("0_1_999999999_999999999")


def test_what_is_no_entry_is_a_bug() -> None:
    """A kind that was forgotten somewhere fails there, and does not pass for another one."""
    strange = Header(create_time=1, source_replica="r")
    asked = (encode, describe_entry, kind_name, virtual_parts, result_of)
    for forgets in (*asked, sources_of, drop_range_of):
        with pytest.raises(AssertionError):
            forgets(strange)


def test_sources_are_of_merges_and_mutations() -> None:
    assert sources_of(merge("0_0_0 1_1_0")) == tuple(parts("0_0_0 1_1_0"))
    assert sources_of(mutate("0_0_0", "0_0_0_5")) == (part("0_0_0"),)
    assert sources_of(get("0_0_0")) == ()


def test_a_long_merge_is_described_shortly() -> None:
    sources = " ".join(f"{number}_{number}_0" for number in range(9))
    assert (
        describe_entry(merge(sources))
        == "merge 9 parts, all_0_0_0 to all_8_8_0, into all_0_8_1"
    )
    five = [f"{number}_{number}_0" for number in range(5)]
    listed = ", ".join(f"all_{name}" for name in five)
    assert describe_entry(merge(" ".join(five))) == f"merge {listed} into all_0_4_1"


def _edited(old: str, new: str, entry: object = None) -> bytes:
    text = encode(entry or merge("0_0_0 1_1_0")).decode()  # type: ignore[arg-type]
    assert old in text
    return text.replace(old, new).encode()


def test_lines_of_newer_versions_are_read_and_dropped() -> None:
    """P4. Their readers' rule: optional lines of the body in any order."""
    more = (
        "deduplicate: 1\ninto_uuid: 5f0c\ncleanup: 1\ndeduplicate_by_columns: 'a'\n"
        "merge_type: 2\npart_type: Compact\nstorage_type: Packed\nquorum: 3\n"
    )
    entry = decode(_edited("deduplicate: 0\n", more))
    assert isinstance(entry, MergeParts)
    assert (entry.cleanup, entry.merge_type, entry.quorum) == (True, 2, 3)
    assert entry.deduplicate_by == ("a",)
    mutation = decode(
        encode(mutate("0_0_0", "0_0_0_5"))
        + b"alter_version\n7\nto_uuid\n5f0c\npart_type: Compact\n"
    )
    assert isinstance(mutation, MutatePart)
    assert mutation.alter_version == 7


def test_old_versions_have_fewer_lines_and_take_the_nodes_time() -> None:
    """P4. 1 had no time, 2 no block id, 3 no deduplicate flag."""
    assert decode(
        b"format version: 1\nsource replica: r\nget\nall_0_0_0\n", ctime_s=5
    ) == GetPart(part("0_0_0"), create_time=5, source_replica="r")
    text = "format version: 2\ncreate_time: 0000-00-00 00:00:00\nsource replica: r\n"
    assert decode(f"{text}get\nall_0_0_0\n".encode(), ctime_s=7).create_time == 7
    old = _edited("deduplicate: 0\n", "").replace(b"version: 4", b"version: 3")
    assert decode(old) == merge("0_0_0 1_1_0")


def test_the_level_in_the_name_tells_a_range_from_a_part() -> None:
    legacy = encode(drop(5)).replace(b"_999999999_", b"_4294967295_")
    entry = decode(legacy)
    assert isinstance(entry, DropRange)
    assert encode(entry) == legacy


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("format version: 4", "format version: 8"),
        ("format version: 4", "format version: 0"),
        ("create_time: 2026", "create_time: yesterday"),
        ("source replica: r1", "source replica r1"),
        ("block_id: ", "block_id: \\"),
        ("merge\n", "sync_pinned_part_uuids\n"),
        ("merge\n", "clear_column\n"),
        ("all_0_0_0\n", "all_0_0_0_0\n"),
        ("all_0_0_0\nall_1_1_0\n", ""),
        ("all_0_1_1", "all_0_2_1_x"),
        ("all_0_1_1", "all_0_0_1"),
        ("into\n", ""),
        ("deduplicate: 0", "deduplicate: 2"),
        ("deduplicate: 0\n", "deduplicate: 0\nmerge_type: 4\n"),
        ("deduplicate: 0\n", "deduplicate: 0\ncleanup: yes\n"),
        ("deduplicate: 0\n", "deduplicate: 0\ndeduplicate_by_columns: 'a'\n"),
        ("deduplicate: 0\n", "deduplicate: 1\ndeduplicate_by_columns: a\n"),
        ("deduplicate: 0\n", "deduplicate: 0\nquorum: -1\n"),
        ("deduplicate: 0\n", "deduplicate: 0\ntrailing garbage\n"),
        ("deduplicate: 0\n", "deduplicate: 0"),
    ],
)
def test_a_merge_that_is_not_one_is_corrupt(old: str, new: str) -> None:
    """P4."""
    with pytest.raises(Corruption, match="log entry, line"):
        decode(_edited(old, new))


@pytest.mark.parametrize(
    ("entry", "old", "new"),
    [
        (mutate("0_0_0", "0_0_0_5"), "to\n", "into\n"),
        (mutate("0_0_0", "0_0_0_5"), "all_0_0_0_5", "all_0_1_1_5"),
        (mutate("0_0_0", "0_0_0_5"), "all_0_0_0_5", "all_0_0_0"),
        (mutate("0_0_0", "0_0_0_5", 3), "alter_version\n3", "alter_version\n-2"),
        (replace(4, "5_5_0"), "['all_5_5_0']", "'all_5_5_0'"),
        (replace(4, "5_5_0"), "['all_5_5_0']", "('all_5_5_0')"),
        (replace(4, "5_5_0"), "['all_5_5_0']", "[]"),
        (replace(4, "5_5_0"), "['all_5_5_0']", "['5']"),
        (replace(4, "5_5_0"), "all_0_4_999999999_999999999", "all_0_4_1"),
        (replace(4, "5_5_0"), "columns_version: -1", "columns_version: x"),
        (alter(1), "columns_str_size:\n37", "columns_str_size:\n36"),
        (alter(1), "columns_str_size:\n37", "columns_str_size:\n999"),
        (alter(1), "columns_str_size:\n37", "columns_str_size:\n999999999"),
        (alter(1), "have_mutation\n0", "have_mutation\nno"),
        (get("0_0_0"), "get\nall_0_0_0\n", "get\n"),
        (ATTACH, "part_checksum: ", "checksum: "),
    ],
)
def test_other_entries_that_are_not_ones_are_corrupt(entry, old: str, new: str) -> None:
    """P4."""
    with pytest.raises(Corruption, match="log entry, line"):
        decode(_edited(old, new, entry))


def test_bytes_that_are_no_text_are_corrupt() -> None:
    """P4."""
    with pytest.raises(Corruption, match="UTF-8"):
        decode(encode(get("0_0_0")).replace(b"r1", b"\xff\xfe"))


def test_the_error_names_the_line() -> None:
    with pytest.raises(Corruption, match=r"line 5: .*'frob'"):
        decode(encode(get("0_0_0")).replace(b"get\n", b"frob\n"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: GetPart(part("0_0_0"), create_time=-1, source_replica="r"),
        lambda: GetPart(part("0_0_0"), create_time=1, source_replica="a\nb"),
        lambda: GetPart(part("0_0_0"), create_time=1, source_replica="r", quorum=-2),
        lambda: MergeParts((), part("0_0_1"), create_time=1, source_replica="r"),
        lambda: merge("0_0_0", deduplicate_by=("a",)),
        lambda: mutate("0_0_0_5", "0_0_0_4"),
        lambda: drop_part("0_4_999999999_999999999"),
        lambda: DropRange(part("0_0_0"), create_time=1, source_replica="r"),
    ],
)
def test_an_entry_that_exists_is_valid(make) -> None:
    with pytest.raises(AssertionError):
        make()


# mypy names each `match` that does not know a new kind; of these it can't.
KINDS = typing.get_args(LogEntry)


def test_every_kind_has_rules() -> None:
    assert set(rules._RULES) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_drawn_for_the_property_tests(kind: type[LogEntry]) -> None:
    any_will_do = hypothesis.settings(max_examples=2000, phases=[hypothesis.Phase.generate])
    assert hypothesis.find(
        log_entries(), lambda entry: isinstance(entry, kind), settings=any_will_do
    )
