"""Strays: ephemeral nodes that a session may have left behind, and that have to be deleted.

The lock of a block number and a claim make others wait for as long as their session lives:

1. An insert asks for a block number. The connection breaks: the lock was created, and the insert
   never learns its name. (Or it gives a lock back, and the request is lost. Or an exception is
   raised in between.)
2. The session goes on: all tables of the process use it, and it is not ended because of one answer
   that did not come.
3. Merges of the partition wait for the lock until the process ends: for days, in a server.

So the session remembers the nodes that it may have left. Before the next request of any thread
they are looked for and deleted. ZooKeeper carries out a session's requests in the order in which
they were sent, and refuses what an older connection of the session still brings. So once a later
write is answered, the write without an answer has been carried out, or never will be.
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
    """The node at `path`, or with `is_parent` each node below it, if it has `mark` in its data.

    A mark is needed if the name may be used again, or is not known: another thread may use it while
    the stray is looked for.
    """

    path: str
    mark: str = ""
    is_parent: bool = False

    def __post_init__(self) -> None:
        assert self.mark or not self.is_parent, "of many nodes a mark says which are meant"


class Strays:
    """The strays of one session: nodes that it has still to delete, because the answer to their
    creation or deletion was lost. Thread-safe.
    """

    def __init__(self, on_left: Callable[[], None] = lambda: None) -> None:
        """`on_left` is called whenever strays are added; it must not block."""
        self._on_left = on_left
        self._lock = threading.Lock()
        self._left: tuple[Stray, ...] = ()
        self._marks = 0

    def __len__(self) -> int:
        return len(self._left)

    def marked(self, path: str, session_id: int) -> Stray:
        """A node that this session is about to create, with a mark for its data that it gives to no
        other node.
        """
        with self._lock:
            self._marks += 1
            return Stray(path, f"{session_id:#x}.{self._marks}.")

    def leave(self, strays: Sequence[Stray]) -> None:
        """Remember these nodes, to be deleted by `settle`."""
        with self._lock:
            self._left = tuple(dict.fromkeys([*self._left, *strays]))
        self._on_left()

    def settle(self, keeper: "Keeper") -> None:
        """Delete the strays that there are; if there is no answer, they are kept for the next time.

        A keeper calls this before each request. Two threads never settle the same strays at once: a
        thread that comes while another one settles them does not wait for it.
        """
        if not self._left:
            return
        with self._lock:
            left, self._left = self._left, ()
        try:
            _delete(keeper, _found(keeper, left))
        except ReplicaRetired:
            return  # the nodes have gone with the session
        except RmtError:
            self.leave(left)
        except BaseException:
            self.leave(left)
            raise


@contextmanager
def seen_to(keeper: "Keeper", strays: Sequence[Stray]) -> Iterator[None]:
    """A context for a request that creates ephemeral nodes: if it ends without an answer, they are
    remembered as strays. A request that was refused has created none.
    """
    try:
        yield
    except (Refused, ReplicaRetired):
        raise
    except BaseException:
        keeper.strays.leave(strays)
        raise


def give_back(keeper: "Keeper", strays: Sequence[Stray]) -> None:
    """Delete nodes that this session has created, now, or as soon as ZooKeeper answers. A node that
    is gone already is no error.
    """
    assert not any(stray.is_parent for stray in strays), "ours have names"
    try:
        _delete(keeper, [Delete(stray.path) for stray in strays])
    except ReplicaRetired:
        return
    except RmtError:
        keeper.strays.leave(strays)
    except BaseException:
        keeper.strays.leave(strays)
        raise


def _found(keeper: "Keeper", strays: Sequence[Stray]) -> list[Delete]:
    """The deletions of those strays that exist. The multi with a Check is the later write whose
    answer proves that the earlier ones are settled.

    A node that another session has created is not ours, even if its name is that of a stray: a
    table that was dropped and created again counts its block numbers from the start. Nor is one a
    stray any more that has got another mark since (`SetData`), and with that another version.
    """
    found: dict[str, Delete] = {}
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
            found[path] = Delete(path, read[1].version)
    return list(found.values())


def _delete(keeper: "Keeper", deletions: Sequence[Delete]) -> None:
    """Delete these nodes together, or one by one if one of them is gone already, or was changed.
    Raises any other error.
    """
    for batch in batches(deletions, bytes_max=limits.MULTI_BYTES_MAX):
        try:
            keeper.multi(batch)
        except Refused:
            for result in keeper.multi_many([[op] for op in batch]):
                if isinstance(result, Exception) and not _is_gone(result):
                    raise result from None


def _is_gone(error: Exception) -> bool:
    gone = (RefusalKind.NO_NODE, RefusalKind.BAD_VERSION)
    return isinstance(error, Refused) and error.kind in gone
