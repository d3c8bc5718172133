"""What the threads of one process share: of kinds that are safe to share, and looked at once."""

import ast
import dataclasses
import inspect
import textwrap
import typing
from collections import Counter
from types import NoneType, UnionType
from typing import Any

from rmt_pipeline.hints import Hints
from rmt_pipeline.replica.kills import Kills
from rmt_pipeline.replica.replica import Memory, Total
from rmt_pipeline.replica.together import Together
from tests.tidy import tree

VALUES = (NoneType, bool, int, float, str, bytes)
WITH_LOCKS = (Hints, Kills, Together, Total)


def is_value(kind: Any) -> bool:
    """Nobody can change one."""
    if typing.get_origin(kind) in (tuple, frozenset, UnionType, typing.Union):
        return all(part is Ellipsis or is_value(part) for part in typing.get_args(kind))
    if kind in VALUES:
        return True
    if dataclasses.is_dataclass(kind):
        is_frozen = kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
        return is_frozen and all(map(is_value, typing.get_type_hints(kind).values()))
    return typing.get_origin(kind) is None and never_changes(kind)


def never_changes(kind: type) -> bool:
    """A class of ours, of whose methods only `__init__` assigns to its attributes."""
    if not kind.__module__.startswith("rmt_pipeline"):
        return False
    [body] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(body, ast.ClassDef)
    methods = [one for one in body.body if isinstance(one, ast.FunctionDef)]
    return bool(methods) and not any(
        isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del)
        for method in methods
        if method.name != "__init__"
        for node in ast.walk(method)
    )


def is_safe(kind: Any) -> bool:
    """A value, or something with a lock, or something that is made of such for ever."""
    if (typing.get_origin(kind) or kind) in WITH_LOCKS or is_value(kind):
        return True
    return (
        dataclasses.is_dataclass(kind)
        and kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
        and all(map(is_safe, typing.get_type_hints(kind).values()))
    )


def kinds() -> dict[str, Any]:
    return typing.get_type_hints(Memory)


def test_whatever_loops_share_is_replaced_as_a_whole_or_has_a_lock() -> None:
    assert kinds()
    unsafe = {name: kind for name, kind in kinds().items() if not is_safe(kind)}
    assert unsafe == {}


def test_a_dictionary_or_a_set_would_be_noticed() -> None:
    for kind in (dict[str, int], set[str], list[int], tuple[list[int], ...], Memory):
        assert not is_value(kind)


def test_nobody_looks_twice_at_what_another_thread_may_replace() -> None:
    """Between two looks it may become another one: then the two do not belong together."""
    replaced = {name for name, kind in kinds().items() if is_value(kind)}
    twice = [
        f"{file}:{function.lineno} {function.name} {name}"
        for file in tree.modules("rmt_pipeline")
        for function in tree.nodes(file)
        if isinstance(function, ast.FunctionDef)
        for name, count in looks(function).items()
        if count > 1 and name in replaced
    ]
    assert twice == []


def looks(inside: ast.AST) -> Counter[str]:
    """How often each `….memory.<name>`, or `memory.<name>`, is read."""
    return Counter(
        node.attr
        for node in ast.walk(inside)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and isinstance(node.value, ast.Attribute | ast.Name)
        and (node.value.attr if isinstance(node.value, ast.Attribute) else node.value.id)
        == "memory"
    )


def test_two_looks_would_be_noticed() -> None:
    source = "def f(r):\n    if r.memory.active:\n        return r.memory.active[1]\n"
    assert looks(ast.parse(source)) == {"active": 2}
