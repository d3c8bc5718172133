"""At start: the disk against the promises (spec §11.2)."""

from rmt_pipeline.protocol.reconcile import LocalPart, Reconciliation, SetAside, reconcile
from tests.support.protocol import part, parts


def compare(
    local: str, promised: str, queued: dict[str, str] | None = None, **more
) -> Reconciliation:
    """`local`: names, each with `=rows` if it does not have 10, and with `copy:` before it if it is
    a copy of another table's part.
    """
    found = []
    for text in local.split():
        name, _, rows = text.removeprefix("copy:").partition("=")
        found.append(LocalPart(part(name), int(rows or 10), text.startswith("copy:")))
    wanted = {part(name): node for name, node in (queued or {}).items()}
    return reconcile(found, parts(promised), wanted, wrong_rows_ratio_max=0.5, **more)


def reasons(found: Reconciliation) -> dict[str, tuple[bool, str]]:
    return {str(one.part): (one.harmless, one.reason) for one in found.set_aside}


def test_what_is_promised_and_here_stays() -> None:
    """P24. Covered parts too: they are cleaned up in their own time."""
    found = compare("0_0_0 1_1_0 0_1_1", "0_0_0 1_1_0 0_1_1")
    assert (found.fetch, found.forget, found.set_aside, found.refusal) == ((), (), (), None)


def test_what_is_promised_and_missing_is_fetched() -> None:
    """P24."""
    found = compare("0_0_0", "0_0_0 1_1_0 2_3_1")
    assert found.fetch == tuple(parts("1_1_0 2_3_1"))


def test_a_missing_part_that_a_larger_one_covers_is_only_forgotten() -> None:
    """P24. Its directory went before its node."""
    found = compare("0_1_1", "0_0_0 1_1_0 0_1_1")
    assert found.forget == tuple(parts("0_0_0 1_1_0"))
    assert found.fetch == ()
    both_missing = compare("", "0_0_0 0_1_1")
    assert (both_missing.fetch, both_missing.forget) == (
        (part("0_1_1"),),
        (part("0_0_0"),),
    )


def test_what_nobody_promised_is_set_aside_and_never_announced() -> None:
    """P24."""
    found = compare("0_0_0 1_1_0 5_6_1=5", "0_0_0 1_1_0")
    assert found.set_aside == (
        SetAside(
            part("5_6_1"),
            5,
            harmless=False,
            reason="ZooKeeper does not know it, and nothing here explains it",
        ),
    )
    assert found.refusal is None


def test_what_can_be_explained_says_nothing_against_the_disk() -> None:
    """P24, Q1, C9, D6."""
    found = compare(
        "0_3_2 1_1_0=99 4_4_0=99 5_5_0 6_6_0 5_6_1=99 7_8_1=99 9_9_1=0",
        "0_3_2 5_5_0 6_6_0",
        queued={"7_8_1": "queue-0000000003"},
    )
    assert reasons(found) == {
        "all_1_1_0": (True, "all_0_3_2, which is promised and here, covers it"),
        "all_4_4_0": (True, "it was just written, and never announced"),
        "all_5_6_1": (True, "its sources (all_5_5_0, …) are promised and here"),
        "all_7_8_1": (True, "it was never announced, and queue-0000000003 will bring it"),
        "all_9_9_1": (True, "it has no rows"),
    }
    assert found.refusal is None


def test_what_was_just_written_is_a_block_or_a_copy_and_nothing_has_changed_it() -> None:
    """P24, Q1. A mutation needs a part that was announced."""
    found = compare("copy:1_1_3 3_3_3 4_4_0_7 copy:5_5_3_9", "")
    assert {name: harmless for name, (harmless, _) in reasons(found).items()} == {
        "all_1_1_3": True,
        "all_3_3_3": False,
        "all_4_4_0_7": False,
        "all_5_5_3_9": False,
    }


def test_what_overlaps_a_promised_part_is_not_made_of_it() -> None:
    """P24."""
    found = compare("1_4_2 3_6_1", "3_6_1")
    assert reasons(found)["all_1_4_2"][0] is False


def test_a_part_with_rows_explains_no_other_one() -> None:
    """P24, D6."""
    found = compare("20_29_2=5 22_23_1=99", "")
    assert reasons(found)["all_22_23_1"][0] is False
    elsewhere = compare("1_9_2=0 22_23_1=99", "")
    assert reasons(elsewhere)["all_22_23_1"][0] is False


def test_an_empty_part_that_a_drop_left_explains_what_it_covers() -> None:
    """P24, D6."""
    found = compare("20_29_2=0 22_23_1=99", "")
    assert reasons(found)["all_22_23_1"] == (
        True,
        "the empty part all_20_29_2 covers it: it was dropped",
    )


def test_too_many_unexplained_rows_refuse_to_start() -> None:
    """P24, C10."""
    found = compare("0_0_0=10 1_1_0=30 1_2_1=11", "0_0_0")
    assert found.refusal is not None
    assert found.refusal.startswith(
        "11 of 21 rows are in parts that ZooKeeper does not know, for instance all_1_2_1: "
    )
    assert compare("0_0_0=10 1_2_1=10", "0_0_0").refusal is None
    assert compare("0_0_0=10 1_2_1=11", "0_0_0", force=True).refusal is None


def test_a_merged_part_whose_sources_are_not_all_here_is_not_explained() -> None:
    """P24."""
    found = compare("0_0_0 0_1_1=3", "0_0_0 1_1_0")
    assert reasons(found)["all_0_1_1"][0] is False
    assert found.fetch == (part("1_1_0"),)
