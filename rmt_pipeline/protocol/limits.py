"""The limits of the system that users can't change, and how they depend on each other.

Sizes are in bytes. Limits that a user may change are in `settings`.
"""

PACKET_BYTES_MAX = 1_048_575  # ZooKeeper's jute.maxbuffer: it drops the connection for more
MULTI_BYTES_MAX = 768 * 1024
MULTI_OPS_MAX = 100  # for clean-up and finishing entries; larger multis only block others
OP_BYTES_OVERHEAD = 256  # an operation's path and frame, besides its data
OP_FRAME_BYTES = 96  # an operation's header, lengths, access list, and the chroot of its path
NODE_BYTES_MAX = 900_000  # one node's data; an ALTER of a very wide table comes near

INSERT_BYTES_MAX = MULTI_BYTES_MAX  # of one commit, which has whole partitions, at least one

MERGE_NAMES_BYTES_MAX = MULTI_BYTES_MAX // 2  # of the parts that one MERGE_PARTS entry merges
MUTATIONS_PER_MULTI_MAX = 500  # MUTATE_PART entries that one multi assigns
LOG_ENTRIES_PER_PULL_MAX = 100  # spec §3: 1, doubling to this
ENTRIES_PER_STEP_MAX = 1000  # entries chosen in one look at the queue
ENTRIES_PER_CLAIM_MAX = 512  # entries claimed in one multi
CLAIM_BYTES_MAX = 1024  # of one claim, but for a REPLACE_RANGE's, which names all its parts

FETCHES_MAX = 16  # fetches of one replica at the same time (background_fetches_pool_size)
FETCHES_CLAIMED_MAX = 128  # running or next in line; small parts are published together


def leaving_some(slots: int) -> int:
    """How many of the slots for fetches the fetches of lost or cloned parts may take, at least one.
    The others are left for newly inserted parts.
    """
    return max(1, slots * 3 // 4)


MERGES_MAX = 32  # merges and mutations (background_pool_size 16, times 2)
SMALL_MERGE_BYTES = 8 << 20  # sum of the sources; smaller merges share a job
SMALL_MUTATION_BYTES = 1 << 20  # of a part that is mutated together with many others
SMALL_MUTATIONS_PER_SLOT = 64

CREATE_TABLE_ROUNDS_MAX = 1000
PUBLISH_ROUNDS_MAX = 10
INSERT_READ_ROUNDS_MAX = 100
CLONE_ROUNDS_MAX = 100
LOOK_ROUNDS_MAX = 10  # reads of nodes that another process changes meanwhile
OPTIMIZE_ROUNDS_MAX = 10  # spec §6.7: tries while others assign to the log first
FORGET_ROUNDS_MAX = 100  # tries to remove ids and records that others change meanwhile
DROP_ROUNDS_MAX = 1000  # spec §9.2: tries while other commands on partitions come first
DROPS_PER_MULTI_MAX = 500  # partitions that one multi drops

CLEAN_UP_OPS_PER_MULTI_MAX = 400  # spec §10.2

assert MULTI_BYTES_MAX < PACKET_BYTES_MAX, "a multi fits into a packet"
assert NODE_BYTES_MAX + OP_BYTES_OVERHEAD < PACKET_BYTES_MAX, "so does one large node"
assert MULTI_BYTES_MAX <= NODE_BYTES_MAX, "the record of what a multi commits is one node"
assert MULTI_OPS_MAX * OP_BYTES_OVERHEAD <= MULTI_BYTES_MAX
assert CLEAN_UP_OPS_PER_MULTI_MAX * OP_BYTES_OVERHEAD <= MULTI_BYTES_MAX
assert ENTRIES_PER_CLAIM_MAX * (CLAIM_BYTES_MAX + OP_BYTES_OVERHEAD) <= MULTI_BYTES_MAX
assert ENTRIES_PER_CLAIM_MAX <= ENTRIES_PER_STEP_MAX
assert FETCHES_MAX <= FETCHES_CLAIMED_MAX <= ENTRIES_PER_CLAIM_MAX, (
    "one claim can fill the slots"
)
assert MERGES_MAX <= ENTRIES_PER_CLAIM_MAX
assert ENTRIES_PER_CLAIM_MAX < MERGES_MAX * SMALL_MUTATIONS_PER_SLOT
