"""What README.md and docs say of Python and of rmt.toml is run as it is written."""

import re
import tomllib
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from rmt_pipeline.config import load_config, sections
from rmt_pipeline.dagster import RmtIOManager
from rmt_pipeline.sql.run.session import Session
from tests.support.site import Site

ROOT = Path(__file__).parents[2]


def blocks(document: str, language: str) -> list[str]:
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.dagster
@pytest.mark.zookeeper
def test_the_readme_s_python_example_runs(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RMT_CONFIG", str(site.config.path))
    [example] = blocks("README.md", "python")
    create = re.search(
        r'"(CREATE TABLE orders .*?)"', (ROOT / "README.md").read_text(), re.DOTALL
    )
    assert create is not None
    Session(site.r1).execute(create[1])
    try:
        exec(compile(example, "README.md", "exec"), {})
    finally:
        site.r1.drop_table("default", "orders")
    assert "7.25" in capsys.readouterr().out


def test_the_dagster_page_s_example_is_a_code_location() -> None:
    example = blocks("docs/dagster.md", "python")[0]
    found: dict[str, Any] = {}
    exec(compile(example, "docs/dagster.md", "exec"), found)
    dg.Definitions.validate_loadable(found["defs"])
    keys = {spec.key.to_user_string() for spec in found["defs"].resolve_all_asset_specs()}
    assert {"orders", "orders/r1_replica", "orders/r2_parts"} <= keys


def test_the_dagster_page_s_resources_are_definitions() -> None:
    example = blocks("docs/dagster.md", "python")[1]
    found: dict[str, Any] = {"dg": dg, "RmtIOManager": RmtIOManager}
    exec(compile(example, "docs/dagster.md", "exec"), found)
    assert found["resources"]().resources.keys() == {"io_manager"}


def test_the_default_that_the_page_of_rmt_toml_shows_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RMT_CONFIG", raising=False)
    default = load_config()
    [shown, _] = blocks("docs/configuration.md", "toml")
    file = tmp_path / "rmt.toml"
    file.write_text(shown, encoding="utf-8")
    assert replace(load_config(file), path=None) == default


def keys_of(section: type[Any]) -> set[str]:
    return {one.name for one in fields(section) if one.metadata}


def test_the_page_of_rmt_toml_has_every_key_and_a_file_that_is_read(tmp_path: Path) -> None:
    [_, text] = blocks("docs/configuration.md", "toml")
    file = tmp_path / "rmt.toml"
    file.write_text(text, encoding="utf-8")
    assert load_config(file).server("r1").listen == "127.0.0.1:9009"

    every_key = re.sub(r"^# (?=\w+ =)", "", text, flags=re.MULTILINE)
    written = tomllib.loads(every_key)
    written["servers.NAME"] = written.pop("servers")["r1"]
    written["clusters.NAME"] = written.pop("clusters")["main"]
    models = {
        "zookeeper": sections.ZooKeeperConfig,
        "servers.NAME": sections.ServerConfig,
        "spark": sections.SparkConfig,
        "dagster": sections.DagsterConfig,
        "exchange": sections.ExchangeConfig,
        "clusters.NAME": sections.ClusterConfig,
        "distributed_ddl": sections.DistributedDdlConfig,
        "tls": sections.TlsConfig,
        "monitoring": sections.MonitoringConfig,
        "files": sections.FilesConfig,
    }
    for section, model in models.items():
        assert written[section].keys() == keys_of(model), section
    assert len(fields(sections.Config)) == len(models) + len(["path"])
