"""docs/proof.md: every item has a line, and every test that it names exists."""

import ast
import re

from tests.tidy import tree

PROOF = "docs/proof.md"
ITEMS = {"G": 7, "I": 16, "Q": 15, "M": 10, "D": 11, "F": 12, "C": 16, "U": 11, "E": 6}


def test_every_test_that_the_proof_names_exists() -> None:
    known = {
        node.name
        for file in tree.modules("tests")
        for node in tree.nodes(file)
        if isinstance(node, ast.FunctionDef)
    }
    named = set(re.findall(r"`(test_\w+)`", tree.text(PROOF)))
    assert len(named) > 50
    assert sorted(named - known) == []


def test_every_item_has_one_line_with_a_test_or_a_reason() -> None:
    lines = re.findall(r"^\| ([A-Z]\d+) \| (.+) \|$", tree.text(PROOF), re.MULTILINE)
    wanted = [
        f"{kind}{number}" for kind, count in ITEMS.items() for number in range(1, count + 1)
    ]
    assert sorted(item for item, _ in lines) == sorted(wanted)
    reasons = ("`test_", "deviates: ", "not built yet: ")
    assert [item for item, said in lines if not any(one in said for one in reasons)] == []


def test_each_promise_has_a_number_of_its_own() -> None:
    numbers = re.findall(r"^\*\*(P\d+)\.", tree.text("docs/protocol.md"), re.MULTILINE)
    assert len(numbers) > 30
    assert sorted(numbers) == sorted(set(numbers))
