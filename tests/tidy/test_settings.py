"""Every setting does something: a name that is accepted and not read would be a lie."""

import ast

from rmt_pipeline.protocol.settings.query import QUERY_SETTINGS
from rmt_pipeline.protocol.settings.table import TABLE_SETTINGS
from tests.tidy import tree

DEFINED_IN = (
    "rmt_pipeline/protocol/settings/table.py",
    "rmt_pipeline/protocol/settings/query.py",
)
HOLDERS = {"settings", "_settings", "query", "_query", "query_settings"}
"""What variables and attributes that hold settings are called, and who gives them."""

BY_NAME = {
    "index_granularity": "protocol.nodes.metadata writes it to ZooKeeper",
    "index_granularity_bytes": "protocol.nodes.metadata writes it to ZooKeeper",
}


def _read() -> set[str]:
    """Names that are read as an attribute of something that holds settings."""
    return {
        node.attr
        for file in tree.modules(*tree.PACKAGES)
        if str(file) not in DEFINED_IN
        for node in tree.nodes(file)
        if isinstance(node, ast.Attribute) and _name(node.value) in HOLDERS
    }


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=function):
            return _name(function)
    return ""


def test_every_setting_is_read() -> None:
    known = {*TABLE_SETTINGS, *QUERY_SETTINGS}
    assert sorted(known - _read() - BY_NAME.keys()) == []


def test_what_is_read_by_name_is_named_where_it_is_said() -> None:
    text = tree.text("rmt_pipeline/protocol/nodes/metadata.py")
    assert [name for name in BY_NAME if f'"{name}"' not in text] == []
