"""`rmt`: the command line. Commands import their modules when they run, so help answers at once.

Imports inside functions are for start-up time.
"""

import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmt_pipeline import __version__
from rmt_pipeline.cli.options import OfServer, config_of, of_one_server, of_servers
from rmt_pipeline.protocol.errors import RmtError, UserError, error_words

if TYPE_CHECKING:
    from rmt_pipeline.config import Config

WORK_ONCE_S = 0.25  # after this idle time, all that could be done was looked at
WORK_UNTIL_IDLE_S = 3.0
INTERRUPTED = 130  # the exit status that shells use for it
HELP_NAMES = {"help_option_names": ["-h", "--help"]}


@click.group(context_settings=HELP_NAMES, no_args_is_help=True)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="The rmt.toml. Else RMT_CONFIG names it, else it is ./rmt.toml, else the embedded "
    "default: ZooKeeper and two servers below ./rmt-data.",
)
@click.version_option(
    __version__, message="rmt_pipeline %(version)s", help="Print the version."
)
def app(config: Path | None) -> None:
    """Replicated Parquet tables: ReplicatedMergeTree's protocol, run by Dagster and Spark."""
    del config  # config_of(context) finds it


def _log() -> None:
    from rmt_pipeline.server.log import set_up_log  # noqa: PLC0415

    set_up_log(debug=bool(os.environ.get("RMT_DEBUG")))
    # Their lines in the log say what they wait for.
    warnings.simplefilter("ignore", UserWarning)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@app.command()
@click.option(
    "--dagster/--no-dagster", default=True, help="Dagster's UI, daemon and runs; on by default."
)
@click.option("--spark/--no-spark", default=True, help="A Spark Connect server; on by default.")
@click.option(
    "--work/--no-work",
    default=None,
    help="Servers work on their queues themselves; the default with --no-dagster.",
)
@click.pass_context
def up(context: click.Context, dagster: bool, spark: bool, work: bool | None) -> int:
    """Start everything on this machine: ZooKeeper, the servers, Spark, Dagster. Ctrl-C ends it."""
    from rmt_pipeline.cli.up import run_up  # noqa: PLC0415

    does_work = not dagster if work is None else work
    return run_up(config_of(context), dagster=dagster, spark=spark, work=does_work)


@app.command("zookeeper")
@click.pass_context
def run_zookeeper(context: click.Context) -> None:
    """Run the embedded ZooKeeper in the foreground."""
    from rmt_pipeline.processes.zookeeper import EmbeddedZooKeeper  # noqa: PLC0415

    section = config_of(context).zookeeper
    if not section.embedded:
        raise UserError(
            f"[zookeeper] hosts = {section.hosts!r} names another ZooKeeper, so none is started "
            "here"
        )
    EmbeddedZooKeeper(section.data, section.port).run_foreground(_say)


@app.command("serve", cls=OfServer)
@of_one_server
@click.option("--work", is_flag=True, help="Work on the queues too, without Dagster.")
@click.option(
    "--connect-timeout-s",
    type=click.FloatRange(min=0.1),
    help="End when ZooKeeper has not answered so long after the start. Else the server goes on "
    "trying, and its tables are read-only meanwhile.",
)
def serve_tables(
    config: "Config", server: str, work: bool, connect_timeout_s: float | None
) -> None:
    """Serve the tables of a server: keep its ZooKeeper session, send parts, repair, report."""
    from rmt_pipeline.server.process import serve as run  # noqa: PLC0415

    _log()
    run(config, server, work=work, connect_timeout_s=connect_timeout_s)


@app.command(cls=OfServer)
@of_one_server
@click.option(
    "--pool",
    type=click.Choice(["fetch", "merge", "all"]),
    default="all",
    help="Which entries to work on.",
)
@click.option("--once", is_flag=True, help="Do what can be done now, then end.")
@click.option(
    "--until-idle", is_flag=True, help=f"End after {WORK_UNTIL_IDLE_S:g} s with nothing to do."
)
def worker(config: "Config", server: str, pool: str, once: bool, until_idle: bool) -> int:
    """Work on a server's queues in the foreground, without Dagster."""
    from rmt_pipeline.cli.worker import POOLS, run_worker  # noqa: PLC0415

    if once and until_idle:
        raise UserError("--once and --until-idle exclude each other: give one of them")
    _log()
    linger_s = WORK_ONCE_S if once else WORK_UNTIL_IDLE_S if until_idle else None
    return run_worker(config, server, POOLS[pool], linger_s=linger_s)


@app.command()
@click.pass_context
def spark(context: click.Context) -> None:
    """Run a Spark Connect server in the foreground."""
    from rmt_pipeline.processes.java import find_java  # noqa: PLC0415
    from rmt_pipeline.processes.spark import ConnectServer  # noqa: PLC0415

    section = config_of(context).spark
    if not section.is_ours:
        given = section.remote or section.master
        raise UserError(f"[spark] names another Spark ({given}), so none is started here")
    ConnectServer(
        section.data / "connect.log",
        port=section.port,
        java_home=find_java().env.get("JAVA_HOME"),
    ).run_foreground(_say)


@app.command()
@click.option("--wait", is_flag=True, hidden=True, help="Start when all servers are up.")
@click.pass_context
def dagster(context: click.Context, wait: bool) -> None:
    """Run Dagster's UI and daemon for this configuration in the foreground."""
    from rmt_pipeline.cli.up import become_dagster  # noqa: PLC0415

    become_dagster(config_of(context), wait=wait)


@app.command()
@click.argument("statements", required=False)
@of_one_server
@click.option(
    "--set", "settings", metavar="NAME=VALUE", multiple=True, help="A setting. May be repeated."
)
@click.option(
    "--format",
    "format_",
    metavar="NAME",
    help="TSV, CSV, JSON, Pretty… Default: TSV, or Pretty on a terminal.",
)
@click.option(
    "--ignore-error", is_flag=True, help="Continue with the next statement after an error."
)
def sql(
    config: "Config",
    server: str,
    *,
    statements: str | None,
    settings: tuple[str, ...],
    format_: str | None,
    ignore_error: bool,
) -> int:
    """Run SQL STATEMENTS on a server's tables; without them, those from standard input."""
    from rmt_pipeline.sql.client.main import run  # noqa: PLC0415

    given = dict(_setting(text) for text in settings)
    return run(config, server, given, format_, ignore_error, statements)


@app.command()
@of_servers
def status(config: "Config", server: str | None) -> int:
    """Show how every table is doing: replicas, queue, what waits and why, how far behind."""
    from rmt_pipeline.cli.status import run_status  # noqa: PLC0415

    return run_status(config, server)


@app.command(cls=OfServer)
@of_one_server
def reload(config: "Config", server: str) -> int:
    """Make a running server look at its tables now; it does so by itself every 0.2 s."""
    from rmt_pipeline.cli.status import run_reload  # noqa: PLC0415

    return run_reload(config, server)


@app.command("merges")
@click.argument("table", metavar="[[DATABASE.]TABLE]", required=False)
@of_servers
@click.option("--watch", is_flag=True, help="Repeat every second, until Ctrl-C.")
def list_merges(config: "Config", server: str | None, table: str | None, watch: bool) -> int:
    """Show what is being merged or mutated now: sources, rows, bytes, progress, time."""
    from rmt_pipeline.cli.merges import run_merges  # noqa: PLC0415

    return run_merges(config, server, table, watch=watch)


@app.command()
@click.argument("insert_id", metavar="[ID]", default="")
@click.option("--token", default="", help="By its deduplication token, instead of the id.")
@click.option("--table", metavar="[DATABASE.]TABLE", help="Only in this table.")
@of_servers
def inserts(
    config: "Config", server: str | None, insert_id: str, token: str, table: str | None
) -> int:
    """Show what became of an insert: done, in part, or waiting for its quorum; when, by which run,
    and in which parts. Without an ID, show all inserts that are remembered.
    """
    from rmt_pipeline.cli.inserts import run_inserts  # noqa: PLC0415

    return run_inserts(config, server, table, insert_id, token)


@app.command()
@click.argument("insert_id", metavar="[ID]", default="")
@click.option("--token", default="", help="By its deduplication token, instead of the id.")
@click.option("--table", metavar="[DATABASE.]TABLE", help="Only in this table.")
@of_servers
@click.option("--yes", is_flag=True, help="Do it; without it, only show what would be removed.")
def undo(
    config: "Config",
    server: str | None,
    insert_id: str,
    token: str,
    table: str | None,
    *,
    yes: bool,
) -> int:
    """Undo an insert: remove exactly its rows, on every replica. It can be inserted again."""
    from rmt_pipeline.cli.inserts import run_undo  # noqa: PLC0415

    return run_undo(config, server, table, insert_id, token, is_meant=yes)


@app.command()
@click.argument("table", metavar="[DATABASE.]TABLE")
@click.option(
    "--format",
    "forms",
    type=click.Choice(["delta", "iceberg"]),
    multiple=True,
    help="May be repeated; without it, both.",
)
@click.option(
    "--column", "columns", multiple=True, help="May be repeated; without it, all columns."
)
@click.option(
    "--lease-s",
    type=click.FloatRange(min=0),
    default=3600.0,
    show_default=True,
    help="How long a version's files are kept after the next version replaced it.",
)
@of_one_server
def export(
    config: "Config",
    server: str,
    *,
    table: str,
    forms: tuple[str, ...],
    columns: tuple[str, ...],
    lease_s: float,
) -> int:
    """Export a table as Delta and Iceberg over the files of its parts, or update its exports."""
    from rmt_pipeline.cli.export import run_export  # noqa: PLC0415

    return run_export(config, server, table, forms=forms, columns=columns, lease_s=lease_s)


@app.command(cls=OfServer)
@of_one_server
@click.option("--dry-run", is_flag=True, help="Only show what would be removed, and why.")
def cleanup(config: "Config", server: str, dry_run: bool) -> int:
    """Remove old parts, log entries and ids that are not needed; show what is kept and why."""
    from rmt_pipeline.cli.upkeep import run_cleanup  # noqa: PLC0415

    return run_cleanup(config, server, dry_run=dry_run)


@app.command("check")
@click.argument("table", metavar="[[DATABASE.]TABLE]", required=False)
@click.option("--partition", metavar="ID", default="", help="Only this partition.")
@click.option("--part", metavar="NAME", default="", help="Only this part.")
@of_one_server
def check_tables(
    config: "Config", server: str, table: str | None, partition: str, part: str
) -> int:
    """Read every byte of the parts and compare checksums, as CHECK TABLE does. A broken part is
    fetched again. Exit status 1 when there is one.
    """
    from rmt_pipeline.cli.parts import run_check  # noqa: PLC0415

    return run_check(config, server, table, partition, part)


@app.command("restore")
@click.argument("table", metavar="[[DATABASE.]TABLE]", required=False)
@of_one_server
def restore_tables(config: "Config", server: str, table: str | None) -> int:
    """Restore tables that ZooKeeper has lost, from the parts on this disk: one, or all."""
    from rmt_pipeline.cli.upkeep import run_restore  # noqa: PLC0415

    return run_restore(config, server, table)


@app.command()
@click.argument("table", metavar="[DATABASE.]TABLE")
@of_one_server
def force_restore_data(config: "Config", server: str, table: str) -> int:
    """Let a table start that is read-only because ZooKeeper does not know parts of its disk."""
    from rmt_pipeline.cli.upkeep import run_force_restore_data  # noqa: PLC0415

    return run_force_restore_data(config, server, table)


class _ListByDefault(click.Group):
    """`rmt mutations t` is `rmt mutations list t`; a table with the name `plan` needs the long
    form.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        asks_for_help = bool(args) and args[0] in ctx.help_option_names
        if not asks_for_help and (not args or args[0] not in self.commands):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@app.group("mutations", cls=_ListByDefault)
def about_mutations() -> None:
    """Show how far mutations are (rmt mutations [TABLE]), or plan one."""


@about_mutations.command("list")
@click.argument("table", metavar="[[DATABASE.]TABLE]", required=False)
@of_servers
@click.option("--watch", is_flag=True, help="Repeat until none is unfinished.")
def list_mutations(config: "Config", server: str | None, table: str | None, watch: bool) -> int:
    """Show every mutation, unfinished ones first: parts, pace, time left, what fails and why."""
    from rmt_pipeline.cli.mutations import run_mutations  # noqa: PLC0415

    return run_mutations(config, server, table, watch=watch)


@about_mutations.command("plan")
@click.argument("table", metavar="[DATABASE.]TABLE")
@click.argument("commands")
@of_servers
def show_plan(config: "Config", server: str | None, table: str, commands: str) -> int:
    """Show what a mutation would do to the parts that a table has now. Nothing is changed.

    COMMANDS: 'DELETE WHERE …', 'UPDATE c = … WHERE …'.
    """
    from rmt_pipeline.cli.mutations import run_plan  # noqa: PLC0415

    return run_plan(config, server, table, commands)


@app.command("queue")
@click.argument("table", metavar="[[DATABASE.]TABLE]", required=False)
@of_servers
def show_queue(config: "Config", server: str | None, table: str | None) -> int:
    """Show what replicas have to do: each entry, its age, and what it waits for."""
    from rmt_pipeline.cli.queue import run_queue  # noqa: PLC0415

    return run_queue(config, server, table)


@app.command()
@click.argument("table", metavar="[[DATABASE.]TABLE]", required=False)
@of_servers
def detached(config: "Config", server: str | None, table: str | None) -> int:
    """Show what is set aside in detached/: why, rows, bytes, age, and whether to delete it."""
    from rmt_pipeline.cli.parts import run_detached  # noqa: PLC0415

    return run_detached(config, server, table)


@app.group("explain", no_args_is_help=True)
def about_waiting() -> None:
    """Explain why an entry waits, or why parts are not merged."""


@about_waiting.command("entry")
@click.argument("table", metavar="[DATABASE.]TABLE")
@click.argument("entry", metavar="NODE_OR_PART")
@of_one_server
def explain_entry(config: "Config", server: str, table: str, entry: str) -> int:
    """Explain why an entry of the queue, named by its node or its part, is not carried out."""
    from rmt_pipeline.cli.queue import run_explain_entry  # noqa: PLC0415

    return run_explain_entry(config, server, table, entry)


@about_waiting.command("merges")
@click.argument("table", metavar="[DATABASE.]TABLE")
@click.argument("partition", metavar="[PARTITION_ID]", required=False)
@of_one_server
def explain_choice(config: "Config", server: str, table: str, partition: str | None) -> int:
    """Show every range of parts that could be merged: its score, or the rule that forbids it."""
    from rmt_pipeline.cli.upkeep import run_explain_merges  # noqa: PLC0415

    return run_explain_merges(config, server, table, partition)


@app.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    r"""Print a script that makes a shell complete commands, options and servers.

    \b
    bash: eval "$(rmt completion bash)"        in ~/.bashrc
    zsh:  eval "$(rmt completion zsh)"         in ~/.zshrc, after compinit
    fish: rmt completion fish > ~/.config/fish/completions/rmt.fish
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415

    completed = get_completion_class(shell)
    assert completed is not None, shell
    print(completed(app, {}, "rmt", "_RMT_COMPLETE").source())


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UserError(f"--set {text!r} is not NAME=VALUE")
    return name.strip(), value.strip()


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning for people, without the line of the program that it comes from."""
    _say(f"Warning: {message}")


def main() -> None:
    """Run a command. An error of ours, or of the operating system, becomes one line and exit status
    1; with RMT_DEBUG=1 it is raised.
    """
    os.umask(0o077)  # until [files] umask is known
    warnings.showwarning = _warn
    try:
        sys.exit(app.main(prog_name="rmt", standalone_mode=False))
    except (RmtError, OSError) as error:
        if os.environ.get("RMT_DEBUG"):
            raise
        _say(error_words(error))
        sys.exit(1)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:  # what click makes of Ctrl-C
        _say("interrupted")
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
