"""Directory names: made and parsed in one place, each the other's inverse."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.store import layout

PARTS = st.builds(
    lambda partition, low, more, level, mutation: PartName(
        partition, low, low + more, level, mutation
    ),
    st.sampled_from(["all", "201301", "-1", "0123abcd", "1-2"]),
    *(st.integers(0, 10**6) for _ in range(4)),
)
IDS = st.text("0123456789abcdef", min_size=32, max_size=32)


@given(st.sampled_from(layout.STAGE_KINDS), PARTS.map(str), IDS)
def test_staged_names_read_back(kind: layout.StageKind, hint: str, attempt: str) -> None:
    name = layout.StagedName(kind, hint, attempt)
    assert layout.parse_staged(str(name)) == name
    assert PartName.try_parse(str(name)) is None


@given(
    st.sampled_from(layout.DETACH_REASONS),
    PARTS,
    st.integers(0, layout.DETACHED_COPIES_MAX - 1),
)
def test_detached_names_read_back(reason: layout.DetachReason, part: PartName, n: int) -> None:
    name = layout.DetachedName(reason, part, n)
    assert layout.parse_detached(str(name)) == name


@given(PARTS)
def test_no_name_is_of_two_kinds(part: PartName) -> None:
    doomed = layout.deleting(part)
    assert layout.is_deleting(doomed)
    assert PartName.try_parse(doomed) is None
    assert layout.parse_staged(doomed) is None
    assert layout.parse_staged(str(part)) is None
    assert not layout.is_deleting(str(part))
    moved = layout.moved(part, "0" * 32)
    assert layout.parse_moved(moved) == part
    assert not layout.is_deleting(moved)
    assert layout.is_deleting(layout.deleting(moved))
    assert PartName.try_parse(moved) is layout.parse_staged(moved) is None
    assert layout.parse_moved(str(part)) is layout.parse_moved(doomed) is None


@pytest.mark.parametrize(
    "name", ["", "x", "tmp_other_all_" + "0" * 32, "tmp_insert_all_12", "detached"]
)
def test_foreign_names_are_not_ours(name: str) -> None:
    assert layout.parse_staged(name) is None
    assert layout.parse_detached(name) is None


def test_a_hint_can_not_leave_the_directory() -> None:
    with pytest.raises(AssertionError):
        layout.StagedName("insert", "../x", "0" * 32)
