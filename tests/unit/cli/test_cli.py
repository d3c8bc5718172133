"""The command line: errors are one line, options mean what they say, help answers at once."""

import errno
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rmt_pipeline import __version__
from rmt_pipeline.cli import export as cli_export
from rmt_pipeline.cli import main as cli
from rmt_pipeline.cli import merges as cli_merges
from rmt_pipeline.cli import up
from rmt_pipeline.cli.up import locations_of, services
from rmt_pipeline.config import load_config
from rmt_pipeline.protocol.errors import BadConfiguration

TWO_SERVERS = """
[zookeeper]
port = 1
[servers.r1]
data = "one"
listen = "127.0.0.1:2"
[servers.r2]
data = "two"
listen = "127.0.0.1:3"
"""


@pytest.fixture
def config_file(tmp_path):
    file = tmp_path / "rmt.toml"
    file.write_text(TWO_SERVERS)
    return file


@pytest.fixture
def rmt(config_file, monkeypatch, capsys):
    """Runs `rmt --config FILE arguments…` in this process: exit status, and both outputs."""

    def run(*arguments: str):
        monkeypatch.setattr(sys, "argv", ["rmt", "--config", str(config_file), *arguments])
        monkeypatch.delenv("RMT_DEBUG", raising=False)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return ended.value.code or 0, captured.out, captured.err

    return run


@pytest.fixture
def sql_calls(monkeypatch):
    """What `rmt sql` hands on."""
    calls = []

    def run(config, *rest):
        calls.append((sorted(config.servers), *rest))
        return 7

    main = pytest.importorskip("rmt_pipeline.sql.client.main")
    monkeypatch.setattr(main, "run", run)
    return calls


def test_an_error_is_one_line_with_its_code(rmt):
    status, out, err = rmt("serve", "--server", "r3")
    assert (status, out) == (1, "")
    assert err.startswith("Code: BAD_ARGUMENTS. there is no server 'r3' in ")
    assert err.count("\n") == 1


def test_what_the_disk_refuses_is_one_line_too(rmt, monkeypatch):
    def refused(*_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/r1/exports")

    monkeypatch.setattr(cli_export, "run_export", refused)
    status, out, error = rmt("export", "t", "--server", "r1")
    assert (status, out) == (1, "")
    assert error == "Code: SYSTEM_ERROR. [Errno 13] Permission denied: '/r1/exports'\n"


def test_a_broken_configuration_is_named(rmt, config_file):
    config_file.write_text("[zookeper]\n")
    status, _, err = rmt("status")
    assert status == 1
    assert err.startswith("Code: INVALID_CONFIG_PARAMETER. ")
    assert "did you mean 'zookeeper'" in err


def test_debug_shows_where_an_error_is_from(config_file, monkeypatch):
    monkeypatch.setattr(
        sys, "argv", ["rmt", "--config", str(config_file), "serve", "--server", "r3"]
    )
    monkeypatch.setenv("RMT_DEBUG", "1")
    with pytest.raises(cli.UserError):
        cli.main()


def test_sql_hands_on_its_options(rmt, sql_calls):
    status, _, _ = rmt(
        *("sql", "--server", "r2", "--set", "a=1", "--set", "b=x=y", "--format", "CSV"),
        *("--ignore-error", "SELECT 1"),
    )
    assert status == 7
    assert sql_calls == [
        (["r1", "r2"], "r2", {"a": "1", "b": "x=y"}, "CSV", True, "SELECT 1"),
    ]


def test_sql_without_statements_reads_them_itself(rmt, sql_calls):
    rmt("sql", "--server", "r1")
    assert sql_calls == [(["r1", "r2"], "r1", {}, None, False, None)]


ONE_SERVER = ("sql", "serve", "worker", "reload", "cleanup", "check")


@pytest.mark.parametrize("command", ONE_SERVER)
def test_which_of_several_servers_is_meant_has_to_be_said(rmt, command):
    status, _, err = rmt(command)
    assert status == 1
    assert "Give --server NAME or set RMT_SERVER; there are: r1, r2" in err


def test_the_only_server_is_meant_by_itself(rmt, sql_calls, config_file):
    config_file.write_text("[servers.only]\ndata = 'd'\nlisten = 'h:1'\n")
    rmt("sql", "SELECT 1")
    assert [call[1] for call in sql_calls] == ["only"]


def test_the_environment_names_a_server_and_the_option_wins(rmt, sql_calls, monkeypatch):
    monkeypatch.setenv("RMT_SERVER", "r2")
    rmt("sql", "SELECT 1")
    rmt("sql", "--server", "r1", "SELECT 1")
    assert [call[1] for call in sql_calls] == ["r2", "r1"]


@pytest.mark.parametrize(
    "command",
    [*ONE_SERVER, "status", "merges", "mutations", "force-restore-data t", "explain merges t"],
)
def test_every_command_names_a_server_in_the_same_way(rmt, monkeypatch, command):
    status, _, err = rmt(*command.split(), "--server", "r3")
    assert status == 1
    assert "there is no server 'r3'" in err
    monkeypatch.setenv("RMT_SERVER", "r4")
    status, _, err = rmt(*command.split())
    assert status == 1
    assert "there is no server 'r4'" in err


@pytest.mark.parametrize("command", ["serve", "worker", "reload", "cleanup"])
def test_a_server_as_first_argument_is_told_its_new_name(rmt, command):
    status, _, err = rmt(command, "r1")
    assert status == 2
    assert f"rmt {command} --server r1\n" in err


def test_an_unknown_option_is_two_lines_and_not_a_traceback(rmt):
    status, _, err = rmt("sql", "--fromat", "CSV")
    assert status == 2
    assert "--format" in err
    assert "Traceback" not in err


def test_a_shell_completes_commands_options_and_servers(config_file):
    """As bash does it, with what `rmt completion bash` prints."""
    command = config_file.with_name("rmt")
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m rmt_pipeline.cli "$@"\n')
    command.chmod(0o755)
    script = f"""
        PATH={config_file.parent}:$PATH
        eval "$(rmt completion bash)"
        ask() {{
            COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
            _rmt_completion rmt; echo "${{COMPREPLY[*]}}"
        }}
        complete -p rmt
        ask rmt --config {config_file} for
        ask rmt --config {config_file} sql --ig
        ask rmt --config {config_file} serve --server r
    """
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    bound, *answers = done.stdout.splitlines()
    assert "_rmt_completion" in bound
    assert answers == ["force-restore-data", "--ignore-error", "r1 r2"]


@pytest.mark.parametrize(
    ("shell", "word"), [("zsh", "compdef _rmt_completion rmt"), ("fish", "complete --no-files")]
)
def test_other_shells_have_their_scripts(rmt, shell, word):
    status, out, _ = rmt("completion", shell)
    assert status == 0
    assert word in out
    assert "_RMT_COMPLETE" in out


def test_merges_hands_on_its_options(rmt, monkeypatch):
    calls = []

    def run(config, server, table, *, watch):
        calls.append((sorted(config.servers), server, table, watch))
        return 0

    monkeypatch.setattr(cli_merges, "run_merges", run)
    rmt("merges")
    rmt("merges", "db.t", "--server", "r2", "--watch")
    assert calls == [(["r1", "r2"], None, None, False), (["r1", "r2"], "r2", "db.t", True)]


def test_merges_of_an_unknown_server_are_an_error(rmt):
    status, _, err = rmt("merges", "--server", "r3")
    assert status == 1
    assert "there is no server 'r3'" in err


def test_a_setting_without_a_value_is_refused(rmt, sql_calls):
    status, _, err = rmt("sql", "--server", "r1", "--set", "a", "SELECT 1")
    assert status == 1
    assert "--set 'a' is not NAME=VALUE" in err
    assert sql_calls == []


def test_zookeeper_is_not_started_beside_somebody_elses(rmt, config_file):
    config_file.write_text("[zookeeper]\nhosts = 'zk1:2181'\n")
    status, _, err = rmt("zookeeper")
    assert status == 1
    assert "'zk1:2181'" in err


@pytest.mark.parametrize("given", ["remote = 'sc://far'", "master = 'spark://far'"])
def test_spark_is_not_started_beside_somebody_elses(rmt, config_file, given):
    config_file.write_text(f"[spark]\n{given}\n")
    status, _, err = rmt("spark")
    assert status == 1
    assert "://far" in err


def test_once_and_until_idle_exclude_each_other(rmt):
    status, _, err = rmt("worker", "--server", "r1", "--once", "--until-idle")
    assert status == 1
    assert "exclude each other" in err


def test_a_worker_of_another_servers_directory_is_refused(rmt, tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "server.json").write_text(
        '{"format": 1, "server": "r9", "cluster": "c", "id": "i"}'
    )
    status, _, err = rmt("worker", "--server", "r1", "--once")
    assert status == 1
    assert "data directory of server 'r9'" in err


def test_everything_is_our_own_commands(config_file):
    config = load_config(config_file)
    wanted = services(config, dagster=True, spark=True, work=False)
    rmt_command = f"{sys.executable} -m rmt_pipeline.cli --config {config_file}"
    assert [f"{one.name}: {' '.join(one.command)}" for one in wanted] == [
        f"zookeeper: {rmt_command} zookeeper",
        f"r1: {rmt_command} serve --server r1 --connect-timeout-s 180",
        f"r2: {rmt_command} serve --server r2 --connect-timeout-s 180",
        f"spark: {rmt_command} spark",
        f"dagster: {rmt_command} dagster --wait",
    ]


def test_what_to_try_first_can_be_typed_as_it_stands(config_file, monkeypatch):
    """Not many have `rmt` in PATH, and a configuration elsewhere has to be named."""
    program = Path(sys.executable).with_name("rmt")
    config = load_config(config_file)
    found = []
    for path, directory in (
        ("", program.parents[1]),
        ("", config_file.parent),
        (str(program.parent), config_file.parent),
    ):
        monkeypatch.setenv("PATH", path)
        monkeypatch.chdir(directory)
        found.append(up.first_steps(config))
    assert found == [
        f"{rmt} sql --server r1 'SHOW TABLES';  {rmt} status"
        for rmt in (f"bin/rmt --config {config_file}", f"{program}", "rmt")
    ]


def test_only_what_is_ours_is_started(config_file):
    config_file.write_text(
        "[zookeeper]\nhosts = 'zk1:2181'\n[spark]\nremote = 'sc://far'\n"
        "[servers.r1]\ndata = 'd'\nlisten = '127.0.0.1:1'\n"
    )
    config = load_config(config_file)
    names = [one.name for one in services(config, dagster=False, spark=True, work=True)]
    assert names == ["r1"]
    (server,) = services(config, dagster=False, spark=True, work=True)
    assert "serve --server r1 " in " ".join(server.command)
    assert server.command[-1] == "--work"


def test_help_imports_nothing_that_takes_long():
    heavy = {"pydantic", "structlog", "pyarrow", "duckdb", "kazoo", "uvicorn", "numpy", "rich"}
    program = "import sys, rmt_pipeline.cli; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert heavy.isdisjoint(loaded.stdout.split())


def test_a_query_imports_what_it_needs_alone(config_file):
    """`rmt sql` is a process for one statement: what it loads is most of what it takes."""
    others = {"kazoo", "structlog", "pandas", "pyspark", "uvicorn", "rich", "prompt_toolkit"}
    ours = {"replica", "compute", "store", "zookeeper", "server", "dagster", "exchange"}
    program = (
        "import sys; from rmt_pipeline.cli.main import app; "
        "app(standalone_mode=False); print(*sys.modules)"
    )
    command = ["--config", config_file, "sql", "--server", "r1", "SELECT 1"]
    loaded = subprocess.run(
        [sys.executable, "-c", program, *command], check=True, capture_output=True, text=True
    ).stdout.split()
    assert loaded[0] == "1"
    assert {*others, *(f"rmt_pipeline.{one}" for one in ours)}.isdisjoint(loaded)


def test_a_server_without_work_imports_no_engine():
    """An idle server stays below 200 MB because it does not load what computes."""
    heavy = {"pyarrow", "duckdb", "numpy", "pandas", "pyspark", "sqlglot"}
    program = "import sys, rmt_pipeline.server.process; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert heavy.isdisjoint(loaded.stdout.split())


def test_dagster_s_workspace_is_the_one_that_is_named(config_file, tmp_path, monkeypatch):
    named = tmp_path / "mine.yaml"
    named.write_text("load_from: []\n")
    config_file.write_text(f'{TWO_SERVERS}\n[dagster]\nworkspace = "mine.yaml"\n')
    assert locations_of(load_config(config_file)) == ["-w", str(named)]

    beside = tmp_path / "elsewhere"
    beside.mkdir()
    (beside / "workspace.yaml").write_text("load_from: []\n")
    monkeypatch.chdir(beside)
    config_file.write_text(TWO_SERVERS)
    assert locations_of(load_config(config_file)) == ["-w", str(beside / "workspace.yaml")]


def test_a_project_of_create_dagster_needs_no_workspace(config_file, tmp_path, monkeypatch):
    """Its code location has the name that `dg dev` gives it."""
    here = tmp_path / "my-sales"
    here.mkdir()
    monkeypatch.chdir(here)
    config_file.write_text(TWO_SERVERS)
    config = load_config(config_file)
    config.dagster.home.mkdir(parents=True)
    own = config.dagster.home / "workspace.yaml"
    own.write_text("load_from: []\n")
    project = here / "pyproject.toml"
    project.write_text('[tool.dg.project]\nroot_module = "sales"\n')
    option, workspace = locations_of(config)
    assert (option, Path(workspace)) == ("-w", config.dagster.home / "project_workspace.yaml")
    assert own.read_text() == "load_from: []\n", "a user's own file is left alone"
    [loaded] = json.loads(Path(workspace).read_text())["load_from"]
    assert loaded["python_module"] == {
        "module_name": "sales.definitions",
        "location_name": "my-sales",
        "working_directory": str(here),
    }

    project.write_text('[tool.dagster]\nmodule_name = "sales"\n')
    assert locations_of(config) == [], "dagster dev reads it itself"
    project.write_text('[project]\nname = "sales"\n')
    with pytest.raises(BadConfiguration, match="there is no"):
        locations_of(load_config(config_file))
    project.write_text("[project\n")
    with pytest.raises(BadConfiguration, match=r"pyproject\.toml: "):
        locations_of(load_config(config_file))


@pytest.mark.parametrize(
    ("section", "remedy"),
    [
        ("", "go to the directory of your Dagster project"),
        ('[dagster]\nworkspace = "gone.yaml"\n', "correct it"),
    ],
    ids=["not named", "named"],
)
def test_up_without_a_workspace_says_so_before_it_starts_anything(
    rmt, config_file, monkeypatch, section, remedy
):
    monkeypatch.chdir(config_file.parent)
    config_file.write_text(TWO_SERVERS + section)
    status, _, error = rmt("up")
    assert status == 1
    assert "[dagster] workspace: there is no" in error
    assert remedy in error


def test_the_version_is_told_at_once(rmt):
    assert rmt("--version") == (0, f"rmt_pipeline {__version__}\n", "")


def test_status_goes_on_when_one_server_cannot_be_looked_at(rmt, tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "server.json").write_text(
        '{"format": 1, "server": "somebody", "cluster": "c", "id": "i"}'
    )
    status, out, err = rmt("status")
    assert status == 1
    assert err == ""
    lines = out.splitlines()
    assert lines[0].startswith("server r1: not running")
    assert lines[1].startswith("  its tables can't be looked at: ")
    assert "somebody" in lines[1]
    assert lines[2].startswith("server r2: not running")
    assert lines[3] == "  no tables"


@pytest.mark.parametrize("command", ["up", "dagster"])
def test_a_port_of_the_web_server_that_is_taken_is_said_before_anything_starts(
    rmt, config_file, command, monkeypatch, tmp_path
):
    (tmp_path / "workspace.yaml").write_text("load_from: []\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config_file.write_text(
            f"{TWO_SERVERS}[dagster]\nport = {port}\nworkspace = 'workspace.yaml'\n"
        )
        monkeypatch.setattr(up, "Group", None)
        status, _, err = rmt(command)
    assert status == 1
    assert f"can't listen on 127.0.0.1:{port} (Address already in use)" in err
    assert "[dagster] port in rmt.toml" in err
    assert err.count("\n") == 1
