"""Every setting does something: a name that is accepted and not read would be a lie."""

import ast

from rmt_pipeline.protocol.settings import QUERY_SETTINGS, TABLE_SETTINGS
from tests.tidy import tree

DEFINED_IN = ("table_settings.py", "query_settings.py")
HOLDERS = {"settings", "_settings", "query", "_query"}
"""What variables and attributes that hold settings are called."""

BY_NAME = {
    "index_granularity": "protocol.metadata writes it to ZooKeeper",
    "index_granularity_bytes": "protocol.metadata writes it to ZooKeeper",
}


def _read() -> set[str]:
    """Names that are read as an attribute of something that holds settings."""
    return {
        node.attr
        for file in tree.modules(*tree.PACKAGES)
        if file.name not in DEFINED_IN
        for node in ast.walk(tree.syntax(file))
        if isinstance(node, ast.Attribute) and _name(node.value) in HOLDERS
    }


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def test_every_setting_is_read() -> None:
    known = {*TABLE_SETTINGS, *QUERY_SETTINGS}
    assert sorted(known - _read() - BY_NAME.keys()) == []


def test_what_is_read_by_name_is_named_where_it_is_said() -> None:
    text = tree.text("rmt_pipeline/protocol/metadata.py")
    assert [name for name in BY_NAME if f'"{name}"' not in text] == []
