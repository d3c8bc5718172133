"""What `rmt serve --work` is, but that merges and mutations run in its own threads: no JVM to
start, and it can be killed at any time. `python -m tests.support.local_server RMT_TOML SERVER`.
"""

import os
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

from rmt_pipeline.config import Config, load_config
from rmt_pipeline.context import ServerContext
from tests.support.local_work import working
from tests.support.serving import Served

ROOT = Path(__file__).parents[2]


class Server:
    """One server's process, which is killed and started again."""

    def __init__(self, config: Config, name: str, log: Path) -> None:
        assert config.path is not None
        self._command = [
            sys.executable,
            "-m",
            "tests.support.local_server",
            str(config.path),
            name,
        ]
        self._log = log.open("ab")
        self._start()

    def _start(self) -> None:
        path = os.pathsep.join(filter(None, [str(ROOT), *sys.path]))
        self._process = subprocess.Popen(
            self._command,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": path},
            stdout=self._log,
            stderr=self._log,
        )

    def kill(self) -> None:
        assert self._process.poll() is None, "it ended by itself"
        self._process.kill()
        self._process.wait()
        self._start()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


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
