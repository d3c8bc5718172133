"""One client of a soak: inserts keys that are its own, asks elsewhere when it is not sure, reads.
One that operates also has parts merged, and deletes what it has inserted; one that reads does
nothing else, without a pause, so that whatever happens to files happens while they are read.

`python -m tests.soak.client --config rmt.toml --client 3 --history file --seconds 60`
"""

import argparse
import random
import sys
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from rmt_pipeline.config import load_config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import DiskFull, OutcomeUnknown, RmtError, UserError
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.reading import ReadWithoutZooKeeper
from rmt_pipeline.sql.formats.rows import Rows
from rmt_pipeline.sql.run.session import Session
from tests.soak.history import STAYS, Insert, Read, Recorder, read_histories

KEYS_PER_CLIENT = 10_000_000
KEYS_MAX = 12  # of one insert
PARTITIONS = 3
COMMANDER = 1  # the client whose rows are in a partition of its own
OWN = str(PARTITIONS)
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


def row_of(key: int) -> tuple[int, int, str]:
    is_own = key // KEYS_PER_CLIENT == COMMANDER
    return key, PARTITIONS if is_own else key % PARTITIONS, f"row {key}"


def rows_of(keys: Sequence[int]) -> list[dict[str, object]]:
    return [dict(zip(("key", "part", "text"), row_of(key), strict=True)) for key in keys]


class Client:
    def __init__(
        self,
        number: int,
        contexts: Sequence[ServerContext],
        recorder: Recorder,
        first: int,
        *,
        operates: bool = False,
        reads: bool = False,
        there: Sequence[Insert] = (),
    ) -> None:
        """`there`: its inserts that an earlier life has left."""
        self._rng = random.Random(f"{number} {first}")
        self._contexts = contexts
        self._recorder = recorder
        self._number = number
        self._next = number * KEYS_PER_CLIENT + first
        self._operates = operates
        self._reads = reads
        self._there = [*there]

    def turn(self) -> None:
        if self._reads:
            self._read(self._rng.choice(self._contexts))
            return
        if self._operates and self._rng.random() < OPERATES_SHARE:
            self._rng.choice((self._optimize, self._delete))(self._rng.choice(self._contexts))
        elif self._rng.random() < READ_SHARE:
            self._read(self._rng.choice(self._contexts))
        else:
            self._insert()
        time.sleep(self._rng.uniform(0.0, PAUSE_MAX_S))

    def _new_insert(self) -> Insert:
        keys = tuple(range(self._next, self._next + self._rng.randint(1, KEYS_MAX)))
        self._next = keys[-1] + 1
        name = f"client {self._number} keys {keys[0]}-{keys[-1]}"
        insert = Insert(name, keys, time.monotonic())
        self._recorder.write(insert)
        return insert

    def _is_there(self, insert: Insert, server: str) -> None:
        done = replace(insert, end_s=time.monotonic(), outcome="done", server=server)
        self._recorder.write(done)
        self._there.append(done)

    def _insert(self) -> None:
        """The same rows until there is an answer, each time anywhere, sometimes with a token."""
        insert = self._new_insert()
        name, keys = insert.name, insert.keys
        token = name if self._rng.random() < 0.5 else ""
        for _ in range(ROUNDS_MAX):
            context = self._rng.choice(self._contexts)
            try:
                result = context.table("t").insert(
                    rows_of(keys), token=token, settings=SETTINGS
                )
            except OutcomeUnknown:
                if self._rng.random() < GIVES_UP:
                    return  # it stays unknown
            except DiskFull:  # refused, that is: nothing is there, and elsewhere may be space
                time.sleep(self._rng.uniform(0.0, 0.3))
            except UserError as error:
                print(f"{name}: {error}", file=sys.stderr)
                raise
            except RmtError:
                time.sleep(self._rng.uniform(0.0, 0.3))
            else:
                is_here = result.rows == len(keys)  # else another attempt was the first
                self._is_there(insert, context.server.name if is_here else "")
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
        look = self._rng.choice((rows_selected, rows_of_dataset))
        try:
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                rows = look(context)
        except (
            RmtError,
            OSError,
            pa.ArrowInvalid,
        ) as error:  # the last two of a bit that flips
            refused = f"{type(error).__name__}: {error}"[:200]
            read = Read(context.server.name, (), begin_s, time.monotonic(), refused=refused)
        else:
            seen_last = any(issubclass(one.category, ReadWithoutZooKeeper) for one in told)
            keys = tuple(sorted(key for key, _, _ in rows))
            wrong = tuple(str(row) for row in rows if row != row_of(row[0]))
            read = Read(
                context.server.name, keys, begin_s, time.monotonic(), seen_last, wrong=wrong
            )
        self._recorder.write(read)


Row = tuple[int, int, str]


def rows_selected(context: ServerContext) -> list[Row]:
    """All of the table on this server, as SELECT gives them."""
    answer = Session(context).execute("SELECT key, part, text FROM t")
    assert isinstance(answer, Rows)
    return [
        row
        for batch in answer.batches
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    ]


def rows_of_dataset(context: ServerContext) -> list[Row]:
    """And as a pyarrow Dataset does."""
    table = context.table("t").dataset().to_table(columns=["key", "part", "text"])
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def keys_of(context: ServerContext) -> tuple[int, ...]:
    """All that the table has at the end, where each row must be as it was inserted."""
    rows = sorted(rows_of_dataset(context))
    assert sorted(rows_selected(context)) == rows, "SELECT and dataset() differ"
    wrong = [row for row in rows if row != row_of(row[0])]
    assert not wrong, (
        f"{len(wrong)} rows of {context.server.name} were never inserted: {wrong[:5]}"
    )
    return tuple(key for key, _, _ in rows)


def kind(number: int) -> type[Client]:
    # Imported here: it is made of this module.
    from tests.soak.commander import Commander  # noqa: PLC0415

    return Commander if number == COMMANDER else Client


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--client", type=int, required=True)
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--first", type=int, default=0, help="keys that an earlier life used")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--operates", action="store_true")
    parser.add_argument("--reads", action="store_true", help="and nothing else")
    options = parser.parse_args()
    config = load_config(options.config)
    contexts = [ServerContext.open(config, name) for name in config.servers]
    earlier = read_histories([options.history])[0] if options.history.exists() else []
    client = kind(options.client)(
        options.client,
        contexts,
        Recorder(options.history),
        options.first,
        operates=options.operates,
        reads=options.reads,
        there=[insert for insert in earlier if insert.outcome in STAYS],
    )
    end_s = time.monotonic() + options.seconds
    while time.monotonic() < end_s:
        client.turn()
    for context in contexts:
        context.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
