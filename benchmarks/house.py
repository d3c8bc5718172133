"""How big the house is, one column per revision: `python -m benchmarks.house HEAD~100 HEAD`.

Counted are the packages that are shipped, and for the last line the tests. A module's importers are other modules of these
packages, wherever in them the import stands. A name counts as defined twice when two modules define it at their top level
(`tests.tidy.test_house` has the reason of each that may be).
"""

import ast
import io
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path

from tests.tidy import tree


def sources(revision: str) -> dict[Path, str]:
    """Every Python file of the revision, with its text."""
    packed = subprocess.run(
        ["git", "archive", revision], cwd=tree.ROOT, check=True, capture_output=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        return {
            Path(member.name): archive.extractfile(member).read().decode()
            for member in archive
            if member.isfile() and member.name.endswith(".py")
        }


def imports_something(function: ast.AST) -> bool:
    return any(isinstance(node, ast.Import | ast.ImportFrom) for node in ast.walk(function))


def measure(files: dict[Path, str]) -> dict[str, object]:
    product = {file: text for file, text in files.items() if file.parts[0] in tree.PACKAGES}
    trees = {file: ast.parse(text) for file, text in product.items()}
    modules = {tree.dotted(file) for file in product if file.name != "__init__.py"}
    importers = Counter(
        name
        for file, parsed in trees.items()
        for name in set(tree.names_imported_by(parsed)) & modules - {tree.dotted(file)}
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
    longest = max(product, key=lambda file: product[file].count("\n"))
    return {
        "folders": len(folders),
        "modules": len(modules),
        "modules in the fullest folder": max(folders.values()),
        "modules with one importer": sum(count == 1 for count in importers.values()),
        "public names defined twice": sum(count > 1 for count in defined.values()),
        "functions with an import inside": sum(map(imports_something, functions)),
        "lines of the longest module": product[longest].count("\n"),
        "product lines": sum(text.count("\n") for text in product.values()),
        "test lines": sum(
            text.count("\n") for file, text in files.items() if file.parts[0] == "tests"
        ),
    }


def main() -> None:
    revisions = sys.argv[1:] or ["HEAD"]
    columns = [measure(sources(revision)) for revision in revisions]
    print(" " * 34, *(f"{revision[:12]:>12}" for revision in revisions))
    for row in columns[0]:
        print(f"{row:34}", *(f"{column[row]:>12}" for column in columns))


if __name__ == "__main__":
    main()
