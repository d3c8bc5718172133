"""Ids of blocks and of inserts, by which a retry of an insert is recognised (spec §2.3,
design §5).

An id is a znode's name. A partition id never has an underscore in it, so the first underscore of a
block id ends the partition, and the ids of a partition are found by their prefix.
"""

import hashlib

from rmt_pipeline.protocol.parts.name import PartName

HASH_MAX = 2**128 - 1
_HALF = 2**64 - 1
BY_ROWS = "rows"
"""Stands in a part for the id of an insert that is identified by its rows: their sum, and so the
id, is known only after the parts are written.
"""


def block_id(partition_id: str, content_hash: int) -> str:
    """`<partition>_<w0>_<w1>`: the low and the high 64 bits of a 128-bit hash, in decimal.

    The hash is over the logical columns of the sorted block, so the same rows give the same id
    whatever wrote the file (claim P6).
    """
    assert 0 <= content_hash <= HASH_MAX
    assert partition_id, "a partition id is never empty"
    assert "_" not in partition_id, "the separator may not appear in a partition id"
    return f"{partition_id}_{content_hash & _HALF}_{content_hash >> 64}"


def token_block_id(partition_id: str, token: str, ordinal: int) -> str:
    """The id of the `ordinal`-th block of an insert that its caller named `token`.

    One insert has several blocks, so the ordinal (from 0, over blocks and partitions) is part
    of what is hashed. Its length is fixed by the separator: no two (token, ordinal) meet.
    """
    assert ordinal >= 0
    return block_id(partition_id, _hash128(f"{ordinal}:{token}"))


def completing_block_id(partition_id: str, token: str, ordinal: int, version: int) -> str:
    """The id of a block that a retry of an insert with a token inserts because rows of its
    partition were lost. `version` is the ZooKeeper version of the insert's record at that time. No
    `token_block_id` equals it: what is hashed there begins with the ordinal.
    """
    assert ordinal >= 0
    return block_id(partition_id, _hash128(f"again:{version}:{ordinal}:{token}"))


def attach_block_id(part: PartName, checksum: str, attempt: str = "") -> str:
    """The id of a detached part that is attached, so that the same part is attached once. It has
    the part's name in it, so two parts of equal rows can both be attached. No id by hash equals it.
    An ATTACH without deduplication gives its `attempt`, a name that no other one has: so its own
    parts are found, and no others are taken for them.
    """
    return f"{part.partition}_attach_{part}_{checksum}" + (f"_{attempt}" if attempt else "")


def from_table_block_id(partition_id: str, root: str, name: str, checksum: str) -> str:
    """The id of a part that is attached from another table, so that it is attached once: `root` is
    that table's path in ZooKeeper, `name` and `checksum` are the part's.
    """
    return f"{partition_id}_replace_from_{_hash128(f'{root}:{name}:{checksum}'):032x}"


def insert_id_of_rows(row_hash: int, rows: int) -> str:
    """The id of an insert without a token, from the order-free sum of its rows' hashes.

    The number of rows is in it too, so that an empty insert and one whose hashes happen to add
    up to zero differ.
    """
    assert 0 <= row_hash <= HASH_MAX
    assert rows >= 0
    return f"rows-{row_hash:032x}-{rows}"


def insert_id_of_token(token: str) -> str:
    """The id of an insert that its caller named. Its prefix differs from that of an id by rows."""
    assert token, "an empty token means that there is none"
    return f"token-{_hash128(token):032x}"


def insert_id_of_parts(token: str, *, deduplicate: bool) -> str:
    """What the parts of an insert name as its id; "" if the insert is not deduplicated."""
    if not deduplicate:
        return ""
    return insert_id_of_token(token) if token else BY_ROWS


REPLACEMENT = "replace-"


def replacement_id(token: str, target: str) -> str:
    """The id of a replacement of `target` that its caller named. Each target gives another id."""
    assert token, "an empty token means that there is none"
    return f"{REPLACEMENT}{_hash128(f'{target}:{token}'):032x}"


def _hash128(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")
