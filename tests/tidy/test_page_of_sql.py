"""docs/sql.md names all that there is: types, engines, system tables, formats."""

import re

import pytest

from rmt_pipeline.protocol.errors import UnknownType
from rmt_pipeline.sql.define.engine import ENGINES
from rmt_pipeline.sql.system.tables import SYSTEM_TABLES
from rmt_pipeline.syntax.types import EXACT, parse_type
from tests.tidy import tree

PAGE = tree.text("docs/sql.md")


def section(title: str) -> str:
    [found] = re.findall(rf"^## {title}\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


def names_in(text: str) -> set[str]:
    """In backticks, as far as the parenthesis."""
    return {
        word for code in re.findall(r"`([^`]+)`", text) for word in re.findall(r"\w+", code)
    }


def test_every_type_and_engine_is_there() -> None:
    there = names_in(section("Types and engines"))
    spans = {f"{u}Int{bits}" for u in ("", "U") for bits in (16, 32)}  # `Int8` to `Int64`
    types = {*EXACT, "Bool", "Date", "Date32", "DateTime", "DateTime64", "Decimal", "Enum"}
    assert types - spans - there == set()
    engines = {name for name, replicates in ENGINES.items() if not replicates}
    assert engines - there == set()


def test_every_system_table_is_there() -> None:
    assert set(SYSTEM_TABLES) - names_in(section("System tables")) == set()


def test_who_names_no_type_is_told_where_they_are() -> None:
    with pytest.raises(UnknownType, match=r"Types and engines in docs/sql\.md"):
        parse_type("Qqqqqqq")
