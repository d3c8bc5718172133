"""What the rules of the house look at: the files that git knows or would add."""

import ast
import functools
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("rmt_pipeline", "assets", "resources", "examples")
CODE = (*PACKAGES, "tests", "benchmarks")


@functools.cache
def files() -> tuple[Path, ...]:
    """Every file of the project, relative to its root, sorted."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return tuple(sorted(Path(line) for line in listed.splitlines() if (ROOT / line).is_file()))


def modules(*tops: str) -> list[Path]:
    return [file for file in files() if file.suffix == ".py" and file.parts[0] in tops]


def text(file: Path | str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


@functools.cache
def syntax(file: Path) -> ast.Module:
    return ast.parse(text(file), str(file))


@functools.cache
def nodes(file: Path) -> tuple[ast.AST, ...]:
    """All of its syntax: many rules look at each node, and finding these takes longest."""
    return tuple(ast.walk(syntax(file)))


def dotted(file: Path) -> str:
    """`rmt_pipeline/store/disk.py` is `rmt_pipeline.store.disk`; a package is its directory."""
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def imported_names(file: Path) -> tuple[str, ...]:
    """Every dotted name that the file imports, wherever in it."""
    return tuple(names_imported_by(nodes(file)))


def names_imported_by(all_nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in all_nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def names_defined_by(parsed: ast.Module) -> Iterator[str]:
    """Classes, functions and named types of a module's top level."""
    for node in parsed.body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]) if _is_type_name(name):
                yield name


def _is_type_name(name: str) -> bool:
    return name[0].isupper() and not name.isupper()
