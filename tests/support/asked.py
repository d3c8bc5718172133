"""What an action asks of ZooKeeper, and what it answers, as text for people to compare."""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from difflib import SequenceMatcher
from enum import Enum
from pathlib import Path
from typing import Any

from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.zookeeper.keeper import ANY_VERSION, Create, Keeper, Op, Stat, Watch
from rmt_pipeline.zookeeper.through import ThroughKeeper
from tests.support.local_replicas import ROOT, Replicas

TEXT_MAX = 300
LINES_MAX = 30
WHAT = {"SetData": "set", "Create": "create", "Delete": "delete", "Check": "check"}


class Asking(ThroughKeeper[Keeper]):
    """A session whose requests are noted, each as one line; a multi with a line for each of its
    operations.
    """

    def __init__(self, session: Keeper) -> None:
        super().__init__(session)
        self.asked: list[str] = []

    def _note(self, what: str, paths: Sequence[str], watch: Watch | None = None) -> None:
        if not paths:
            return  # nothing is sent
        words = [what, *map(_path, paths), *["(watched)"] * (watch is not None)]
        self.asked.append(" ".join(words))

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        self._note("get", [path], watch)
        return super().get(path, watch)

    def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        self._note("get", sorted(paths))
        return super().get_many(paths)

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        self._note("exists", [path], watch)
        return super().exists(path, watch)

    def exists_many(self, paths: Sequence[str]) -> list[Stat | None]:
        self._note("exists", sorted(paths))
        return super().exists_many(paths)

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        self._note("children", [path], watch)
        return super().children(path, watch)

    def children_stat(self, path: str, watch: Watch | None = None) -> tuple[list[str], Stat]:
        self._note("children and stat", [path], watch)
        return super().children_stat(path, watch)

    def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        self._note("children", sorted(paths))
        return super().children_many(paths)

    def await_children(self, path: str, watch: Watch) -> bool:
        self._note("await children", [path])
        return super().await_children(path, watch)

    def sync(self, path: str) -> None:
        self._note("sync", [path])
        super().sync(path)

    def multi(self, ops: Sequence[Op]) -> list[str]:
        self.asked.append("\n  ".join(["multi", *map(_op, ops)]))
        return super().multi(ops)

    def multi_many(self, multis: Sequence[Sequence[Op]]) -> list[list[str] | Exception]:
        each = ["\n  ".join(["multi", *map(_op, ops)]) for ops in multis]
        if each:
            self.asked.append("\n".join([f"{len(each)} multis together", *each]))
        return super().multi_many(multis)


def _path(path: str) -> str:
    return path.removeprefix(f"{ROOT}/") or "/"


def _op(op: Op) -> str:
    words = [WHAT[type(op).__name__], _path(op.path)]
    if isinstance(op, Create):
        words += ["(ephemeral)"] * op.ephemeral + ["(sequence)"] * op.sequence
    elif op.version != ANY_VERSION:
        words.append(f"of version {op.version}")
    data = getattr(op, "data", b"")
    return " ".join([*words, *[f"= {_text(data)}"] * bool(data)])


def _text(data: bytes) -> str:
    text = data.decode(errors="replace").replace("\n", "|").replace("\t", " ")
    if not text.isprintable():
        return "…"
    if len(text) <= TEXT_MAX:
        return text
    return f"{text[:TEXT_MAX]}… {hashlib.sha256(data).hexdigest()[:8]}"


def told(value: Any, directory: Path) -> str:
    """An answer, by its fields. Of what is no data only the type is told."""
    return _told(value).replace(str(directory), "…")


def _told(value: Any) -> str:
    if isinstance(value, Enum):
        return str(value)
    if value is None or isinstance(value, str | int | float | bytes | PartName):
        return str(value) if isinstance(value, PartName) else repr(value)
    if isinstance(value, RmtError):
        return f"{type(value).__name__}: {value}"
    if is_dataclass(value):
        values = {one.name: getattr(value, one.name) for one in fields(value) if one.repr}
        some = [f"{key}={_field(key, one)}" for key, one in values.items() if one]
        return f"{type(value).__name__}({', '.join(some)}){_words(value)}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_told(k)}: {_told(v)}" for k, v in value.items()) + "}"
    if isinstance(value, AbstractSet):
        return "{" + ", ".join(sorted(map(_told, value))) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(_told, value)) + "]"
    return type(value).__name__


def _words(value: Any) -> str:
    """What people are told of it."""
    words = getattr(value, "words", None)
    text = words() if callable(words) else words
    return f": {text}" if text and isinstance(text, str) else ""


def _field(name: str, value: Any) -> str:
    """How large a file is says which version of its writer it is of."""
    return "…" if "bytes" in name and value else _told(value)


def on_disk(replicas: Replicas, name: str) -> list[str]:
    """What is in the replica's directory."""
    store = replicas.stores[name]
    root = Path(store.disk.local_path(""))
    there = sorted(str(path.relative_to(root)) for path in root.glob("*") if path.is_dir())
    detached = [f"detached/{one}" for one in sorted(map(str, store.detached()))]
    return [*there, *detached]


def events(replicas: Replicas, name: str) -> list[str]:
    """What `system.part_log` has of it."""
    return [f"event {_told(event)}" for event in replicas.stores[name].part_log.events()]


def differs(calm: Sequence[str], asked: Sequence[str]) -> list[str]:
    """Which requests are missing, and which are new."""
    lines = []
    matcher = SequenceMatcher(None, calm, asked, autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind != "equal":
            lines += [f"  without {one.partition(chr(10))[0]}" for one in calm[a:b]]
            lines += [f"  then {one}" for one in asked[c:d]]
    if len(lines) <= LINES_MAX:
        return lines
    rest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:8]
    return [*lines[:LINES_MAX], f"  and so on, {len(lines)} in all: {rest}"]


def must_be_recorded(file: Path, lines: Iterable[str], again: str) -> None:
    """`again` is the command that records it anew, for who means the difference."""
    text = "".join(f"{line}\n" for line in lines)
    if os.environ.get("UPDATE_SNAPSHOTS"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    recorded = file.read_text(encoding="utf-8") if file.exists() else ""
    assert text.splitlines() == recorded.splitlines(), f"if it is meant: {again}"


def outcome_of(act: Callable[[], object], directory: Path) -> str:
    try:
        return told(act(), directory)
    except RmtError as error:
        return told(error, directory)
