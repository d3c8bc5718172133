"""How big the house is, one column per revision: `python -m benchmarks.house eabef5c HEAD`.

Counted are the packages that are shipped, and for the last line the tests. A module's importers are other modules of these
packages, wherever in them the import stands. A name counts as defined twice when two modules define it at their top level
(`tests.tidy.test_house` has the reason of each that may be). A fragment has one importer and at most 60 lines. What grows with
the product is also given per 1,000 lines of it.
"""

import argparse
import ast
import io
import subprocess
import tarfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.tidy import tree


def sources(revision: str) -> dict[Path, str]:
    """Every Python file of the revision, with its text."""
    packed = subprocess.run(
        ["git", "archive", revision], cwd=tree.ROOT, check=True, capture_output=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        return {
            Path(member.name): packed_file.read().decode()
            for member in archive
            if member.name.endswith(".py") and (packed_file := archive.extractfile(member))
        }


FRAGMENT_LINES_MAX = 60


def imports_something(function: ast.AST) -> bool:
    return any(isinstance(node, ast.Import | ast.ImportFrom) for node in ast.walk(function))


def silent(trees: Iterable[ast.Module]) -> int:
    """Public classes and functions, at the top level of modules, that say nothing of themselves."""
    return sum(
        isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
        and ast.get_docstring(node) is None
        for parsed in trees
        for node in parsed.body
    )


def measure(files: dict[Path, str]) -> dict[str, object]:
    product = {file: text for file, text in files.items() if file.parts[0] in tree.PACKAGES}
    trees = {file: ast.parse(text) for file, text in product.items()}
    modules = {tree.dotted(file) for file in product if file.name != "__init__.py"}
    importers = Counter(
        name
        for file, parsed in trees.items()
        for name in set(tree.names_imported_by(ast.walk(parsed)))
        & modules - {tree.dotted(file)}
    )
    defined = Counter(
        name
        for parsed in trees.values()
        for name in set(tree.names_defined_by(parsed))
        if not name.startswith("_")
    )
    functions = [
        node
        for parsed in trees.values()
        for node in ast.walk(parsed)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    folders = Counter(file.parent for file in product if file.name != "__init__.py")
    lines = {file: text.count("\n") for file, text in product.items()}
    total = sum(lines.values())
    lines_of = {tree.dotted(file): count for file, count in lines.items()}
    single = [name for name, count in importers.items() if count == 1]
    fragments = [name for name in single if lines_of[name] <= FRAGMENT_LINES_MAX]
    twice = sum(count > 1 for count in defined.values())
    inside = sum(map(imports_something, functions))

    def per_thousand(count: int) -> str:
        return f"{count} ({1000 * count / total:.2f})"

    return {
        "folders": len(folders),
        "modules": len(modules),
        "modules in the fullest folder": max(folders.values()),
        "modules with one importer": per_thousand(len(single)),
        "of them fragments": per_thousand(len(fragments)),
        "public names defined twice": per_thousand(twice),
        "functions with an import inside": per_thousand(inside),
        "public names without a docstring": per_thousand(silent(trees.values())),
        "lines of the longest module": max(lines.values()),
        "product lines": total,
        "test lines": sum(
            text.count("\n") for file, text in files.items() if file.parts[0] == "tests"
        ),
    }


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(prog="python -m benchmarks.house", description=__doc__)
    parser.add_argument(
        "revisions", nargs="*", default=["HEAD"], help="what git knows them by (default: HEAD)"
    )
    revisions = parser.parse_args().revisions
    columns = [measure(sources(revision)) for revision in revisions]
    print(" " * 34, *(f"{revision[:12]:>12}" for revision in revisions))
    for row in columns[0]:
        print(f"{row:34}", *(f"{column[row]:>12}" for column in columns))


if __name__ == "__main__":
    main()
