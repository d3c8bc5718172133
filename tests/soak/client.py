"""One client of a soak: inserts keys that are its own, asks elsewhere when it is not sure, reads.
One that operates also has parts merged, and deletes what it has inserted.

`python -m tests.soak.client --config rmt.toml --client 3 --history file --seconds 60`
"""

import argparse
import random
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rmt_pipeline.config import load_config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import OutcomeUnknown, RmtError, UserError
from rmt_pipeline.protocol.settings.query import QuerySettings
from tests.soak.history import Insert, Read, Recorder

KEYS_PER_CLIENT = 10_000_000
KEYS_MAX = 12  # of one insert
PARTITIONS = 3
READ_SHARE = 0.2
GIVES_UP = 0.3  # after a doubtful end
PAUSE_MAX_S = 0.1
OPERATES_SHARE = 0.05  # of the turns of a client that operates
ROUNDS_MAX = 40
SETTINGS = QuerySettings.of(
    {
        "insert_keeper_max_retries": "3",
        "insert_keeper_retry_initial_backoff_ms": "50",
        "insert_keeper_retry_max_backoff_ms": "500",
    }
)


def rows_of(keys: Sequence[int]) -> list[dict[str, object]]:
    return [{"key": key, "part": key % PARTITIONS, "text": f"row {key}"} for key in keys]


class Client:
    def __init__(
        self,
        number: int,
        contexts: Sequence[ServerContext],
        recorder: Recorder,
        first: int,
        *,
        operates: bool = False,
    ) -> None:
        self._rng = random.Random(f"{number} {first}")
        self._contexts = contexts
        self._recorder = recorder
        self._number = number
        self._next = number * KEYS_PER_CLIENT + first
        self._operates = operates
        self._there: list[Insert] = []

    def turn(self) -> None:
        if self._operates and self._rng.random() < OPERATES_SHARE:
            self._rng.choice((self._optimize, self._delete))(self._rng.choice(self._contexts))
        elif self._rng.random() < READ_SHARE:
            self._read(self._rng.choice(self._contexts))
        else:
            self._insert()
        time.sleep(self._rng.uniform(0.0, PAUSE_MAX_S))

    def _insert(self) -> None:
        """The same rows until there is an answer, each time anywhere, sometimes with a token."""
        keys = tuple(range(self._next, self._next + self._rng.randint(1, KEYS_MAX)))
        self._next = keys[-1] + 1
        name = f"client {self._number} keys {keys[0]}-{keys[-1]}"
        token = name if self._rng.random() < 0.5 else ""
        insert = Insert(name, keys, time.monotonic())
        self._recorder.write(insert)
        for _ in range(ROUNDS_MAX):
            context = self._rng.choice(self._contexts)
            try:
                result = context.table("t").insert(
                    rows_of(keys), token=token, settings=SETTINGS
                )
            except OutcomeUnknown:
                if self._rng.random() < GIVES_UP:
                    return  # it stays unknown
            except UserError as error:
                print(f"{name}: {error}", file=sys.stderr)
                raise
            except RmtError:
                time.sleep(self._rng.uniform(0.0, 0.3))
            else:
                is_here = result.rows == len(keys)  # else another attempt was the first
                server = context.server.name if is_here else ""
                done = replace(insert, end_s=time.monotonic(), outcome="done", server=server)
                self._recorder.write(done)
                self._there.append(done)
                return

    def _optimize(self, context: ServerContext) -> None:
        partition = str(self._rng.randrange(PARTITIONS))
        with suppress(RmtError):
            context.table("t").optimize(partition, final=True, settings={"alter_sync": "0"})

    def _delete(self, context: ServerContext) -> None:
        """One of its own inserts, all of it. Without an answer it may be deleted or not."""
        if not self._there:
            return
        insert = self._there.pop(self._rng.randrange(len(self._there)))
        keys = ", ".join(map(str, insert.keys))
        self._recorder.write(replace(insert, outcome="deleting"))
        with suppress(RmtError):
            context.table("t").mutate(f"DELETE WHERE key IN ({keys})")
            self._recorder.write(replace(insert, outcome="deleted"))

    def _read(self, context: ServerContext) -> None:
        begin_s = time.monotonic()
        try:
            keys = keys_of(context)
        except (RmtError, OSError):
            return
        self._recorder.write(Read(context.server.name, keys, begin_s, time.monotonic()))


def keys_of(context: ServerContext) -> tuple[int, ...]:
    """All keys of the table on this server, as a reader sees them."""
    import pyarrow.parquet as pq  # noqa: PLC0415  takes a second

    keys: list[int] = []
    with context.table("t").snapshot() as snapshot:
        for file in snapshot.files:
            keys += pq.read_table(file, columns=["key"]).column("key").to_pylist()
    return tuple(sorted(keys))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--client", type=int, required=True)
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--first", type=int, default=0, help="keys that an earlier life used")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--operates", action="store_true")
    options = parser.parse_args()
    config = load_config(options.config)
    contexts = [ServerContext.open(config, name) for name in config.servers]
    client = Client(
        options.client,
        contexts,
        Recorder(options.history),
        options.first,
        operates=options.operates,
    )
    end_s = time.monotonic() + options.seconds
    while time.monotonic() < end_s:
        client.turn()
    for context in contexts:
        context.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
