"""Ephemeral nodes of one session that must be gone, although nobody knows whether they are.

A block number's lock and a claim hold others up for as long as their session lives:

1. A asks for a number. The connection breaks; the lock was made, and A never learns its name.
   (Or A gives a lock back, and the request is lost. Or something raises in between.)
2. The session goes on: it is that of all tables of the process, and it is not ended for one
   answer that did not come.
3. Merges of the partition wait for the lock until the process ends: for days, in a server.

So the session itself remembers what it left. Before the next thing that is done with it, by
whichever thread, the nodes are looked for and deleted. A session's requests are carried out in the
order in which they were made, and what an older connection of it still brings is refused: once a
later write is answered, the one without an answer has happened, or it never will.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import ReplicaRetired, RmtError
from rmt_pipeline.zookeeper.batches import batches
from rmt_pipeline.zookeeper.keeper import Check, Delete, RefusalKind, Refused

if TYPE_CHECKING:
    from rmt_pipeline.zookeeper.keeper import Keeper


@dataclass(frozen=True, slots=True)
class Stray:
    """The node at `path`; with `is_parent`, each node below it. Only those with `mark` in their
    data are meant: a name that may be used again, and a node whose name is not known, need one.
    """

    path: str
    mark: str = ""
    is_parent: bool = False

    def __post_init__(self) -> None:
        assert self.mark or not self.is_parent, "of many nodes a mark says which are meant"


class Strays:
    """Nodes that one session left behind, because the answer to their creation was lost, and that
    it has still to remove. Thread-safe.
    """

    def __init__(self, on_left: Callable[[], None] = lambda: None) -> None:
        """`on_left` is told when there is something to see to; it must not block."""
        self._on_left = on_left
        self._lock = threading.Lock()
        self._left: tuple[Stray, ...] = ()

    def __len__(self) -> int:
        return len(self._left)

    def leave(self, strays: Sequence[Stray]) -> None:
        """They must be gone, and there was no answer: they are seen to later."""
        with self._lock:
            self._left = tuple(dict.fromkeys([*self._left, *strays]))
        self._on_left()

    def settle(self, keeper: "Keeper") -> None:
        """Delete what was left; what gets no answer again stays for the next time. Who keeps the
        strays calls it before each request. Two threads do not settle the same at once.
        """
        if not self._left:
            return
        with self._lock:
            left, self._left = self._left, ()
        try:
            _delete(keeper, _found(keeper, left))
        except ReplicaRetired:
            return  # they are gone with the session
        except RmtError:
            self.leave(left)
        except BaseException:
            self.leave(left)
            raise


@contextmanager
def seen_to(keeper: "Keeper", strays: Sequence[Stray]) -> Iterator[None]:
    """Around the request that makes ephemeral nodes: when it ends without an answer, they will not
    stay. What was refused has made none.
    """
    try:
        yield
    except (Refused, ReplicaRetired):
        raise
    except BaseException:
        keeper.strays.leave(strays)
        raise


def give_back(keeper: "Keeper", strays: Sequence[Stray]) -> None:
    """Delete nodes of our own, now or as soon as ZooKeeper answers. One that is gone is fine."""
    assert not any(stray.is_parent for stray in strays), "ours have names"
    try:
        _delete(keeper, [stray.path for stray in strays])
    except ReplicaRetired:
        return
    except RmtError:
        keeper.strays.leave(strays)
    except BaseException:
        keeper.strays.leave(strays)
        raise


def _found(keeper: "Keeper", strays: Sequence[Stray]) -> list[str]:
    """The paths of those that are there. The check is the later write that is answered.

    What another session has made is none of ours, also when we know its name: a table that was
    dropped and created again counts its block numbers from the start.
    """
    paths: list[str] = []
    keeper.multi([Check("/")])
    parents = [stray for stray in strays if stray.is_parent]
    listed = keeper.children_many([stray.path for stray in parents])
    looked_at = [(stray.path, stray.mark) for stray in strays if not stray.is_parent]
    for stray, names in zip(parents, listed, strict=True):
        looked_at += [(f"{stray.path}/{name}", stray.mark) for name in names or ()]
    reads = keeper.get_many([path for path, _ in looked_at])
    for (path, mark), read in zip(looked_at, reads, strict=True):
        if (
            read is not None
            and mark.encode() in read[0]
            and read[1].ephemeral_owner == keeper.session_id
        ):
            paths.append(path)
    return list(dict.fromkeys(paths))


def _delete(keeper: "Keeper", paths: Sequence[str]) -> None:
    """All together; one by one when one of them is gone already. Raises what is no refusal."""
    for batch in batches([Delete(path) for path in paths], bytes_max=limits.MULTI_BYTES_MAX):
        try:
            keeper.multi(batch)
        except Refused:
            for result in keeper.multi_many([[op] for op in batch]):
                if isinstance(result, Exception) and not _is_gone(result):
                    raise result from None


def _is_gone(error: Exception) -> bool:
    return isinstance(error, Refused) and error.kind is RefusalKind.NO_NODE
