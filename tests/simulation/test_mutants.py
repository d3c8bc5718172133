"""Planted bugs: their table is right, and a few are planted here. `make mutants` plants all."""

import ast
import re
from pathlib import Path
from types import FunctionType

import pytest

from rmt_pipeline.protocol.merges.predicate import mergeable_runs
from rmt_pipeline.protocol.queue import view as queue
from tests.crash.scenarios import SCENARIOS
from tests.mutants import lines, plants, table
from tests.mutants.machine.__main__ import explained
from tests.mutants.machine.planting import Garden
from tests.mutants.machine.sites import Site, planted, sites_of
from tests.mutants.machine.tests_of_lines import ROOT, ByLine
from tests.mutants.planting import LineMutant
from tests.mutants.run import NotPlanted, alone, notice, sooner
from tests.mutants.stories import STORIES, tell
from tests.mutants.table import Mutant
from tests.simulation import run
from tests.simulation.between import Tables
from tests.simulation.watchman import Watchman

PROOF = Path(__file__).parents[2] / "docs" / "proof.md"
CHECKS = {
    *(checker.__name__ for checker in run.CHECKERS),
    "nothing_is_left_behind",
    "on_disk_is_promised",
    *(
        name
        for looking in (Watchman, Tables)
        for name, one in vars(looking).items()
        if isinstance(one, FunctionType) and not name.startswith("_")
    ),
} - {"fetching", "statement"}  # what these give is called, and asks the checks
ALONE = [mutant for mutant in table.MUTANTS if mutant.only_by]
SOONER = [mutant for mutant in table.MUTANTS if mutant.first_by]
TOLD = [mutant for mutant in table.MUTANTS if mutant.story and mutant not in (*ALONE, *SOONER)]
SOON = [*TOLD, *(mutant for mutant in table.MUTANTS if mutant.test)]  # a step or two each


@pytest.mark.parametrize("mutant", SOON, ids=str)
def test_a_planted_bug_is_noticed(mutant: Mutant) -> None:
    assert notice(mutant) is not None


@pytest.mark.parametrize("mutant", ALONE, ids=lambda mutant: mutant.only_by)
def test_each_check_has_a_bug_that_only_it_notices(mutant: Mutant) -> None:
    assert alone(mutant) is not None


@pytest.mark.parametrize("mutant", SOONER, ids=lambda mutant: mutant.first_by)
def test_some_checks_notice_a_bug_before_anybody_else_does(mutant: Mutant) -> None:
    assert sooner(mutant) is not None


@pytest.mark.parametrize("story", STORIES)
def test_without_a_bug_every_story_ends_well(story: str) -> None:
    """And each is of some bug."""
    tell(story)
    assert story in {mutant.story for mutant in table.MUTANTS}


def test_no_check_is_without_such_a_bug() -> None:
    """But for one: a mutation that is not carried out is noticed when it is noted as finished."""
    late = {"mutations_are_finished"}
    noticing = {mutant.only_by or mutant.first_by for mutant in (*ALONE, *SOONER)}
    assert noticing == CHECKS - late


def test_nobody_notices_a_change_that_changes_nothing() -> None:
    """The canary: what `make mutants` must be able to say."""
    assert notice(Mutant("nothing", lambda patch: None, seed=1), seeds_max=2) is None


def test_a_bug_that_does_not_fit_the_code_any_more_is_noticed_by_nobody() -> None:
    """Whoever calls it gets a TypeError, which says nothing of the promise that it should break."""
    unfit = Mutant(
        "unfit", plants.instead(queue.QueueView, "choose", lambda: ()), story="a_merge"
    )
    with pytest.raises(NotPlanted, match=r"does not fit the code: .*takes 0 positional"):
        notice(unfit)


def test_the_lines_that_are_planted_stand_in_their_files() -> None:
    assert [mutant.name for mutant in lines.MUTANTS if not mutant.is_there] == []


def test_the_lines_that_are_planted_are_python_and_know_their_names() -> None:
    found = {mutant.name: mutant.nonsense() for mutant in lines.MUTANTS}
    assert {name: why for name, why in found.items() if why} == {}


def test_the_tests_that_are_to_notice_a_line_are_there() -> None:
    """Of a path that is not there pytest runs nothing, and nobody notices anything."""
    paths = {
        word.partition("::")[0]
        for mutant in lines.MUTANTS
        for word in mutant.noticed_by.split()
        if word.startswith("tests/")
    }
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


def test_a_line_that_cannot_be_run_is_nonsense() -> None:
    where = "rmt_pipeline/replica/life/start.py"
    line = "        mark_lost_if_log_is_gone(replica)\n"
    unknown, unindented = (
        LineMutant("nonsense", where, line, wrong, "")
        for wrong in ("        gone()\n", "        if\n")
    )
    assert unknown.nonsense() == "gone is nowhere else"
    assert "invalid syntax" in unindented.nonsense()


def test_the_scenarios_that_notice_bugs_exist() -> None:
    assert {mutant.scenario for mutant in table.MUTANTS} - {""} <= SCENARIOS.keys()


def test_the_table_in_the_docs_has_every_bug_once() -> None:
    names = [mutant.name for mutant in (*table.MUTANTS, *lines.MUTANTS)]
    assert len(names) == len(set(names)) >= 40
    shown = re.findall(r"^\| ([a-z -]+: [^|]+?) \|", PROOF.read_text(), re.MULTILINE)
    assert sorted(shown) == sorted(names)


def test_bugs_of_the_machine_that_are_explained_can_be_planted() -> None:
    known = explained()
    files = {name.partition("::")[0] for name in known}
    sites = [site for file in files for site in sites_of(Path(ROOT, file).read_text(), file)]
    assert known.keys() <= {site.name for site in sites}
    assert all(reason.endswith(".") for reason in known.values())


def test_a_bug_of_the_machine_is_what_its_name_says() -> None:
    """A guard, a comparison, a field of a multi, an exception: each changes this place alone."""
    source = """
def act(keeper, old, new):
    try:
        if old < new:
            keeper.multi([Check("/a", old), Delete("/b", new)])
    except Refused:
        return None
"""
    found = {
        (site.kind, ast.unparse(planted(source, site)).strip())
        for site in sites_of(source, "act.py")
    }
    right = ast.unparse(ast.parse(source)).strip()
    assert found == {
        ("comparison", right.replace("old < new", "old <= new")),
        ("guard", right.replace("old < new", "False")),
        ("guard", right.replace("old < new", "True")),
        ("field", right.replace("Check('/a', old), ", "")),
        ("field", right.replace(", Delete('/b', new)", "")),
        ("version", right.replace("'/a', old", "'/a'")),
        ("version", right.replace("'/b', new", "'/b'")),
        (
            "effect",
            right.replace("keeper.multi([Check('/a', old), Delete('/b', new)])", "pass"),
        ),
        ("exception", right.replace("return None", "raise")),
    }


def test_a_bug_of_the_machine_grows_in_what_is_imported_already() -> None:
    """In a function, and in what is made within it; not in what is done once, at the import."""
    garden = Garden()
    [within] = _sites("rmt_pipeline/protocol/merges/predicate.py", "mergeable_runs filter: run")
    plant = garden.plant(within)
    assert plant is not None
    [(function, code)] = plant.functions
    assert function is mergeable_runs
    before = function.__code__
    try:
        plant.grow()
        assert function.__code__ is code != before
    finally:
        function.__code__ = before
    at_the_import = _sites("rmt_pipeline/replica/pull_log.py", ":: arithmetic")
    assert at_the_import
    assert [garden.plant(once) for once in at_the_import] == [None] * len(at_the_import)


def _sites(file: str, name: str) -> list[Site]:
    text = Path(ROOT, file).read_text()
    return [site for site in sites_of(text, file) if name in site.name]


def test_tests_of_a_line_come_quickest_first_and_worlds_last() -> None:
    world = "t.py::test_every_promise_holds_in_every_world[1]"
    tests = ByLine(
        {"a.py": {1: ["slow", "quick", "slowest"], 2: ["other"]}},
        {"slow": 2.0, "quick": 1.0, "slowest": 9.0, "other": 0.5},
        [world, world.replace("1", "21")],
    )
    among = {"slow", "quick", "slowest", "other"}
    assert tests.running("a.py", 1, 4.0, among) == ["quick", "slow", world]
    assert tests.running("a.py", 1, 4.0, among - {"quick"}) == ["slow", world]
    assert tests.running("a.py", 7, 1.0, among) == ["other", world]
