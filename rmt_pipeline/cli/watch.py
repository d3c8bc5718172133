"""What commands that look at servers, once or again and again, have in common."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from rmt_pipeline.config import Config
from rmt_pipeline.context import ServerContext

CLEAR = "\x1b[H\x1b[J"
"""Written before each look, on a terminal."""


@contextmanager
def opened_servers(
    config: Config, server: str | None, purpose: str
) -> Iterator[list[ServerContext]]:
    """One server or all, by name, with one session each. Raises UserError for an unknown one."""
    names = [config.server(server).name] if server else sorted(config.servers)
    with ExitStack() as opened:
        yield [
            opened.enter_context(ServerContext.open(config, name, purpose=purpose))
            for name in names
        ]
