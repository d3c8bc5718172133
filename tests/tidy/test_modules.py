"""The packages: nothing unused, nothing from elsewhere, Dagster's traps avoided."""

import ast
import importlib

import pytest

from tests.tidy import tree

ENTRY_POINTS = {
    "assets.definitions": "workspace.yaml names it",
    "examples.flights.definitions": "its workspace.yaml names it",
    "examples.production.definitions": "its rmt-location@.service names it",
    "examples.quickstart.shop.definitions": "its workspace.yaml names it",
    "rmt_pipeline.processes.guardian": "`processes.child` runs it as a script",
    "rmt_pipeline.spark": "what projects register with Spark",
    "rmt_pipeline.table": "the public face in Python",
    "rmt_pipeline.dagster.daemon": "`rmt dagster` and dagster-daemon.service run it",
    "rmt_pipeline.dagster.component": "projects name it in YAML, `dg` by its entry point",
    "rmt_pipeline.dagster.exports": "what projects import",
    "rmt_pipeline.dagster.io_manager": "what projects import",
    "rmt_pipeline.dagster.launcher": "dagster.yaml names it",
}


def test_every_module_is_imported_by_another_one() -> None:
    known = {tree.dotted(file): file for file in tree.modules(*tree.PACKAGES)}
    used = {
        name
        for module, file in known.items()
        for name in tree.imported_names(file)
        if name != module
    }
    packages = {tree.dotted(file) for file in known.values() if file.name == "__init__.py"}
    mains = {module for module in known if module.endswith(".__main__")}
    unused = known.keys() - used - packages - mains - ENTRY_POINTS.keys()
    assert sorted(unused) == []


@pytest.mark.parametrize("package", tree.PACKAGES)
def test_the_generic_package_names_are_ours(package: str) -> None:
    """`assets`, `resources` and `examples` are names that other projects may have too."""
    module = importlib.import_module(package)
    assert module.__file__ is not None
    assert module.__file__.startswith(str(tree.ROOT / package))


def test_annotations_that_dagster_reads_are_there_at_run_time() -> None:
    """Dagster rejects a context or resource whose annotation is only a text (1.13)."""
    offenders = [
        str(file)
        for file in tree.modules(*tree.PACKAGES)
        if file.parts[1] == "dagster" or file.parts[0] != "rmt_pipeline"
        if {"__future__.annotations", "typing.TYPE_CHECKING"} & set(tree.imported_names(file))
    ]
    assert offenders == []


def test_nothing_is_skipped_or_expected_to_fail_without_a_reason() -> None:
    bare = [
        f"{file}:{node.lineno}"
        for file in tree.modules("tests")
        for node in tree.nodes(file)
        if isinstance(node, ast.Attribute)
        and node.attr in {"skip", "xfail", "skipif"}
        and f"{node.attr}()" in ast.unparse(node)
    ]
    assert bare == []
