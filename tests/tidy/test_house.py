"""The house: folders by noun, arrows that never come back, one meaning per name."""

import ast
import functools
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tests.tidy import tree

STARTUP = "start-up"
"""The word that a comment beside an import inside a function has, or the module's docstring."""

MAPS = ("docs/architecture.md", "docs/where.md")

FAMILY_MIN = 3
"""So many modules with the same first word, in one folder, are a folder."""

SAME_NAME = {
    "activate": "an action, and the multi that it sends",
    "alter_table": "a statement, read and carried out",
    "attach_table": "a statement, read and carried out",
    "build_definitions": "each code location has one",
    "create_mutation": "an action, and the multi that it sends",
    "create_replica": "an action, and the multi that it sends",
    "create_table": "a statement, read and carried out, and the multi that it sends",
    "insert": "a statement, read and carried out",
    "main": "what a program begins with",
    "optimize": "a statement, read and carried out",
}
"""Public names that may be defined more than once, and why."""


EXCUSED = {
    (
        "rmt_pipeline.protocol.errors",
        "rmt_pipeline.protocol.parts.name",
    ): "an error names its part",
    (
        "rmt_pipeline.zookeeper.keeper",
        "rmt_pipeline.zookeeper.strays",
    ): "a keeper has its strays",
}
"""Arrows that close a circle and stand under TYPE_CHECKING, and why they may."""

CIRCLED: tuple[str, ...] = ()
"""Rooms with circles inside, and between their folders: fewer each time."""

SPELLED: tuple[str, ...] = ()
"""Families that are still prefixes: fewer each time."""


@functools.cache
def modules() -> Mapping[str, Path]:
    return {tree.dotted(file): file for file in tree.modules(*tree.PACKAGES)}


@functools.cache
def arrows() -> Mapping[str, set[str]]:
    """Which module imports which, also inside functions."""
    known = modules()
    return {
        module: {name for name in tree.imported_names(file) if name in known} - {module}
        for module, file in known.items()
    }


def circle(graph: Mapping[str, Collection[str]]) -> list[str]:
    """One circle of the graph, if there is one."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@functools.cache
def _with_folders() -> set[Path]:
    """The folders that have others with modules in them."""
    return {above for file in modules().values() for above in file.parent.parents}


def room(module: str) -> str:
    """The folder of a module. One that stands beside folders is a room by itself."""
    folder = modules()[module].parent
    return module if folder in _with_folders() else ".".join(folder.parts)


def straight() -> dict[str, set[str]]:
    """The arrows but for those that are excused."""
    return {
        module: {
            name
            for name in names
            if (module, name) not in EXCUSED and not (_is_circled(module) and _is_circled(name))
        }
        for module, names in arrows().items()
    }


def _is_circled(module: str) -> bool:
    return ".".join(module.split(".")[:2]) in CIRCLED


def test_no_module_needs_itself() -> None:
    assert circle(straight()) == []


def test_every_excuse_is_needed() -> None:
    graph = arrows()
    assert [arrow for arrow in EXCUSED if arrow[1] not in graph.get(arrow[0], ())] == []


def test_no_folder_needs_itself() -> None:
    rooms = {module: room(module) for module in modules()}
    graph: dict[str, set[str]] = defaultdict(set)
    for module, names in straight().items():
        graph[rooms[module]] |= {rooms[name] for name in names} - {rooms[module]}
    assert circle(graph) == []


def _imports_in_functions(file: Path) -> Iterator[int]:
    for node in tree.nodes(file):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Import | ast.ImportFrom):
                    yield inner.lineno


def _comments(file: Path) -> dict[int, str]:
    with tokenize.open(tree.ROOT / file) as source:
        tokens = list(tokenize.generate_tokens(source.readline))
    return {one.start[0]: one.string for one in tokens if one.type == tokenize.COMMENT}


def test_an_import_inside_a_function_is_for_start_up_time_and_says_so() -> None:
    """Else it hides a circle, or is a habit."""
    silent = []
    for file in modules().values():
        lines = sorted(set(_imports_in_functions(file)))
        if not lines or STARTUP in (ast.get_docstring(tree.syntax(file)) or ""):
            continue
        comments = _comments(file)
        silent += [
            f"{file}:{line}"
            for line in lines
            if STARTUP not in comments.get(line, "") + comments.get(line - 1, "")
        ]
    assert silent == []


def _at_once(parsed: ast.Module) -> Iterator[str]:
    """What the module imports as soon as it is imported itself: not in functions, not for types."""
    found: list[ast.AST] = list(parsed.body)
    while found:
        match found.pop():
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield module
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                pass
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=others):
                found += others
            case node:
                found += ast.iter_child_nodes(node)


@functools.cache
def _first_arrows() -> Mapping[str, set[str]]:
    """What each module imports at once, and its folder."""
    return {
        module: {*_at_once(tree.syntax(file)), module.rpartition(".")[0]}
        for module, file in modules().items()
    }


@functools.cache
def _loaded_with(module: str) -> set[str]:
    """Every name that is imported when the module is, by whatever is imported with it."""
    found, left = set[str](), [module]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += _first_arrows().get(name, ())
    return found


def _modules_of(node: ast.ImportFrom) -> list[str]:
    """The module that names are taken from; where it may be a folder, the modules in it."""
    file = modules().get(node.module or "")
    if file is not None and file.name != "__init__.py":
        return [node.module or ""]
    return [f"{node.module}.{alias.name}" for alias in node.names]


def test_an_import_inside_a_function_is_of_what_is_not_there_yet() -> None:
    """Else it saves nothing."""
    needless = [
        f"{file}:{node.lineno} {name}"
        for module, file in modules().items()
        for function in tree.nodes(file)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom)
        for name in _modules_of(node)
        if name in _loaded_with(module)
    ]
    assert needless == []


def test_every_public_name_is_defined_once() -> None:
    """One word, one meaning, in the whole project; what may not be so has its reason."""
    found = Counter(
        name
        for file in modules().values()
        for name in set(tree.names_defined_by(tree.syntax(file)))
        if not name.startswith("_")
    )
    twice = {name for name, count in found.items() if count > 1}
    assert sorted(twice - SAME_NAME.keys()) == []
    assert sorted(SAME_NAME.keys() - twice) == []


def test_no_family_is_spelled_as_a_prefix() -> None:
    families: dict[tuple[Path, str], set[str]] = defaultdict(set)
    for file in modules().values():
        families[file.parent, file.stem.partition("_")[0]].add(file.stem)
    spelled = {
        f"{folder}/{word}_*": sorted(names)
        for (folder, word), names in families.items()
        if len(names) >= FAMILY_MIN and word
    }
    assert sorted(spelled) == sorted(SPELLED)


LISTED = (
    *("catalog", "cluster", "compute", "config", "dagster", "exchange", "export", "processes"),
    *("protocol", "replica", "server", "sql/client", "sql/tasks", "store", "zookeeper"),
)
"""Rooms whose modules are all named in the map; elsewhere a module is one of a family."""


def test_the_map_names_every_module_of_the_rooms_that_it_lists() -> None:
    rows = re.findall(r"(?m)^\| `([\w/]+)/` \|(.*)$", tree.text("docs/architecture.md"))
    named = {folder: set(re.findall(r"`(\w+)`", row)) for folder, row in rows}
    folders = {file: "/".join(file.parts[1:-1]) for file in tree.modules("rmt_pipeline")}
    listed = {
        file: folder
        for file, folder in folders.items()
        if file.name != "__init__.py"
        and f"{folder}/".startswith(tuple(f"{one}/" for one in LISTED))
    }
    assert set(LISTED) <= set(listed.values())
    assert (
        sorted(str(file) for file, folder in listed.items() if file.stem not in named[folder])
        == []
    )


def test_the_map_has_every_folder() -> None:
    """docs/architecture.md says of each folder what is in it and what may not come in."""
    text = tree.text("docs/architecture.md")
    folders = set()
    for file in modules().values():
        top, *inside = file.parent.parts
        folders.add("/".join([*(inside if top == "rmt_pipeline" else [top, *inside]), ""]))
    assert sorted(one for one in folders - {""} if f"`{one}`" not in text) == []


def _place(path: str) -> Path:
    inside = Path("rmt_pipeline") / path
    return inside if (tree.ROOT / inside).exists() else Path(path)


def test_every_path_that_the_maps_name_exists() -> None:
    named = {
        path
        for text in map(tree.text, MAPS)
        for path in re.findall(r"`([\w/.-]+(?:\.(?:py|md|txt|json)|/))`", text)
    }
    assert len(named) > 100
    assert sorted(path for path in named if not (tree.ROOT / _place(path)).exists()) == []


def test_every_function_that_the_walks_name_is_where_they_say() -> None:
    named = re.findall(r"`([\w.]+)`\s+\(`([\w/]+\.py)`\)", tree.text("docs/architecture.md"))
    assert len(named) > 20
    wrong = [
        f"{name} in {path}"
        for name, path in named
        if name.rpartition(".")[2]
        not in {
            node.name
            for node in tree.nodes(_place(path))
            if isinstance(node, ast.FunctionDef | ast.ClassDef)
        }
    ]
    assert wrong == []
