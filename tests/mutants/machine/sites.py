"""Where a machine can plant a bug in a module, and what the module is with it.

A `Site` names itself by what it changes, not by its line, so that its name outlives edits
elsewhere in the file. A module with a bug is a syntax tree: no file is ever written.
"""

import ast
import copy
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Edit = Callable[[], None]
"""Changes one place of the tree it was found in."""

SWAPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
}
ACTORS = frozenset(
    {"keeper", "store", "disk", "replica", "memory", "catalog", "peers", "paths"}
)
"""Names whose calls are effects, or are given what makes effects."""
OPERATIONS = frozenset({"Check", "Create", "Delete", "SetData"})
GUARANTEES = frozenset({"frozen", "slots", "strict", "eq", "kw_only", "daemon", "repr"})
"""Arguments that only refuse what the program never does, or what debuggers show: without them it
does the same.
"""
SILENT = frozenset({"log", "warnings"})
"""What is said to people is not looked at by tests of what happens."""
ASSERTING = frozenset({"__post_init__", "assert_never"})
"""As `assert`: what a value may not be is refused, and never is."""


@dataclass(frozen=True, slots=True)
class Site:
    """One bug that can be planted: `name` is unique and stable, `line` is where it stands now."""

    name: str
    file: str
    line: int
    kind: str


@dataclass(frozen=True, slots=True)
class _Found:
    node: ast.AST
    kind: str
    before: str
    after: str
    edit: Edit


def sites_of(source: str, file: str) -> list[Site]:
    """Every bug that can be planted in this module, in the order of its lines."""
    return [site for site, _ in _named(ast.parse(source), file)]


def planted(source: str, site: Site) -> ast.Module:
    """The module with this bug. Raises KeyError when there is no such place."""
    tree = ast.parse(source)
    edits = {found.name: edit for found, edit in _named(tree, site.file)}
    edits[site.name]()
    return ast.fix_missing_locations(tree)


def _named(tree: ast.Module, file: str) -> list[tuple[Site, Edit]]:
    seen: Counter[str] = Counter()
    named = []
    for scope, found in _walk(tree, ""):
        base = f"{file}::{scope} {found.kind}: {found.before} -> {found.after}".rstrip()
        seen[base] += 1
        name = base if seen[base] == 1 else f"{base} #{seen[base]}"
        line = getattr(found.node, "lineno", 1)
        named.append((Site(name, file, line, found.kind), found.edit))
    return named


def _walk(node: ast.AST, scope: str) -> Iterator[tuple[str, _Found]]:
    for child in ast.iter_child_nodes(node):
        if child in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            continue  # what mypy looks at
        if isinstance(child, ast.Assert):
            continue  # it refuses what never happens: weaker, it does the same
        if isinstance(child, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            inner = f"{scope}.{child.name}".lstrip(".")
        else:
            inner = scope
        for found in _at(child):
            yield inner, found
        yield from _walk(child, inner)


def _at(node: ast.AST) -> Iterator[_Found]:
    match node:
        case ast.Compare():
            yield from _comparisons(node)
        case ast.BoolOp():
            yield from _operands(node)
        case ast.If() | ast.IfExp() | ast.While():
            yield from _guards(node)
        case ast.comprehension():
            yield from _filters(node)
        case ast.BinOp():
            yield from _arithmetic(node)
        case ast.Call():
            yield from _arguments(node)
        case ast.Try():
            yield from _exceptions(node)
        case ast.List() | ast.Tuple():
            yield from _fields(node)
    yield from _statements(node)


def _text(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())[:80]


def _found(
    node: ast.AST, kind: str, after: str, edit: Edit, of: ast.AST | None = None
) -> _Found:
    return _Found(node, kind, _text(of or node), after, edit)


def _set(holder: object, field: str, value: object) -> Edit:
    return lambda: setattr(holder, field, value)


def _replace_at(items: list, position: int, value: ast.AST) -> Edit:
    def edit() -> None:
        items[position] = value

    return edit


def _remove_at(items: list, position: int) -> Edit:
    def edit() -> None:
        del items[position]

    return edit


# --- expressions ---


def _comparisons(node: ast.Compare) -> Iterator[_Found]:
    for position, one in enumerate(node.ops):
        other = SWAPPED[type(one)]()
        after = copy.copy(node)
        after.ops = [*node.ops[:position], other, *node.ops[position + 1 :]]
        yield _found(node, "comparison", _text(after), _replace_at(node.ops, position, other))


def _operands(node: ast.BoolOp) -> Iterator[_Found]:
    neutral = isinstance(node.op, ast.And)
    for position, one in enumerate(node.values):
        if isinstance(one, ast.Constant) and one.value == neutral:
            continue  # `x or 0`: False is 0
        edit = _replace_at(node.values, position, ast.Constant(neutral))
        others = [*node.values[:position], *node.values[position + 1 :]]
        if len(others) == 1 and isinstance(others[0], ast.Name | ast.Attribute | ast.Subscript):
            edit = _set(node, "values", [*others, *others])  # its value, not whether it is true
        yield _found(node, "operand", f"without {_text(one)}", edit)


def _guards(node: ast.If | ast.IfExp | ast.While) -> Iterator[_Found]:
    if "TYPE_CHECKING" in _names(node.test):
        return  # what mypy looks at
    for value in (False,) if isinstance(node, ast.While) else (False, True):
        if isinstance(node, ast.If) and value and _ends(node.body) and not node.orelse:
            continue  # what is behind it would be dead: the guard's other half shows as much
        edit = _set(node, "test", ast.Constant(value))
        at = node.test if isinstance(node, ast.IfExp) else node  # else its line is the body's
        yield _found(at, "guard", str(value), edit, of=node.test)


def _ends(body: list[ast.stmt]) -> bool:
    return isinstance(body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)


def _filters(node: ast.comprehension) -> Iterator[_Found]:
    for position, one in enumerate(node.ifs):
        yield _found(one, "filter", "always", _remove_at(node.ifs, position))


def _arithmetic(node: ast.BinOp) -> Iterator[_Found]:
    other = ARITHMETIC.get(type(node.op))
    if other is None or _is_text(node.left) or _is_text(node.right):
        return
    after = copy.copy(node)
    after.op = other()
    yield _found(node, "arithmetic", _text(after), _set(node, "op", after.op))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


def _arguments(node: ast.Call) -> Iterator[_Found]:
    for keyword in node.keywords:
        if keyword.arg in GUARANTEES:
            continue
        if isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, bool):
            other = not keyword.value.value
            edit = _set(keyword, "value", ast.Constant(other))
            yield _found(node, "argument", f"{keyword.arg}={other}", edit)
    if isinstance(node.func, ast.Name) and node.func.id in OPERATIONS - {"Create"}:
        at = 2 if node.func.id == "SetData" else 1
        if len(node.args) > at:
            yield _found(node, "version", "any", _remove_at(node.args, at))
    for position, argument in enumerate(node.args):
        if isinstance(argument, ast.Constant) and type(argument.value) is int:
            other = ast.Constant(argument.value + 1)
            edit = _replace_at(node.args, position, other)
            yield _found(node, "number", str(other.value), edit)


# --- statements ---


def _exceptions(node: ast.Try) -> Iterator[_Found]:
    for handler in node.handlers:
        if [type(one) for one in handler.body] != [ast.Raise] or handler.body[0].exc:
            what = handler.type or ast.Constant(None)
            yield _found(
                handler,
                "exception",
                "not handled",
                _set(handler, "body", [ast.Raise()]),
                of=what,
            )
    if node.finalbody and node.handlers:
        yield _found(node.finalbody[0], "finally", "nothing", _set(node, "finalbody", []))
    elif node.finalbody:
        edit = _set(node, "finalbody", [ast.Pass()])
        yield _found(node.finalbody[0], "finally", "nothing", edit)


def _fields(node: ast.List | ast.Tuple) -> Iterator[_Found]:
    """Operations of a multi: displays in which at least one element is made by its class."""
    if not any(_is_operation(one) for one in node.elts):
        return
    for position, one in enumerate(node.elts):
        yield _found(one, "field", "not in the multi", _remove_at(node.elts, position))


def _is_operation(node: ast.expr) -> bool:
    """`Check(…)`, or what the insert's multis are made of: `([Check(…)], purpose, index)`."""
    called = (
        node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
    )
    return called in OPERATIONS or (
        isinstance(node, ast.Tuple)
        and bool(node.elts)
        and isinstance(node.elts[0], ast.List)
        and any(_is_operation(one) for one in node.elts[0].elts)
    )


def _statements(node: ast.AST) -> Iterator[_Found]:
    """In every block of statements: effects left out, effects in another order, numbers."""
    for field in ("body", "orelse", "finalbody"):
        block = getattr(node, field, None)
        if not isinstance(block, list):
            continue
        for position, one in enumerate(block):
            if isinstance(one, ast.Expr) and _left_out(one):
                edit = _replace_at(block, position, ast.copy_location(ast.Pass(), one))
                yield _found(one, "effect", "left out", edit)
            if isinstance(one, ast.Delete | ast.AugAssign):
                edit = _replace_at(block, position, ast.copy_location(ast.Pass(), one))
                yield _found(one, "effect", "left out", edit)
            if position + 1 < len(block) and _may_swap(one, block[position + 1]):
                yield _found(
                    one, "order", f"after {_text(block[position + 1])}", _swap(block, position)
                )


def _left_out(statement: ast.Expr) -> bool:
    call = statement.value
    if isinstance(call, ast.Call):
        return not _names(call.func) & (SILENT | ASSERTING)
    return isinstance(call, ast.YieldFrom)


def _swap(block: list[ast.stmt], position: int) -> Edit:
    def edit() -> None:
        block[position], block[position + 1] = block[position + 1], block[position]

    return edit


def _may_swap(one: ast.stmt, two: ast.stmt) -> bool:
    """Two effects next to each other, neither of which needs a name that the other sets."""
    if not (_is_effect(one) and _is_effect(two)):
        return False
    sets_one, sets_two = _names(one, ast.Store), _names(two, ast.Store)
    return not (sets_one & _names(two) or sets_two & _names(one))


def _is_effect(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign | ast.If | ast.With):
        return False
    return any(
        isinstance(node, ast.Call) and _names(node) & ACTORS for node in ast.walk(statement)
    )


def _names(node: ast.AST, how: type[ast.expr_context] | None = None) -> frozenset[str]:
    """Names and attributes in a piece of code; with `how`, only names in that role."""
    found = set()
    for one in ast.walk(node):
        if isinstance(one, ast.Name) and (how is None or isinstance(one.ctx, how)):
            found.add(one.id)
        if isinstance(one, ast.Attribute) and how is None:
            found.add(one.attr)
    return frozenset(found)
