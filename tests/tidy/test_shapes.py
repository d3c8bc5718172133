"""Small shapes: no module and no function that nobody can hold in the head."""

import ast

from tests.tidy import tree

MODULE_LINES_MAX = 800  # a bound against sprawl: a module is as long as its noun needs
TABLES = {"tests/mutants/lines.py"}  # as long as there are bugs to plant; looked up, not read
FUNCTION_LINES_MAX = 80  # the session names what carries out each statement, a line or two each


def test_no_module_sprawls() -> None:
    lengths = {str(file): tree.text(file).count("\n") for file in tree.modules(*tree.CODE)}
    long = {name: n for name, n in lengths.items() if n > MODULE_LINES_MAX}
    assert {name: n for name, n in long.items() if name not in TABLES} == {}


def test_no_function_is_longer_than_its_bound() -> None:
    lengths = {
        f"{file}:{node.lineno} {node.name}": node.end_lineno - node.lineno + 1
        for file in tree.modules(*tree.CODE)
        for node in ast.walk(tree.syntax(file))
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
