"""Every decoder under any bytes: `python -m tests.property.fuzz --minutes n` (`make fuzz`).

Whatever comes in, a decoder gives a value or the error of its layer: never another exception, a
hang, or memory out of proportion. `test_fuzz` asks each a few times, this for as long as wanted.
"""

import argparse
import io
import itertools
import json
import random
import resource
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from rmt_pipeline.catalog.definition import decode_definition
from rmt_pipeline.compute.inputs.conform import conform, file_of_format
from rmt_pipeline.config import load_config
from rmt_pipeline.exchange import wire
from rmt_pipeline.exchange.guard import Guard
from rmt_pipeline.exchange.server import exchange_app
from rmt_pipeline.protocol.alter.history import AlterRecord
from rmt_pipeline.protocol.errors import Corruption, RmtError, Unavailable, UserError
from rmt_pipeline.protocol.log.codec import decode
from rmt_pipeline.protocol.nodes.columns import parse_columns
from rmt_pipeline.protocol.nodes.formats import (
    AddedParts,
    MutationEntry,
    PartHeader,
    QuorumEntry,
    ReplicaAddress,
)
from rmt_pipeline.protocol.nodes.metadata import parse_metadata
from rmt_pipeline.protocol.nodes.records import Attempts, Claim, InsertBatch, InsertRecord
from rmt_pipeline.protocol.nodes.tasks import NamesBefore, Task, TaskOutcome
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.store.hashes.checksums import hash_hex
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.syntax.expression import parse_expression
from rmt_pipeline.syntax.mutation import parse_commands
from rmt_pipeline.syntax.statements.parse import parse
from rmt_pipeline.syntax.statements.split import split
from rmt_pipeline.syntax.types import parse_type
from tests.support import asgi
from tests.support.edge_rows import COLUMNS
from tests.support.exchange import SECRET
from tests.support.queries import parse_query

HANGS_AFTER_S = (
    30  # of processor time: beside a busy neighbour a hang takes longer, no more work
)
MEMORY_MAX_KB = 400_000
EXAMPLES_PER_ROUND = 25  # so that each decoder has had its turn after seconds, however slow

BYTES = st.binary(max_size=300)
NUMBERS = st.sampled_from(
    ["0", "-1", "1", "4294967295", "18446744073709551616", "9" * 40, "1e400", "0x1F", "1.5"]
)
KEYWORDS = """
CREATE TABLE DATABASE IF NOT EXISTS INSERT INTO VALUES FORMAT TSV CSV JSONEachRow SELECT FROM WHERE
GROUP BY ORDER LIMIT ALTER DELETE UPDATE ADD DROP MODIFY COLUMN PARTITION ID ALL OPTIMIZE FINAL
DEDUPLICATE SYSTEM SYNC REPLICA STOP START MERGES KILL MUTATION SHOW DESCRIBE ENGINE PRIMARY KEY
ReplicatedMergeTree SETTINGS TTL DEFAULT MATERIALIZED ALIAS CODEC COMMENT INTERVAL DAY CAST AS CASE
WHEN THEN ELSE END AND OR IS NULL IN LIKE BETWEEN UNION JOIN ON Array Nullable LowCardinality Tuple
Map Decimal DateTime64 FixedString Enum8 Nested Int8 String t db.t x 'a' 'a\\'b' '\\x00' `q` "q"
( ) [ ] { } , ; : :: = == != < > <= + - * / % -> . ? @ # $ \\ ' ` -- /* */ é 😀
"""
WORDS = NUMBERS | st.sampled_from([*KEYWORDS.split(), "\0", "\n", "\t"])
SENTENCES = st.lists(WORDS, max_size=20).map(" ".join) | st.text(max_size=60)
DEEP = st.builds(
    lambda word, times, end: word * times + end,
    st.sampled_from(
        ["(", "[", "{", "-", "NOT ", "Array(", "Nullable(", "x->", "CASE ", "a.", "1+"]
    ),
    st.sampled_from([10, 100, 1000, 20_000]),
    st.sampled_from(["", "1", ")"]),
)
TEXTS = SENTENCES | DEEP
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=9,
)


@dataclass(frozen=True, slots=True)
class Target:
    """A decoder, what is given to it, and the errors that it may raise."""

    name: str
    given: st.SearchStrategy[Any]
    decode: Callable[[Any], object]
    errors: tuple[type[RmtError], ...]


# --- what is given -----------------------------------------------------------------------------

MANIFEST = Manifest.decode  # the inverse of `encode`: tests/unit/store/test_manifest.py


@st.composite
def checked_manifests(draw: st.DrawFn) -> bytes:
    """Any JSON with the right check sum: what a check sum does not keep out."""
    fields = {
        name: draw(st.sampled_from([0, -1, 1, "", "a", [], {}, None, True, 2**200]) | JSON)
        for name in draw(st.sets(st.sampled_from(MANIFEST_FIELDS)))
    }
    body = json.dumps({"format": 1, **fields}, indent=0).encode()[:-2]
    return body + f',\n"check": "{hash_hex(body)}"\n}}\n'.encode()


MANIFEST_FIELDS = (
    *("rows", "bytes_on_disk", "bytes_uncompressed", "partition_id", "partition", "columns"),
    *("key_bounds", "files", "row_hash", "content_hash", "column_hashes", "created_s"),
    *("insert_id", "run_id", "sources", "mutations", "engine_version"),
)
DEFINITION_FIELDS = (
    *("format", "database", "name", "columns", "engine", "order_by", "partition_by"),
    *("primary_key", "settings", "sample_by", "metadata_version", "history"),
)
definitions = st.dictionaries(
    st.sampled_from(DEFINITION_FIELDS) | st.text(max_size=5), JSON
).map(lambda raw: json.dumps(raw).encode())
LINES_OF_NODES = """
format version: 4|format version: 1|create_time: 2026-11-20 14:19:47|source replica: r1|block_id: |
get|all_0_0_0|merge|into|all_0_1_1|deduplicate: 0|mutate|to|drop|detach|REPLACE_RANGE|alter|
alter_version|0|have_mutation|columns_str_size:|metadata_str_size:|99999999999|-1|quorum: 2|
columns format version: 1|1 columns:|`a` Int8|metadata format version: 1|date column: |replicas: 2|
commands: DELETE WHERE 1|alter version: -1|block numbers count: 1|all\t5|parts: 1|tries: 1|
4000000000|part format version: 1|host: a|port: 9009|alter format version: 1|
created: 2026-11-20 14:19:47|replica: r1|request: |commands: |changes: 1|rename\ta\tb|drop\ta
"""
NODE_LINES = st.sampled_from(LINES_OF_NODES.replace("|\n", "|").strip().split("|"))
nodes = st.lists(NODE_LINES | st.text(max_size=9), max_size=12).map(
    lambda lines: "\n".join(lines).encode()
)
FORMATS = st.sampled_from(
    ["CSV", "CSVWithNames", "TSV", "TSVWithNames", "JSONEachRow", "Parquet", "Values", "x"]
)
LINES = st.sampled_from(
    [
        *(f"{column.name}" for column in COLUMNS),
        "1",
        "-1",
        "1e999",
        "\\N",
        "2020-01-01",
        "[1,2]",
    ]
) | st.text(max_size=5)
files = st.tuples(
    FORMATS,
    BYTES
    | st.lists(st.lists(LINES, max_size=5).map("\t".join), max_size=4).map(
        lambda lines: "\n".join(lines).encode()
    )
    | st.lists(st.lists(LINES, max_size=5).map(",".join), max_size=4).map(
        lambda lines: "\n".join(lines).encode()
    )
    | st.lists(st.dictionaries(LINES, JSON, max_size=3).map(json.dumps), max_size=3).map(
        lambda lines: "\n".join(lines).encode()
    ),
    st.sampled_from(["", "gz", "zst", "lz4", "bz2", "none", "rar"]),
)
TOML = """
[zookeeper]|hosts = "a:1"|hosts = 1|session_timeout_s = -1|session_timeout_s = 1e999|
[servers.r1]|[servers]|data = "r1"|data = []|listen = "127.0.0.1:9"|listen = "x"|
macros = {shard = "01"}|macros = 1|[spark]|port = 99999|master = "local"|[dagster]|
home = "/x"|[exchange]|secret = ""|[exchange|x = 2026-01-01
"""
configurations = st.lists(
    st.sampled_from(TOML.replace("|\n", "|").strip().split("|")) | st.text(max_size=9),
    max_size=8,
).map(lambda lines: "\n".join(lines).encode())
requests = st.tuples(
    st.sampled_from(["GET", "POST", "PUT", "HEAD", "DELETE", "OPTIONS", "BREW"]),
    st.sampled_from(["/", "//", "/..", "/%2e%2e/x", "/metrics", "/?part=%00"]),
    st.dictionaries(
        st.sampled_from(["endpoint", "part", "client_protocol_version", "x"]),
        st.text(max_size=30) | NUMBERS | st.sampled_from(["DataPartsExchange:/t", "all_0_0_0"]),
    ),
    st.sampled_from(["", "Bearer", f"Bearer {SECRET}", "Basic x"]),
    BYTES,
)
answers = (
    st.tuples(
        st.integers(0, 2**64 - 1), st.integers(0, 2**20), st.integers(0, 2**27), BYTES
    ).map(lambda drawn: struct.pack("<QQQ", *drawn[:3]) + drawn[3])
    | BYTES
)


# --- what is asked ------------------------------------------------------------------------------


def read_file(drawn: tuple[str, bytes, str]) -> None:
    name, content, compression = drawn
    file = file_of_format(name, "file", content=content, compression=compression)
    for _ in conform(file, COLUMNS, settings=QuerySettings()):
        pass


def read_configuration(content: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        file.write(content)
        file.flush()
        load_config(Path(file.name))


def answer(drawn: tuple[str, str, dict[str, str], str, bytes]) -> None:
    """A server that has no parts; an error of its own comes out here."""
    method, path, query, authorization, body = drawn
    app = exchange_app(lambda _: None, Guard((SECRET,)), lambda *_: None)

    headers = {"Authorization": authorization} if authorization else {}
    status = asgi.ask(app, method, path, query=query, headers=headers, body=body).status
    assert 400 <= status < 500, f"{status} to {drawn}"


def receive(data: bytes) -> None:
    source = io.BytesIO(data)

    def read(size: int) -> bytes:
        found = source.read(size)
        if len(found) < size:
            raise Unavailable("broke off")
        return found

    manifest, _ = wire.read_head(read)
    for file in manifest.files:
        wire.read_file_head(read, file)


def statements(text: str) -> None:
    for piece in split(text):
        parse(piece)


def as_text(decoder: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: decoder(data.decode(errors="replace"))


NODES: dict[str, Callable[[bytes], object]] = {
    "log entry": decode,
    "address": ReplicaAddress.decode,
    "quorum": QuorumEntry.decode,
    "added parts": AddedParts.decode,
    "part header": PartHeader.decode,
    "mutation": MutationEntry.decode,
    "claim": Claim.decode,
    "task": Task.decode,
    "task outcome": TaskOutcome.decode,
    "task names": NamesBefore.decode,
    "attempts": Attempts.decode,
    "alter record": lambda data: AlterRecord.decode(data, 1),
    "insert record": InsertRecord.decode,
    "insert batch": InsertBatch.decode,
    "columns": as_text(parse_columns),
    "metadata": as_text(parse_metadata),
}
TARGETS: tuple[Target, ...] = (
    *(Target(name, BYTES | nodes, read, (Corruption,)) for name, read in NODES.items()),
    Target("part name", st.text(max_size=40), PartName.try_parse, ()),
    Target("manifest", BYTES | checked_manifests(), MANIFEST, (Corruption,)),
    Target(
        "definition",
        BYTES | definitions,
        lambda data: decode_definition(data, "file"),
        (Corruption,),
    ),
    Target("answer of a peer", answers, receive, (Corruption, Unavailable)),
    Target("request", requests, answer, ()),
    Target("statements", TEXTS, statements, (UserError,)),
    Target("expression", TEXTS, parse_expression, (UserError,)),
    Target("query", TEXTS, parse_query, (UserError,)),
    Target("type", TEXTS, parse_type, (UserError,)),
    Target("commands of a mutation", TEXTS, parse_commands, (UserError,)),
    Target("configuration", BYTES | configurations, read_configuration, (UserError,)),
    Target("inserted file", files, read_file, (UserError,)),
)


# --- asking ---------------------------------------------------------------------------------------


@contextmanager
def bounded(target: Target) -> Iterator[None]:
    """Fails when it takes as long or as much memory as no such input is worth."""

    def hang(*_: object) -> None:
        raise AssertionError(f"{target.name} takes more than {HANGS_AFTER_S} s")

    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    previous = signal.signal(signal.SIGPROF, hang)
    signal.setitimer(signal.ITIMER_PROF, HANGS_AFTER_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb
    assert grown_kb < MEMORY_MAX_KB, f"{target.name} took {grown_kb} kB"


def ask(target: Target, *, examples: int, round_number: int | None = None) -> None:
    """Raises whatever the decoder should not."""

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(target.given)
    def one(data: Any) -> None:
        with bounded(target):
            try:
                target.decode(data)
            except target.errors:
                return

    (one if round_number is None else seed(round_number)(one))()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--first", type=int, default=1, help="the number of the first round")
    options = parser.parse_args()
    asked, failed = fuzz(options.first, until_s=time.monotonic() + options.minutes * 60)
    for target in TARGETS:
        rounds = asked[target.name]
        print(f"{rounds:7} rounds, {rounds * EXAMPLES_PER_ROUND:9} inputs  {target.name}")
    print(f"failed: {sorted(failed) or 'none'}")
    return 1 if failed or min(asked.values()) == 0 else 0


def fuzz(first: int, *, until_s: float) -> tuple[dict[str, int], set[str]]:
    """How many rounds each decoder had until then, and which ones failed. Each has one at least,
    however late it is: a fuzzer that was not there must not say that nothing was found.
    """
    asked = {target.name: 0 for target in TARGETS}
    failed: set[str] = set()
    for round_number in itertools.count(first):
        for target in random.Random(round_number).sample(TARGETS, len(TARGETS)):
            if time.monotonic() >= until_s and min(asked.values()) > 0:
                return asked, failed
            asked[target.name] += 1
            if target.name in failed:
                continue
            try:
                ask(target, examples=EXAMPLES_PER_ROUND, round_number=round_number)
            except Exception as error:  # noqa: BLE001  whatever it is, it is the finding
                failed.add(target.name)
                print(
                    f"{target.name}, round {round_number}: {error!r}",
                    *getattr(error, "__notes__", []),
                    sep="\n",
                )
    raise AssertionError("counting does not end")


if __name__ == "__main__":
    sys.exit(main())
