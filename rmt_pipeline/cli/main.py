"""`rmt`: the command line. Commands import what they need when they run: help answers at once.

What a call needs beyond this is imported when it is made, for start-up time.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rmt_pipeline import __version__
from rmt_pipeline.cli.mutations import mutations
from rmt_pipeline.protocol.errors import RmtError, UserError

if TYPE_CHECKING:
    from rmt_pipeline.config import Config

app = typer.Typer(
    name="rmt",
    help="Replicated Parquet tables: ReplicatedMergeTree's protocol, run by Dagster and Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

WORK_ONCE_S = 0.25  # idle that long: everything that could be done was looked at
WORK_UNTIL_IDLE_S = 3.0

ServerArgument = Annotated[str, typer.Argument(metavar="SERVER", help="A name in [servers].")]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"rmt_pipeline {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            help="The rmt.toml. Else RMT_CONFIG names it, else the embedded default: "
            "ZooKeeper and two servers below ./rmt-data."
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    del version  # printed, and then nothing else is done
    context.obj = config


def _config(context: typer.Context) -> "Config":
    from rmt_pipeline.config import load_config  # noqa: PLC0415

    return load_config(context.obj)


def _log() -> None:
    from rmt_pipeline.server.log import set_up_log  # noqa: PLC0415

    set_up_log(debug=bool(os.environ.get("RMT_DEBUG")))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@app.command()
def up(
    context: typer.Context,
    dagster: Annotated[bool, typer.Option(help="Dagster's UI, daemon and runs.")] = True,
    spark: Annotated[bool, typer.Option(help="A Spark Connect server.")] = True,
    work: Annotated[
        bool | None,
        typer.Option(help="Servers work their queues themselves; so it is without Dagster."),
    ] = None,
) -> None:
    """Start everything on this machine: ZooKeeper, the servers, Spark, Dagster. Ctrl-C ends it."""
    from rmt_pipeline.cli.up import run_up  # noqa: PLC0415

    config = _config(context)
    does_work = not dagster if work is None else work
    raise typer.Exit(run_up(config, dagster=dagster, spark=spark, work=does_work))


@app.command()
def zookeeper(context: typer.Context) -> None:
    """Run the embedded ZooKeeper in the foreground."""
    from rmt_pipeline.processes.zookeeper import EmbeddedZooKeeper  # noqa: PLC0415

    section = _config(context).zookeeper
    if not section.embedded:
        raise UserError(
            f"[zookeeper] hosts = {section.hosts!r}: somebody else's ZooKeeper is used, so none "
            "is started here"
        )
    EmbeddedZooKeeper(section.data, section.port).run_foreground(_say)


@app.command()
def serve(
    context: typer.Context,
    server: ServerArgument,
    work: Annotated[
        bool, typer.Option("--work", help="Work the queues here too, without Dagster.")
    ] = False,
    connect_timeout_s: Annotated[
        float | None, typer.Option(min=0.1, help="How long to wait for ZooKeeper at first.")
    ] = None,
) -> None:
    """Serve the tables of a server: hold its session, send parts, recover, report."""
    from rmt_pipeline.server.process import serve as run  # noqa: PLC0415

    config = _config(context)
    _log()
    run(config, server, work=work, connect_timeout_s=connect_timeout_s)


@app.command()
def worker(
    context: typer.Context,
    server: ServerArgument,
    pool: Annotated[
        Literal["fetch", "merge", "all"], typer.Option(help="Which entries to work.")
    ] = "all",
    once: Annotated[
        bool, typer.Option("--once", help="What can be done now, then end.")
    ] = False,
    until_idle: Annotated[
        bool,
        typer.Option(
            "--until-idle", help=f"End when nothing came for {WORK_UNTIL_IDLE_S:g} s."
        ),
    ] = False,
) -> None:
    """Work a server's queues in the foreground, without Dagster."""
    from rmt_pipeline.cli.worker import run_worker  # noqa: PLC0415

    if once and until_idle:
        raise UserError("--once and --until-idle exclude each other: give one of them")
    config = _config(context)
    _log()
    linger_s = WORK_ONCE_S if once else WORK_UNTIL_IDLE_S if until_idle else None
    raise typer.Exit(run_worker(config, server, pool, linger_s=linger_s))


@app.command()
def spark(context: typer.Context) -> None:
    """Run a Spark Connect server in the foreground."""
    from rmt_pipeline.processes.java import find_java  # noqa: PLC0415
    from rmt_pipeline.processes.spark import ConnectServer  # noqa: PLC0415

    section = _config(context).spark
    if not section.is_ours:
        given = section.remote or section.master
        raise UserError(f"[spark] names another Spark ({given}), so none is started here")
    ConnectServer(
        section.data / "connect.log",
        port=section.port,
        java_home=find_java().env.get("JAVA_HOME"),
    ).run_foreground(_say)


@app.command()
def dagster(
    context: typer.Context,
    wait: Annotated[
        bool, typer.Option("--wait", help="Begin when all servers are up.", hidden=True)
    ] = False,
) -> None:
    """Run Dagster's UI and daemon for this configuration in the foreground."""
    from rmt_pipeline.cli.up import become_dagster  # noqa: PLC0415

    become_dagster(_config(context), wait=wait)


@app.command()
def sql(  # noqa: PLR0917  typer's parameters
    context: typer.Context,
    statements: Annotated[
        str | None, typer.Argument(help="Else they are read from standard input.")
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(help="A name in [servers]; not needed when there is only one."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting. May be repeated."),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format", help="TSV, CSV, JSON, Pretty… Default: TSV, or Pretty on a terminal."
        ),
    ] = None,
    ignore_error: Annotated[
        bool, typer.Option("--ignore-error", help="Go on with the next statement.")
    ] = False,
) -> None:
    """Run SQL statements on a server's tables."""
    from rmt_pipeline.sql.run.main import run  # noqa: PLC0415

    config = _config(context)
    name = server or _only_server(config)
    given = dict(_setting(text) for text in settings or [])
    raise typer.Exit(run(config, name, given, format_, ignore_error, statements))


@app.command()
def status(
    context: typer.Context,
    server: Annotated[str | None, typer.Option(help="Only this one of [servers].")] = None,
) -> None:
    """Tell how every table is doing: replicas, queue, what waits and why, how far behind."""
    from rmt_pipeline.cli.status import run_status  # noqa: PLC0415

    raise typer.Exit(run_status(_config(context), server))


@app.command()
def reload(context: typer.Context, server: ServerArgument) -> None:
    """Have a running server look at its tables now; it does so by itself every 0.2 s."""
    from rmt_pipeline.cli.status import run_reload  # noqa: PLC0415

    raise typer.Exit(run_reload(_config(context), server))


@app.command()
def merges(
    context: typer.Context,
    table: Annotated[str | None, typer.Argument(metavar="[DATABASE.]TABLE")] = None,
    server: Annotated[str | None, typer.Option(help="Only this one of [servers].")] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Again every second, until Ctrl-C.")
    ] = False,
) -> None:
    """What is being merged or mutated now: sources, rows, bytes, how far, how long."""
    from rmt_pipeline.cli.merges import run_merges  # noqa: PLC0415

    raise typer.Exit(run_merges(_config(context), server, table, watch=watch))


@app.command()
def cleanup(
    context: typer.Context,
    server: ServerArgument,
    dry_run: Annotated[bool, typer.Option(help="Only say what would go, and why.")] = False,
) -> None:
    """Remove old parts, log entries and ids that nobody needs any more; say what stays and why."""
    from rmt_pipeline.cli.upkeep import run_cleanup  # noqa: PLC0415

    raise typer.Exit(run_cleanup(_config(context), server, dry_run=dry_run))


@app.command("force-restore-data")
def force_restore_data(
    context: typer.Context,
    table: Annotated[str, typer.Argument(metavar="[DATABASE.]TABLE")],
    server: Annotated[str | None, typer.Option(help="A name in [servers].")] = None,
) -> None:
    """Let a table start that is read-only because its disk has what ZooKeeper does not know."""
    from rmt_pipeline.cli.upkeep import run_force_restore_data  # noqa: PLC0415

    config = _config(context)
    raise typer.Exit(run_force_restore_data(config, server or _only_server(config), table))


app.add_typer(mutations, name="mutations")
explain = typer.Typer(help="Answers to: why is that so?", no_args_is_help=True)
app.add_typer(explain, name="explain")


@explain.command("merges")
def explain_merges(
    context: typer.Context,
    table: Annotated[str, typer.Argument(metavar="[DATABASE.]TABLE")],
    partition: Annotated[str | None, typer.Argument(help="The id of a partition.")] = None,
    server: Annotated[str | None, typer.Option(help="A name in [servers].")] = None,
) -> None:
    """Every range of parts that is considered: its score, or the rule that forbids it."""
    from rmt_pipeline.cli.upkeep import run_explain_merges  # noqa: PLC0415

    config = _config(context)
    raise typer.Exit(
        run_explain_merges(config, server or _only_server(config), table, partition)
    )


def _only_server(config: "Config") -> str:
    names = sorted(config.servers)
    if len(names) != 1:
        known = ", ".join(names) or "none; add a section [servers.NAME]"
        raise UserError(f"--server is needed: which of the servers? There are: {known}")
    return names[0]


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UserError(f"--set {text!r} is not NAME=VALUE")
    return name.strip(), value.strip()


def main() -> None:
    """Every RmtError becomes one line and exit status 1; RMT_DEBUG=1 shows where it is from."""
    try:
        app()
    except RmtError as error:
        if os.environ.get("RMT_DEBUG"):
            raise
        _say(f"Code: {error.code}. {error}")
        sys.exit(1)


if __name__ == "__main__":
    main()
