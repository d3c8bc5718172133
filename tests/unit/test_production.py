"""examples/production: what its files name is there."""

import runpy
import shlex
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import click
import dagster as dg
import pytest
import yaml
from dagster._cli import cli as dagster_cli
from dagster._daemon.cli import cli as daemon_cli
from dagster_webserver.cli import cli as webserver_cli

from rmt_pipeline.cli import main as rmt_cli
from rmt_pipeline.config import load_config
from rmt_pipeline.dagster.instance import ENVIRONMENT

ROOT = Path(__file__).parents[2]
PRODUCTION = ROOT / "examples" / "production"
UNITS = sorted(PRODUCTION.glob("*.service"))
SHIPPED = ROOT / "rmt_pipeline" / "dagster" / "dagster.yaml"


def lines_of(unit: Path) -> list[tuple[str, str]]:
    """`Key=value` of a unit; a key may be there several times."""
    pairs = [line.split("=", 1) for line in unit.read_text().splitlines() if "=" in line]
    return [(key, value) for key, value in pairs]


def command_of(unit: Path) -> list[str]:
    [line] = [value for key, value in lines_of(unit) if key == "ExecStart"]
    return shlex.split(line)


def environment_of(unit: Path) -> dict[str, str]:
    found = [value.split("=", 1) for key, value in lines_of(unit) if key == "Environment"]
    return dict(found)


CLIS = {
    "rmt": rmt_cli.app,
    "dagster": dagster_cli,
    "rmt_pipeline.dagster.daemon": daemon_cli,
    "dagster-webserver": webserver_cli,
}


@pytest.mark.parametrize("unit", UNITS, ids=[unit.stem for unit in UNITS])
def test_a_unit_starts_a_command_that_there_is_with_options_that_it_takes(unit: Path) -> None:
    program, *arguments = (
        one.replace("%i", "r1").replace("/etc/rmt", str(PRODUCTION)) for one in command_of(unit)
    )
    name = program.removeprefix("/opt/rmt/bin/")
    if name == "python":
        _, name, *arguments = arguments
        assert find_spec(name) is not None
    else:
        scripts = entry_points(group="console_scripts", name=name)
        assert [script.name for script in scripts] == [name]
    command: click.Command = CLIS[name]
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), arguments[0])
        assert found is not None, f"{name} has no command {arguments[0]}"
        command, arguments = found, arguments[1:]
    command.make_context(name, arguments)  # a UsageError for an option that it does not take


def test_the_test_of_units_sees_an_option_that_nobody_takes() -> None:
    serve = CLIS["rmt"].get_command(click.Context(CLIS["rmt"]), "serve")
    assert serve is not None
    with pytest.raises(click.NoSuchOption):
        serve.make_context("serve", ["--replica", "r1"])


@pytest.mark.parametrize("name", ["dagster-daemon", "rmt-location@"])
def test_dagster_s_processes_have_the_environment_that_ours_need(name: str) -> None:
    [unit] = [unit for unit in UNITS if unit.stem == name]
    assert environment_of(unit).items() >= ENVIRONMENT.items()


def test_hosts_and_ports_are_the_same_in_all_files() -> None:
    config = load_config(PRODUCTION / "rmt.toml")
    workspace = yaml.safe_load((PRODUCTION / "workspace.yaml").read_text())["load_from"]
    locations = [one["grpc_server"] for one in workspace]
    [unit] = [unit for unit in UNITS if unit.stem == "rmt-location@"]
    words = command_of(unit)
    port = int(words[words.index("--port") + 1])
    for location in locations:
        server = config.server(location["location_name"])
        assert server.listen == f"{location['host']}:9009"
        assert location["port"] == port
    ensemble = (PRODUCTION / "zoo.cfg").read_text()
    for host in config.zookeeper_hosts.split(","):
        assert f"={host.partition(':')[0]}:2888:3888" in ensemble
    assert "jute.maxbuffer" not in ensemble, "a property of the JVM: ignored there"


def test_the_instance_is_the_one_that_is_shipped_with_another_storage() -> None:
    production = yaml.safe_load((PRODUCTION / "dagster.yaml").read_text())
    assert production.pop("storage").keys() == {"postgres"}
    assert production == yaml.safe_load(SHIPPED.read_text())


def test_a_location_has_the_replica_of_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMT_REPLICA", "r2")
    found = runpy.run_path(str(PRODUCTION / "definitions.py"))["defs"]
    dg.Definitions.validate_loadable(found)
    keys = {spec.key.to_user_string() for spec in found.resolve_all_asset_specs()}
    kinds = ("replica", "parts", "partitions", "health")
    assert keys == {f"orders/r2_{kind}" for kind in kinds}
