"""Small shapes: no module and no function that nobody can hold in the head."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.tidy import tree

MODULE_LINES_MAX = 800  # a bound against sprawl: a module is as long as its noun needs
TABLES = {"tests/mutants/lines.py"}  # as long as there are bugs to plant; looked up, not read
FUNCTION_LINES_MAX = 75  # docstring and all: a proof stands where it is needed


def test_no_module_sprawls() -> None:
    lengths = {str(file): tree.text(file).count("\n") for file in tree.modules(*tree.CODE)}
    long = {name: n for name, n in lengths.items() if n > MODULE_LINES_MAX}
    assert {name: n for name, n in long.items() if name not in TABLES} == {}


def test_no_function_is_longer_than_its_bound() -> None:
    lengths = {
        f"{file}:{node.lineno} {node.name}": node.end_lineno - node.lineno + 1
        for file in tree.modules(*tree.CODE)
        for node in tree.nodes(file)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
    }
    assert {name: n for name, n in lengths.items() if n > FUNCTION_LINES_MAX} == {}


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        str(file)
        for file in tree.modules(*tree.PACKAGES)
        if ast.get_docstring(tree.syntax(file)) is None
    ]
    assert silent == []


FILLER = {
    "a",
    "an",
    "and",
    "as",
    "by",
    "for",
    "from",
    "in",
    "is",
    "it",
    "of",
    "the",
    "this",
    "to",
}


def _public(file: Path) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in tree.syntax(file).body:
        is_definition = isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if is_definition and not node.name.startswith("_"):
            yield node


def _words(text: str) -> set[str]:
    """`read_parts` and `PartRead` have the same ones: lower case, without the s of a plural."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", text)
    return {part.lower().removesuffix("s") for part in parts}


def says_nothing(name: str, docstring: str | None) -> bool:
    """Whether it is missing, or has the name's words alone."""
    return not _words(docstring or "") - _words(name) - FILLER


def test_every_public_class_and_function_says_what_it_is() -> None:
    """To a newcomer who reads it alone; what is not worth a sentence is not worth being public."""
    silent = [
        f"{file}:{node.lineno} {node.name}"
        for file in tree.modules(*tree.PACKAGES)
        for node in _public(file)
        if says_nothing(node.name, ast.get_docstring(node))
    ]
    assert silent == []


def test_a_docstring_that_repeats_the_name_would_be_noticed() -> None:
    assert says_nothing("read_part", None)
    assert says_nothing("read_part", "Reads the part.")
    assert says_nothing("PartReader", "A reader of parts")
    assert not says_nothing("read_part", "Reads the part. Raises Corruption.")


def test_nothing_is_left_for_later() -> None:
    words = [left + right for left, right in (("TO", "DO"), ("FIX", "ME"), ("X", "XX"))]
    left = [
        f"{file}:{number} {line.strip()}"
        for file in tree.files()
        if file.suffix in (".py", ".md", ".toml", ".yaml", ".yml") or file.name == "Makefile"
        for number, line in enumerate(tree.text(file).splitlines(), 1)
        if any(word in line for word in words)
    ]
    assert left == []
