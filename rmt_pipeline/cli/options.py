"""What the commands share: the configuration, and how a server is named.

A server is named in the same way everywhere: by `--server NAME`, else by RMT_SERVER, else it is the
only one there is. Commands that look at servers look at all of them when neither names one.

Imports inside functions are for start-up time.
"""

import os
from collections.abc import Callable
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rmt_pipeline.protocol.errors import RmtError, UserError

if TYPE_CHECKING:
    from rmt_pipeline.config import Config

SERVER_VARIABLE = "RMT_SERVER"
_T = TypeVar("_T")


class OfServer(click.Command):
    """A command of one server. Earlier versions took the server as first argument; a call with that
    form fails with a message that has the new form.
    """

    allow_extra_args = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        if rest:
            ctx.fail(
                f"a server is named by an option or {SERVER_VARIABLE}: "
                f"{ctx.command_path} --server {rest[0]}"
            )
        return rest


def config_of(context: click.Context) -> "Config":
    """The configuration that the call names. Sets the umask of this process. Raises
    BadConfiguration.
    """
    from rmt_pipeline.config import FilesConfig, load_config  # noqa: PLC0415

    path: Path | None = context.find_root().params.get("config")
    config = load_config(path)
    if config.files.umask != FilesConfig.umask:
        os.umask(config.files.umask)  # for all files that this process and its children make
    return config


def one_server(config: "Config", given: str | None) -> str:
    """The name of the server that is meant. Raises UserError when that is not clear, or there is no
    such one.
    """
    if given:
        return config.server(given).name
    names = sorted(config.servers)
    if len(names) != 1:
        known = ", ".join(names) or "none; add a section [servers.NAME]"
        raise UserError(
            f"which of the servers? Give --server NAME or set {SERVER_VARIABLE}; there are: {known}"
        )
    return names[0]


def _known_servers(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Server names for the shell's completion, in which errors must not show."""
    try:
        config = config_of(context)
    except RmtError:
        return []
    return [name for name in sorted(config.servers) if name.startswith(incomplete)]


def of_one_server(command: Callable[..., _T]) -> Callable[..., _T]:
    """Make a command whose function gets the configuration and the name of the one server that is
    meant.
    """

    def run(context: click.Context, /, server: str | None, **given: Any) -> _T:
        config = config_of(context)
        return command(config, one_server(config, server), **given)

    return _with_server(command, run, "the only one")


def of_servers(command: Callable[..., _T]) -> Callable[..., _T]:
    """Make a command whose function gets the configuration, and a server's name or None, which
    means all.
    """

    def run(context: click.Context, /, server: str | None, **given: Any) -> _T:
        return command(config_of(context), server, **given)

    return _with_server(command, run, "all of them")


def _with_server(
    command: Callable[..., _T], run: Callable[..., _T], default: str
) -> Callable[..., _T]:
    option = click.option(
        "--server",
        metavar="NAME",
        envvar=SERVER_VARIABLE,
        shell_complete=_known_servers,
        help=f"A name in [servers]; else {SERVER_VARIABLE}, else {default}.",
    )
    return option(update_wrapper(click.pass_context(run), command))
