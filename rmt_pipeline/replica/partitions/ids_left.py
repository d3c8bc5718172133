"""The ids and records of rows that a command on partitions takes away, or writes anew.

They are forgotten, or get the new names, in the multi of the command. Those of thousands of blocks
do not fit into it: that is done right after it, before the command is answered. Otherwise:

1. DROP PARTITION is answered, and no replica has carried it out yet. 2. The same rows are inserted.
Their ids name what is dropped: the insert is answered as a duplicate. 3. The drop is carried out,
and rows of which both were told that they are in the table are in no part.

If the process dies in between, nobody was told that the rows are gone. Each replica that carries
the entry out sees to it, before its own parts go (`work.drop`, `work.replace`): whoever wrote the
entry may be gone or lost, or live on without that process.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import RmtError, Unfinished
from rmt_pipeline.protocol.inserts.rows import Moved
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.forget import forget, what_to_forget_at_once, what_to_renumber
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper.batches import fit_together, op_bytes
from rmt_pipeline.zookeeper.keeper import Op

WRITTEN = "it is in the log and will be carried out"


def with_forgetting(
    replica: Replica, ops: Sequence[Op], dropped: Collection[PartName]
) -> tuple[list[Op], bool]:
    """Return the operations, followed by those that remove the ids and records of the dropped rows,
    if they fit into the same multi; and whether they do. Otherwise they are left.
    """
    left = limits.MULTI_BYTES_MAX - sum(map(op_bytes, ops))
    found = what_to_forget_at_once(replica, dropped, left)
    return [*ops, *(found or ())], found is not None


def with_renumbering(
    replica: Replica, ops: Sequence[Op], moved: Moved
) -> tuple[list[Op], bool]:
    """Do the same with those that give ids and records of rows that stay their new names."""
    together = [*ops, *(op for some in what_to_renumber(replica, moved) for op in some)]
    return (together, True) if fit_together(together) else (list(ops), False)


def forget_what_is_left(
    living: Callable[[], Replica], dropped: Collection[PartName], written: str = WRITTEN
) -> None:
    """Forget what was left of these dropped rows. Raises Unfinished."""
    if dropped:
        with before_it_is_answered(written):
            forget(living(), dropped)


@contextmanager
def before_it_is_answered(written: str = WRITTEN) -> Iterator[None]:
    """For what is done about ids when the command, or what is `written` of it, is in the log:
    raises Unfinished in place of any error.
    """
    try:
        yield
    except RmtError as error:
        raise Unfinished(
            f"{written}. Until it is carried out, an insert of rows that it takes may be answered "
            f"as a duplicate of them: {error}"
        ) from error
