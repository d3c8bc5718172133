"""Operations cut into multis that ZooKeeper takes (docs/protocol.md on packets)."""

from collections.abc import Iterator, Sequence

from rmt_pipeline.protocol import limits
from rmt_pipeline.zookeeper.keeper import Create, Op, SetData


def batches(
    ops: Sequence[Op], *, bytes_max: int, ops_max: int = 0, bytes_before: int = 0
) -> Iterator[Sequence[Op]]:
    """`ops` in order, each batch of at most `bytes_max` bytes and `ops_max` operations (0: any
    number), but at least one. `bytes_before` are those of operations that are added to each.
    """
    start, size = 0, bytes_before
    for at, op in enumerate(ops):
        more = op_bytes(op)
        full = size + more > bytes_max or (ops_max and at - start >= ops_max)
        if full and at > start:
            yield ops[start:at]
            start, size = at, bytes_before
        size += more
    if start < len(ops):
        yield ops[start:]


def op_bytes(op: Op, frame: int = limits.OP_BYTES_OVERHEAD) -> int:
    """At most so many bytes of a packet."""
    data = len(op.data) if isinstance(op, Create | SetData) else 0
    return len(op.path.encode()) + data + frame
