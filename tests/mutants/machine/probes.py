"""Functions of the product that tell which of their statements run, as far as a bug can be planted
there. Tests take hardly longer by that: to count all lines makes them three times as slow.
"""

import ast
import builtins
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType

from tests.mutants.machine.planting import Garden
from tests.mutants.machine.sites import Site
from tests.mutants.machine.tests_of_lines import ROOT

NAME = "__ran__"
Statement = ast.stmt | ast.ExceptHandler


@dataclass(frozen=True, slots=True)
class Probes:
    """`places` are the file and the lines that each number stands for; `ran` the numbers that were
    told since somebody has cleared it.
    """

    places: Sequence[tuple[str, Sequence[int]]]
    functions: Sequence[tuple[FunctionType, CodeType]]
    ran: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, sites: Collection[Site], garden: Garden) -> "Probes":
        lines: dict[str, set[int]] = defaultdict(set)
        for site in sites:
            lines[site.file].add(site.line)
        places: list[tuple[str, Sequence[int]]] = []
        functions: list[tuple[FunctionType, CodeType]] = []
        for file, some in lines.items():
            tree = ast.parse((ROOT / file).read_text())
            places += [(file, inside) for inside in _with_probes(tree, some, len(places))]
            functions += garden.living(file, ast.fix_missing_locations(tree))
        return cls(places, functions)

    def grow(self) -> None:
        setattr(builtins, NAME, self.ran.add)
        for function, code in self.functions:
            function.__code__ = code

    def told(self) -> Iterator[tuple[str, int]]:
        """The files and lines that ran."""
        for number in self.ran:
            file, lines = self.places[number]
            for line in lines:
                yield file, line


def _with_probes(tree: ast.Module, lines: Collection[int], first: int) -> Iterator[list[int]]:
    """Put a probe before each statement of a function that has some of these lines; yields those of
    each, whose numbers begin with `first`. What is done at the import needs none.
    """
    inside = _innermost(tree, lines)
    number = first
    for block, position, owner in _statements(tree):
        if owner in inside:
            probe = ast.parse(f"{NAME}({number})").body[0]
            block.insert(position, ast.copy_location(probe, block[position]))
            yield inside[owner]
            number += 1


def _innermost(tree: ast.Module, lines: Collection[int]) -> Mapping[ast.AST, list[int]]:
    """Which statement each line belongs to: outer ones are walked through before inner ones."""
    owner: dict[int, ast.AST] = {}
    for node in ast.walk(tree):
        if isinstance(node, Statement):
            assert node.end_lineno is not None
            owner.update(
                (line, node)
                for line in range(node.lineno, node.end_lineno + 1)
                if line in lines
            )
    found: dict[ast.AST, list[int]] = defaultdict(list)
    for line, node in owner.items():
        found[node].append(line)
    return found


def _statements(tree: ast.Module) -> list[tuple[list[ast.stmt], int, ast.AST]]:
    """Of all functions: the block that a statement is in, and where; the last ones come first, so
    that something can be put before each. A handler begins with its first statement.
    """
    found: list[tuple[list[ast.stmt], int, ast.AST]] = []
    seen: set[int] = set()
    functions = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)]
    for node in (node for function in functions for node in ast.walk(function)):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and id(block) not in seen:
                seen.add(id(block))
                found += [(block, at, one) for at, one in enumerate(block)][::-1]
                if isinstance(node, ast.ExceptHandler):
                    found.append((block, 0, node))
    return found
