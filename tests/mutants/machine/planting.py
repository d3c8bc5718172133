"""Plant a bug in modules that are imported already, or in one that is about to be."""

import ast
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType

from tests.mutants.machine.sites import Site, planted
from tests.mutants.machine.tests_of_lines import ROOMS, ROOT


@dataclass(frozen=True, slots=True)
class Plant:
    """What becomes of a module with a bug: other code for some of its functions."""

    site: Site
    functions: tuple[tuple[FunctionType, CodeType], ...]

    def grow(self) -> None:
        for function, code in self.functions:
            function.__code__ = code


class Garden:
    """Functions of the product as they are now, by their code; ask before anything is planted."""

    def __init__(self) -> None:
        rooms = tuple(str(ROOT / room) for room in ROOMS)
        self._functions: dict[tuple[str, CodeType], list[FunctionType]] = defaultdict(list)
        gc.unfreeze()  # else what an import of rmt_pipeline.dagster froze is not among them
        for one in gc.get_objects():
            if type(one) is FunctionType and one.__code__.co_filename.startswith(rooms):
                self._functions[one.__code__.co_filename, one.__code__].append(one)

    def living(self, file: str, tree: ast.Module) -> list[tuple[FunctionType, CodeType]]:
        """The functions of a module, also those within others, and the code that they would have if
        it were this one.
        """
        path = str(ROOT / file)
        before = compile((ROOT / file).read_text(), path, "exec", dont_inherit=True)
        after = compile(tree, path, "exec", dont_inherit=True)
        return [
            (function, new)
            for old, new in _pairs(before, after)
            for function in self._functions.get((path, old), ())
            if len(old.co_freevars) == len(new.co_freevars)
        ]

    def plant(self, site: Site) -> Plant | None:
        """None when it changes what is done once, when the module is imported."""
        path = ROOT / site.file
        text = path.read_text()
        before = compile(text, str(path), "exec", dont_inherit=True)
        after = compile(planted(text, site), str(path), "exec", dont_inherit=True)
        functions = []
        for old, new in _differing(before, after):
            living = self._functions.get((str(path), old), ())
            if not living or not old.co_flags & inspect.CO_OPTIMIZED:
                return None
            if len(old.co_freevars) != len(new.co_freevars):
                return None
            functions += [(function, new) for function in living]
        return Plant(site, tuple(functions)) if functions else None


def _differing(before: CodeType, after: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """The outermost pieces of code that differ by themselves, or in what is made within them."""
    if before == after:
        return
    inner, other = _inner(before), _inner(after)
    is_function = before.co_flags & inspect.CO_OPTIMIZED
    if is_function or _own(before) != _own(after) or len(inner) != len(other):
        yield before, after
        return
    for one, two in zip(inner, other, strict=True):
        yield from _differing(one, two)


def _pairs(before: CodeType, after: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Each piece of code that differs, with what it is then; nothing was added or taken away."""
    if before == after:
        return
    yield before, after
    for one, two in zip(_inner(before), _inner(after), strict=True):
        yield from _pairs(one, two)


def _inner(code: CodeType) -> list[CodeType]:
    return [one for one in code.co_consts if isinstance(one, CodeType)]


def _own(code: CodeType) -> tuple[object, ...]:
    consts = [repr(one) for one in code.co_consts if not isinstance(one, CodeType)]
    return code.co_code, code.co_names, consts


class PlantedModule(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module with a bug in it; everything else as it is."""

    def __init__(self, site: Site) -> None:
        path = ROOT / site.file
        self._path = path
        self._name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        self._code = compile(planted(path.read_text(), site), str(path), "exec")

    def grow(self) -> None:
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, _path: object, _target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        return importlib.util.spec_from_file_location(fullname, self._path, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        exec(self._code, module.__dict__)
