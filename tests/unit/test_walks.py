"""The walks of docs/architecture.md, walked: its functions are called in the order in which it has
them.
"""

import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from tests.support.local_session import create, local_session
from tests.support.local_work import working
from tests.support.waiting import until
from tests.tidy import tree

ELSEWHERE = {"SparkMerger", "SparkMutator", "find_sources", "PartClient.fetch"}
"""Needs Spark, or another server."""

TABLE = "CREATE TABLE t (n UInt64, s String) ENGINE = ReplicatedMergeTree ORDER BY n"
INSERTS = [f"INSERT INTO t VALUES ({number}, 'x')" for number in range(12)]
MERGE = "OPTIMIZE TABLE t FINAL"
MUTATION = "ALTER TABLE t UPDATE s = 'y' WHERE n = 1 SETTINGS mutations_sync = 1"


def walk(title: str) -> list[tuple[str, str]]:
    """Name and file of each function of the walk, as it names them."""
    text = tree.text("docs/architecture.md")
    steps = text[text.index(f"## {title}") :].split("\n## ")[0]
    named = re.findall(r"`([\w.]+)`\s+\(`([\w/]+\.py)`\)", steps)
    return [(name, path) for name, path in named if name not in ELSEWHERE]


@contextmanager
def called() -> Iterator[list[tuple[str, str]]]:
    """Functions of the product as they are entered and left, in all threads."""
    found: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        _, is_ours, path = frame.f_code.co_filename.rpartition("/rmt_pipeline/")
        if is_ours and event in ("call", "return"):
            found.append((frame.f_code.co_qualname, path))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


@pytest.mark.parametrize(
    ("title", "statements"),
    [
        ("A row, from INSERT", INSERTS),
        ("A log entry, from", [*INSERTS, MERGE, MUTATION]),
        ("A mutation's WHERE", [*INSERTS, MUTATION]),
    ],
)
def test_a_walk_goes_where_the_page_says(
    title: str, statements: Sequence[str], tmp_path
) -> None:
    steps = walk(title)
    assert len(steps) > 5

    def not_walked() -> list[tuple[str, str]]:
        left = iter(tuple(calls))
        return [step for step in steps if step not in left]

    with local_session(tmp_path) as session:
        definition = create(session, TABLE)
        with called() as calls, working(session.context.server, definition):
            for statement in statements:
                session.execute(statement)
            until(lambda: not not_walked(), lambda: f"not walked: {not_walked()}")
