"""The log of a Replicated database, compared with the records of its tables: which ALTERs are in no
record yet, and what name a table has after later statements.
"""

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from rmt_pipeline.cluster.database import Picture, followers
from rmt_pipeline.cluster.queue import tasks_in
from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.protocol.nodes.tasks import Task, TaskOutcome
from rmt_pipeline.syntax.statements.nodes import (
    AlterTable,
    DropTable,
    ExchangeTables,
    RenameTables,
    Statement,
)
from rmt_pipeline.syntax.statements.parse import parse
from rmt_pipeline.zookeeper.keeper import LivingKeeper
from rmt_pipeline.zookeeper.paths import DatabasePaths, sequence_number


def renamed(name: str, statement: Statement) -> str:
    """The name of the table after the statement; "" if the statement drops it."""
    match statement:
        case DropTable(tables=tables) if name in {table.name for table in tables}:
            return ""
        case RenameTables(moves=((old, new),)) if name == old.name:
            return new.name
        case ExchangeTables(one, other) if name in (one.name, other.name):
            return other.name if name == one.name else one.name
        case _:
            return name


@dataclass(frozen=True, slots=True)
class LoggedAlter:
    """An ALTER in the log. `table`: the name of its table at the picture's end. `finished`: the
    replicas that have finished it. `is_vain`: some have, and on all of these it failed.
    """

    node: str
    request_id: str
    table: str
    finished: frozenset[str]
    is_vain: bool


def name_after(
    keeper: LivingKeeper, paths: DatabasePaths, name: str, task: int, last: int | None = None
) -> str:
    """The name of the table after the statements that follow number `task`, up to number `last`
    (None: all); "" if one of them drops it.
    """
    queue = paths.queue
    nodes = [node for node in keeper.children(queue.root) if node.startswith("query-")]
    numbers = [sequence_number(node) for node in nodes]
    later = [
        queue.task(node).root
        for node, number in zip(nodes, numbers, strict=True)
        if task < number and (last is None or number <= last)
    ]
    for read in keeper.get_many(later):
        if read is not None:
            with suppress(RmtError):  # a statement that can't be read renames nothing
                name = renamed(name, parse(Task.decode(read[0]).query))
    return name


class DatabaseLog:
    """The log up to the last statement of a picture. It is read once, when it is first needed."""

    def __init__(self, keeper: LivingKeeper, paths: DatabasePaths, picture: Picture) -> None:
        self._keeper = keeper
        self._paths = paths
        self._picture = picture

    def knows(self, table: str) -> bool:
        """Whether the table's record has every ALTER that any replica has carried out."""
        return all(one.table != table or one.is_vain for one in self._untold)

    def left(self, replica: str) -> list[LoggedAlter]:
        """The ALTERs that are not in the picture, and that this replica has not finished."""
        return [one for one in self._untold if replica not in one.finished]

    def under_way(self, replica: str) -> list[tuple[str, str]]:
        """The ALTERs before the picture's end that are not in it yet because another replica has
        still to come to them, each with the first such replica.

        A replica whose server does not run counts as long as no replica has finished the ALTER:
        when it comes back it carries the ALTER out, but no replica would in the shards that have
        gone on without it.
        """
        if not self._untold:
            return []
        others = followers(self._keeper, self._paths, replica)
        found: list[tuple[str, str]] = []
        for alter in self._untold:
            left = [
                one
                for one in others
                if one.done < sequence_number(alter.node)
                and one.name not in alter.finished
                and (one.is_active or not alter.finished)
            ]
            found += [(alter.node, one.name) for one in left[:1]]
        return found

    def first_needed(self) -> int:
        """The number of the first statement that may still be needed: one that a running server has
        not come to, or an ALTER that its table's record does not have.
        """
        running = [
            one.done for one in followers(self._keeper, self._paths, "") if one.is_active
        ]
        untold = [sequence_number(one.node) for one in self._untold if not one.is_vain]
        return min([*untold, *(done + 1 for done in running), self._picture.last_task + 1])

    @cached_property
    def _untold(self) -> list[LoggedAlter]:
        """The ALTERs before the picture's end that the record of their table does not have, in
        order. The table may have another name since.
        """
        keeper, queue, picture = self._keeper, self._paths.queue, self._picture
        alters: dict[str, list[tuple[str, Task]]] = {}
        for node, task in tasks_in(keeper, queue):
            if sequence_number(node) > picture.last_task:
                break
            with suppress(RmtError):  # the error is reported when it is carried out
                parsed = parse(task.query)
                if isinstance(parsed, AlterTable):
                    alters.setdefault(parsed.table.name, []).append((node, task))
                else:
                    alters = {renamed(name, parsed): tasks for name, tasks in alters.items()}
        untold = sorted(
            (node, task.request_id, name)
            for name, tasks in alters.items()
            if name in picture.tables
            for node, task in tasks
            if picture.tables[name].task < sequence_number(node)
        )
        found = []
        noted = keeper.children_many([queue.task(node).finished for node, _, _ in untold])
        for (node, request_id, name), finished in zip(untold, noted, strict=True):
            names = finished or ()
            reads = keeper.get_many([queue.task(node).finished_on(one) for one in names])
            failed = [
                read is not None and bool(TaskOutcome.decode(read[0]).code) for read in reads
            ]
            is_vain = bool(failed) and all(failed)
            found.append(LoggedAlter(node, request_id, name, frozenset(names), is_vain))
        return found
