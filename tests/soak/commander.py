"""A client of a soak that has a partition of its own, and gives commands on all of it: DROP, DETACH
and ATTACH, REPLACE from a second table, MOVE to that, FREEZE and UNFREEZE.
"""

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.sql.run.session import Session
from tests.soak.client import OWN, Client, rows_of

COMMANDS_SHARE = 0.15
ATTACHES_MAX = 20
SOURCE = "s"  # the second table, which is empty between two commands


class Commander(Client):
    """Nobody else has rows in its partition."""

    _is_source_empty = False  # an earlier life may have left something

    def turn(self) -> None:
        if self._rng.random() >= COMMANDS_SHARE:
            self._insert()
            return
        commands = (self._drop, self._come_back, self._replace, self._move, self._freeze)
        self._rng.choice(commands)(self._rng.choice(self._contexts))

    def _drop(self, context: ServerContext) -> None:
        self._take(lambda: context.table("t").drop_partitions([OWN]))

    def _move(self, context: ServerContext) -> None:
        if self._empty_source(context):
            self._is_source_empty = False
            self._take(lambda: context.table("t").move_partition(OWN, context.table(SOURCE)))

    def _replace(self, context: ServerContext) -> None:
        if not self._empty_source(context):
            return
        self._is_source_empty = False
        insert = self._new_insert()
        with suppress(RmtError):
            source = context.table(SOURCE)
            source.insert(rows_of(insert.keys))
            if self._take(lambda: context.table("t").replace_partition(OWN, source)):
                self._is_there(insert, context.server.name)

    def _come_back(self, _: ServerContext) -> None:
        """Always on the first server: what a DETACH leaves on another one is not attached there."""
        context, before = self._contexts[0], [*self._there]
        with suppress(RmtError), Session(context) as session:
            session.execute("SYSTEM SYNC REPLICA t")  # else it detaches less than is there
            table = context.table("t")
            taken = partial(table.drop_partitions, [OWN], detach=True)
            if not self._take(taken, is_for_good=False) or not before:
                return
            for _ in range(ATTACHES_MAX):
                with suppress(RmtError):
                    parts = table.attach(OWN).parts
                    break
                time.sleep(self._rng.uniform(0.0, 0.5))
            else:
                return
            rows = sum(table.store.manifest(part).rows for part in parts)
            if rows != sum(len(insert.keys) for insert in before):
                return  # a broken part stays detached, and one from before comes, too
            for insert in before:
                self._recorder.write(replace(insert, outcome="back"))
            self._there = [replace(insert, outcome="back") for insert in before]

    def _freeze(self, context: ServerContext) -> None:
        name = f"{self._number}-{time.time_ns()}"
        with suppress(RmtError):
            context.table("t").freeze(OWN, name=name)
            context.table("t").unfreeze(name)

    def _empty_source(self, context: ServerContext) -> bool:
        """Whether the second table is known to be empty."""
        with suppress(RmtError):
            if not self._is_source_empty:
                context.table(SOURCE).drop_partitions([OWN])
                self._is_source_empty = True
        return self._is_source_empty

    def _take(self, command: Callable[[], object], *, is_for_good: bool = True) -> bool:
        """A command that takes all of the partition. Without an answer it may be there or not."""
        taken, self._there = self._there, []
        for insert in taken:
            self._recorder.write(replace(insert, outcome="deleting"))
        try:
            command()
        except RmtError as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            return False
        for insert in taken if is_for_good else ():
            self._recorder.write(replace(insert, outcome="deleted"))
        return True
