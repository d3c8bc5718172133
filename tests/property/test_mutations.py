"""Commands on rows in memory, against a few obvious lines of Python."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from rmt_pipeline.compute.mutate.commands import CompiledCommands
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.syntax.types import arrow_schema

COLUMNS = (
    Column("id", "Int64"),
    Column("v", "String"),
    Column("n", "Nullable(Int32)"),
    Column("tags", "Array(String)"),
    Column("m", "Int64", "MATERIALIZED", "id + length(v)"),
)

Row = dict[str, Any]


@dataclass(frozen=True)
class Condition:
    text: str
    holds: Callable[[Row], bool]


@dataclass(frozen=True)
class Value:
    column: str
    text: str
    of: Callable[[Row], Any]


def at_most(bound: int) -> Condition:
    return Condition(f"n <= {bound}", lambda row: row["n"] is not None and row["n"] <= bound)


def is_text(text: str) -> Condition:
    return Condition(f"v = '{text}'", lambda row: row["v"] == text)


SMALL = st.integers(-3, 3)
WORDS = st.sampled_from(["", "a", "ab", "é"])
CONDITIONS = st.one_of(
    SMALL.map(at_most),
    WORDS.map(is_text),
    SMALL.map(lambda k: Condition(f"id > {k}", lambda row: row["id"] > k)),
    st.just(Condition("n IS NULL", lambda row: row["n"] is None)),
    st.just(Condition("length(tags) > 0", lambda row: bool(row["tags"]))),
    st.just(Condition("1", lambda row: True)),
    st.just(Condition("n > NULL", lambda row: False)),
)
VALUES = st.one_of(
    WORDS.map(lambda word: Value("v", f"concat(v, '{word}')", lambda row: row["v"] + word)),
    SMALL.map(lambda k: Value("n", f"{k}", lambda row: k)),
    st.just(Value("n", "NULL", lambda row: None)),
    st.just(Value("n", "id", lambda row: row["id"])),
    WORDS.map(lambda word: Value("tags", f"['{word}', v]", lambda row: [word, row["v"]])),
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": SMALL,
            "v": WORDS,
            "n": st.none() | SMALL,
            "tags": st.lists(WORDS, max_size=2),
        }
    ),
    max_size=8,
)


@dataclass(frozen=True)
class Command:
    """A DELETE without values, an UPDATE with them."""

    condition: Condition
    values: tuple[Value, ...]

    def __str__(self) -> str:
        if not self.values:
            return f"DELETE WHERE {self.condition.text}"
        assigned = ", ".join(f"{value.column} = {value.text}" for value in self.values)
        return f"UPDATE {assigned} WHERE {self.condition.text}"

    def on(self, row: Row) -> Row | None:
        if not self.condition.holds(row):
            return row
        if not self.values:
            return None
        return computed(row | {value.column: value.of(row) for value in self.values})


COMMANDS = st.builds(
    Command,
    CONDITIONS,
    st.lists(VALUES, max_size=2, unique_by=lambda value: value.column).map(tuple),
)


def computed(row: Row) -> Row:
    return row | {"m": row["id"] + len(row["v"].encode())}


@settings(max_examples=200, deadline=None)  # the first one loads DuckDB
@given(
    rows=ROWS, commands=st.lists(COMMANDS, max_size=4), cut=st.booleans(), coded=st.booleans()
)
def test_commands_do_to_each_row_what_they_say(rows, commands, cut, coded):
    """However the commands are divided into mutations, and a string column is held."""
    before = [computed(row) for row in rows]
    after: list[Row] = []
    touched = False
    for row in before:
        found: Row | None = row
        for command in commands:
            if found is not None:
                touched = touched or command.condition.holds(found)
                found = command.on(found)
        if found is not None:
            after.append(found)
    texts = [str(command) for command in commands]
    if not cut and texts:
        texts = [", ".join(texts)]
    table = pa.Table.from_pylist(before, schema=arrow_schema(COLUMNS))
    if coded:
        at = table.schema.get_field_index("v")
        table = table.set_column(at, "v", table.column("v").dictionary_encode())
    kernel = CompiledCommands(texts, COLUMNS, "all")
    applied = kernel.apply(table)
    assert applied.rows.to_pylist() == after
    assert kernel.match(table) == touched
    assert sum(gone.num_rows for gone in applied.deleted) == len(before) - len(after)
