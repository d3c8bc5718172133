"""The scenarios' reader and comparer: they must notice every difference that counts."""

from copy import deepcopy
from dataclasses import replace

import pytest

from tests.golden.scenario import (
    DIRECTORY,
    Answered,
    Entry,
    Outcome,
    Part,
    Run,
    WaitMutations,
    differences,
    reference_of,
    steps_of,
)

NAMES = sorted(path.stem for path in DIRECTORY.glob("*.sql"))


def reference(name: str) -> Outcome:
    return reference_of((DIRECTORY / f"{name}.reference").read_text())


def test_a_scenario_is_read_with_its_replicas_settings_and_waits():
    text = (
        "-- a comment\n-- r2\n-- set a=1\n-- expect error\nSELECT 1,\n 2;\n-- wait mutations\n"
        "-- r1\nSELECT 3;\n"
    )
    assert list(steps_of(text)) == [
        Run("r2", "SELECT 1,\n 2", (("a", "1"),), fails=True),
        WaitMutations(),
        Run("r1", "SELECT 3"),
    ]


@pytest.mark.parametrize("name", NAMES)
def test_every_answer_of_a_reference_has_its_statement(name):
    steps = list(steps_of((DIRECTORY / f"{name}.sql").read_text()))
    asked = [
        (step.replica, step.statement)
        for step in steps
        if isinstance(step, Run) and (step.answers or step.fails)
    ]
    assert [(each.replica, each.statement) for each in reference(name).answers] == asked


def test_a_reference_is_read_with_its_parts_log_and_mutations():
    outcome = reference("03_mutation_delete")
    assert outcome.answers[0].lines == ("1\ta\t1", "3\tc\t2", "4\td\t1")
    assert outcome.parts["m1", "r2"][-1] == Part("2", "2_1_1_0_2", 0)
    assert outcome.logs["m1"][4] == Entry(
        "a leader", False, ("mutate", "1_0_0_0", "to", "1_0_0_0_2")
    )
    assert outcome.mutations["m1", "0000000000"][-1].startswith("commands: DELETE")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("forced", [True, False])
def test_a_reference_is_equal_to_itself(name, forced):
    assert differences(reference(name), reference(name), forced=forced) == []


def changed(name: str) -> list[tuple[str, Outcome]]:
    """Outcomes that each differ from the reference in one thing."""
    original = reference(name)
    table, replica = next(iter(original.parts))
    found = []

    def variant(what: str) -> Outcome:
        copy = deepcopy(original)
        found.append((what, copy))
        return copy

    outcome = variant("a row less")
    at = next(i for i, each in enumerate(outcome.answers) if each.lines)
    outcome.answers[at] = replace(outcome.answers[at], lines=outcome.answers[at].lines[1:])
    variant("an answer less").answers.pop()
    outcome = variant("an answer more")
    outcome.answers.append(Answered("r1", "SELECT 1", ("1",), failed=False))
    parts = variant("a part less").parts[table, replica]
    parts.pop()
    parts = variant("a row less in a part").parts[table, replica]
    parts[0] = replace(parts[0], rows=parts[0].rows - 1)
    parts = variant("a part of other blocks").parts[table, replica]
    parts[-1] = replace(parts[-1], name=parts[-1].name.split("_")[0] + "_7_9_1")
    parts = variant("a part more").parts[table, replica]
    parts.append(replace(parts[0], name="x_0_0_0"))
    variant("an entry less").logs[table].pop()
    log = variant("an entry from elsewhere").logs[table]
    log[0] = replace(log[0], source="r9")
    log = variant("an entry without its block id").logs[table]
    log[0] = replace(log[0], has_block_id=not log[0].has_block_id)
    log = variant("another action").logs[table]
    log[0] = replace(log[0], action=(*log[0].action, "deduplicate: 1"))
    return found


@pytest.mark.parametrize("forced", [True, False])
@pytest.mark.parametrize(("what", "outcome"), changed("01_insert_dedup"))
def test_a_difference_is_noticed(what, outcome, forced):
    assert differences(reference("01_insert_dedup"), outcome, forced=forced), what


def test_an_expected_error_that_did_not_come_is_noticed():
    outcome = reference("19_bad_definitions")
    outcome.answers[0] = replace(outcome.answers[0], failed=False)
    assert differences(reference("19_bad_definitions"), outcome, forced=True)


def merged() -> Outcome:
    """Scenario 01 after a background merge of partition 2 on both replicas."""
    outcome = reference("01_insert_dedup")
    for key, parts in outcome.parts.items():
        others = [part for part in parts if part.partition != "2"]
        outcome.parts[key] = [*others, Part("2", "2_0_1_1", 3)]
    merge = ("merge", "2_0_0_0", "2_1_1_0", "into", "2_0_1_1", "deduplicate: 0")
    outcome.logs["insertDebug"].append(Entry("r1", False, merge))
    return outcome


def test_a_background_merge_is_fine_where_nothing_forces_the_parts():
    assert differences(reference("01_insert_dedup"), merged(), forced=False) == []
    assert differences(reference("01_insert_dedup"), merged(), forced=True)


def test_a_part_that_was_not_fetched_yet_when_it_was_recorded_may_be_there():
    name = "03_mutation_delete"
    outcome = reference(name)
    late = Part("1", "1_3_3_0", 1)
    assert late in outcome.parts["m1", "r1"]
    outcome.parts["m1", "r2"].append(late)
    assert differences(reference(name), outcome, forced=True) == []
    outcome.parts["m1", "r2"].append(Part("1", "1_4_4_0", 1))
    assert differences(reference(name), outcome, forced=True)


def test_a_newer_entry_may_have_more_lines():
    newer = reference_of(
        "# log t\nlog-0000000000\nformat version: 7\ncreate_time: *\nsource replica: r1\n"
        "block_id: *\nlog_entry_id: 5\nget\n1_0_0_0\npart_type: Compact\n"
    )
    older = reference_of(
        "# log t\nlog-0000000000\nformat version: 4\ncreate_time: *\nsource replica: r1\n"
        "block_id: *\nget\n1_0_0_0\n"
    )
    assert differences(older, newer, forced=True) == []


def test_any_leader_may_assign_a_merge_but_an_insert_has_one_source():
    def log(source: str, action: str) -> Outcome:
        return reference_of(
            "# log t\nlog-0000000000\nformat version: 4\ncreate_time: *\n"
            f"source replica: {source}\nblock_id: \n{action}\n"
        )

    merge = "merge\n1_0_0_0\n1_1_1_0\ninto\n1_0_1_1\ndeduplicate: 0"
    assert differences(log("r1", merge), log("r2", merge), forced=True) == []
    assert differences(log("r1", "get\n1_0_0_0"), log("r2", "get\n1_0_0_0"), forced=True)
