"""What `rmt serve --work` is, but that merges and mutations run in its own threads: no JVM to
start, and it can be killed at any time. `python -m tests.support.local_server RMT_TOML SERVER`.
"""

import signal
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

from rmt_pipeline.config import load_config
from rmt_pipeline.context import ServerContext
from tests.support.local_work import working
from tests.support.serving import Served


def main(config_file: str, name: str) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    config = load_config(Path(config_file))
    with ExitStack() as opened:
        served = opened.enter_context(Served(config, name))
        context = opened.enter_context(ServerContext.open(config, name, purpose="worker"))
        for table in context.tables():
            served.until(lambda table=table: served.is_active(table.definition.name))
            opened.enter_context(working(context, table.definition))
        stop.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
