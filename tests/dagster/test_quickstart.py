"""`examples/quickstart`, a project of its own: its definitions load, and a day goes through."""

import importlib
import subprocess
import sys
from types import ModuleType

import dagster as dg
import pytest

from tests.quickstart.page import CHECKOUT, PROJECT, commands, wheel_command
from tests.support.site import Site


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Its module, as one who has installed the project imports it."""
    monkeypatch.syspath_prepend(PROJECT)
    return importlib.import_module("shop.definitions")


def test_the_project_is_a_code_location_that_its_workspace_names(shop: ModuleType) -> None:
    dg.Definitions.validate_loadable(shop.defs)
    assert f"python_module: {shop.__name__}\n" in (PROJECT / "workspace.yaml").read_text()
    keys = {spec.key.to_user_string() for spec in shop.defs.resolve_all_asset_specs()}
    assert {"orders", "revenue", "orders/r1_replica", "orders/r2_replica"} <= keys


def test_the_readme_shows_the_page_s_five_commands() -> None:
    lines = (CHECKOUT / "README.md").read_text(encoding="utf-8").splitlines()
    assert [line.strip() for line in lines if line.strip() in commands()] == commands()[:5]


def test_who_has_uv_types_the_same_but_for_the_installation() -> None:
    differ = [
        (one, other)
        for one, other in zip(commands(), commands(with_uv=True), strict=True)
        if one != other
    ]
    [(with_pip, with_uv)] = differ
    assert with_pip.split()[:2] == [".venv/bin/pip", "install"]
    assert with_uv.startswith("uv pip install --python .venv/bin/python ")
    assert with_uv.split()[-3:] == with_pip.split()[-3:]
    for with_one in (False, True):
        assert "dist" in wheel_command(with_uv=with_one)


@pytest.mark.dagster
@pytest.mark.zookeeper
def test_one_day_makes_the_replicas_its_insert_and_the_revenue(
    shop: ModuleType, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RMT_CONFIG", str(site.config.path))
    wanted = (
        dg.AssetSelection.assets("revenue").upstream().resolve(shop.defs.resolve_asset_graph())
    )
    job = shop.defs.resolve_implicit_job_def_def_for_assets(wanted)
    of_the_file = [
        float(line.rpartition(",")[2])
        for line in shop.FILE.read_text().splitlines()
        if line.startswith("2026-01-03,")
    ]
    try:
        with dg.instance_for_test() as instance:
            for _ in range(2):  # the second time inserts nothing
                result = job.execute_in_process(
                    instance=instance, asset_selection=[*wanted], partition_key="2026-01-03"
                )
                [event] = [
                    each.materialization
                    for each in result.get_asset_materialization_events()
                    if each.asset_key == dg.AssetKey("revenue")
                ]
                assert event.metadata["revenue"].value == pytest.approx(sum(of_the_file))
                rows = site.r1.table("orders").dataset().count_rows()
                assert rows == len(of_the_file)
        assert site.r2.table("orders").definition.engine.replica == "r2"
    finally:
        for server in (site.r1, site.r2):
            server.drop_table("default", "orders")


def test_a_code_location_loads_without_dagster_s_storage() -> None:
    """A fifth of the time that a location takes to load: only ticks and runs need a database."""
    program = "import sys, examples.quickstart.shop.definitions; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program],
        cwd=CHECKOUT,
        check=True,
        capture_output=True,
        text=True,
    )
    assert {"sqlalchemy", "alembic"}.isdisjoint(loaded.stdout.split())
