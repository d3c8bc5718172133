"""What each multi asserts, and what it does, exactly: nothing less, so that nobody acts on what is
not so any more; and nothing more, so that nobody is refused by what is none of his business.

A table in ZooKeeper in which the multi succeeds. Then everything that may have happened before it
comes, one by one: each node is written once more, each goes, and each that the multi is about to
make is there already. The multi is refused by those that are named here, and by no others.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pytest

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.mutations import FinishedMutations
from rmt_pipeline.protocol.nodes.records import Restoring
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.zookeeper import alter_transactions as altering
from rmt_pipeline.zookeeper import partition_transactions as partitions
from rmt_pipeline.zookeeper import restore_transactions as restoring
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.batches import op_bytes
from rmt_pipeline.zookeeper.keeper import Create, Delete, Op, Refused, SetData, absent
from rmt_pipeline.zookeeper.paths import TablePaths
from rmt_pipeline.zookeeper.snapshot import NotedMutations
from tests.support.fake_keeper import FakeZooKeeper, Node

T = TablePaths("/t")
R = T.replica("r1")
GET, OLD = [(R, b"get")], T.block("all_old")
OTHER = T.replica("r2")
LOCKS = [T.lock("all", number) for number in range(3)]
QUEUED, FREE = "queue-0000000000", "queue-0000000001"
Version = Callable[[str], int]


def part(name: str) -> PartName:
    return PartName.parse(name)


@dataclass(frozen=True, slots=True)
class Multi:
    """Paths are below the table, `r/` is the replica. `unchanged`: the version that was read is
    asserted. `there`: only that the node is there, as of all that is removed or written.
    `absent`: that it is not. `makes`, with =data, and ~ of what goes with the session; `writes`,
    with =data; `removes`. It comes `after` what is needed for it alone.
    """

    name: str
    ops: Callable[[Version], Sequence[Op]]
    unchanged: str = ""
    there: str = ""
    absent: str = ""
    makes: str = ""
    writes: str = ""
    removes: str = ""
    after: tuple[Op, ...] = ()


NOTED = NotedMutations(FinishedMutations("", frozenset({"0000000002"})), 0, 0)
NOTHING_BEYOND = NotedMutations(FinishedMutations(), 0, 0)
BLOCK = transactions.BlockCommit(part("all_2_2_0"), LOCKS[2], b"get", b"header", "all_new")
TEXTS = altering.AlterTexts(b"m", b"c", b"rec", b"alter", b"mut", LOCKS[2])
ALTERED = altering.AlterVersions(metadata=0, columns=0, alters=0, mutations=0, applied=0)
DROPPING = partitions.Dropping(R, QUEUED, 0)
SWAPS = [
    partitions.Swap(
        b"replace",
        LOCKS[0],
        (partitions.Arrival(part("all_1_1_0_7"), b"header", LOCKS[1], "all_new"),),
        (FREE,),
        (part("all_0_0_0"),),
    )
]


def allocated(**how: object) -> Callable[[Version], Sequence[Op]]:
    arguments = {"record_version": None, "holder": "h", "is_lost_version": 0, **how}
    return lambda v: (
        transactions.allocate_blocks(
            T, R, [("all", "all_new"), ("all", "")], "new", **arguments
        ).ops
    )


def committed(
    change: transactions.RecordChange | None, **how: object
) -> Callable[[Version], Sequence[Op]]:
    return lambda v: (
        transactions.commit_insert(T, R, [BLOCK], change, is_lost_version=0, **how).ops
    )


def changed(
    version: int | None, batch: tuple[int, bytes] | None, insert: str
) -> transactions.RecordChange:
    return transactions.RecordChange(insert, b"text", version, batch)


INSERTED = "log/log-0000000002=get blocks/all_new=all_2_2_0 r/parts/all_2_2_0=header"
NUMBERS = "~block_numbers/all/block-0000000003 ~block_numbers/all/block-0000000004"
LOCK_2 = "block_numbers/all/block-0000000002"

MULTIS = [
    Multi(
        "an insert takes its numbers",
        allocated(),
        unchanged="r/is_lost",
        there="r/is_active",
        absent="inserts/new blocks/all_new",
        makes=NUMBERS,
    ),
    Multi(
        "an insert that goes on takes its numbers",
        lambda v: (
            transactions.allocate_blocks(
                T, R, [("all", "")], "x", record_version=1, holder="h", is_lost_version=0
            ).ops
        ),
        unchanged="r/is_lost inserts/x",
        there="r/is_active",
        makes="~block_numbers/all/block-0000000003",
        after=(SetData(T.insert("x")),),
    ),
    Multi(
        "an insert without a name takes its numbers",
        lambda v: (
            transactions.allocate_blocks(
                T, R, [("all", "")], "", record_version=None, holder="h", is_lost_version=0
            ).ops
        ),
        unchanged="r/is_lost",
        there="r/is_active",
        makes="~block_numbers/all/block-0000000003",
    ),
    Multi(
        "an insert that waits alone for its quorum takes its numbers",
        allocated(is_alone=True),
        unchanged="r/is_lost",
        there="r/is_active",
        absent="inserts/new blocks/all_new quorum/status",
        makes=NUMBERS,
    ),
    Multi(
        "a partition's first block",
        lambda v: transactions.create_partition(T, R, "new"),
        there="r/host",
        makes="block_numbers/new",
        writes="block_numbers",
    ),
    Multi(
        "an insert is committed",
        committed(changed(None, None, "new")),
        unchanged="r/is_lost",
        there="r/is_active",
        makes=f"{INSERTED} inserts/new=text",
        removes=LOCK_2,
    ),
    Multi(
        "an insert without a name is committed",
        committed(None),
        unchanged="r/is_lost",
        there="r/is_active",
        makes=INSERTED,
        removes=LOCK_2,
    ),
    Multi(
        "an insert that goes on is committed",
        committed(changed(0, (1, b"batch"), "x")),
        unchanged="r/is_lost inserts/x",
        there="r/is_active",
        makes=f"{INSERTED} inserts/x/0000000001=batch",
        writes="inserts/x=text",
        removes=LOCK_2,
    ),
    Multi(
        "an insert whose other blocks are there is committed",
        committed(
            changed(None, None, "new"),
            there=[transactions.BlockThere("all_old", "all_0_0_0", 0, 0)],
        ),
        unchanged="r/is_lost blocks blocks/all_old",
        there="r/is_active",
        makes=f"{INSERTED} inserts/new=text",
        writes="blocks/all_old=all_0_0_0",
        removes=LOCK_2,
    ),
    Multi(
        "an insert that waits alone for its quorum is committed",
        committed(None, quorum_status=b"status"),
        unchanged="r/is_lost",
        there="r/is_active",
        makes=f"{INSERTED} quorum/status=status",
        writes="quorum",
        removes=LOCK_2,
    ),
    Multi(
        "a block that waits for its quorum is committed",
        lambda v: (
            transactions.commit_insert(
                T,
                R,
                [replace(BLOCK, block_id="", quorum=b"status")],
                None,
                is_lost_version=0,
            ).ops
        ),
        unchanged="r/is_lost",
        there="r/is_active",
        makes="log/log-0000000002=get r/parts/all_2_2_0=header "
        "quorum/parallel/all_2_2_0=status",
        removes=LOCK_2,
    ),
    Multi(
        "numbers are given back",
        lambda v: transactions.release_locks(LOCKS[1:]),
        removes=f"block_numbers/all/block-0000000001 {LOCK_2}",
    ),
    Multi(
        "the log is pulled",
        lambda v: transactions.pull(
            R, [b"e"], here=[part("all_0_0_0")], pointer=2, pointer_version=0, is_lost_version=0
        ),
        unchanged="r/is_lost r/log_pointer",
        there="r/is_active r/parts/all_0_0_0",
        makes="r/queue/queue-0000000002=e",
        writes="r/log_pointer=2",
    ),
    Multi(
        "entries are claimed",
        lambda v: transactions.claim(
            R, [(FREE, b"claim")], executing_version=0, is_lost_version=0
        ),
        unchanged="r/is_lost r/executing",
        there=f"r/queue/{FREE}",
        makes=f"~r/executing/{FREE}=claim",
        writes="r/executing",
    ),
    Multi(
        "a claim is confirmed",
        lambda v: transactions.confirm_claim(R, QUEUED, part("all_2_2_0")),
        there=f"r/executing/{QUEUED}",
        absent="r/parts/all_2_2_0",
    ),
    Multi(
        "an entry that needs no work goes",
        lambda v: transactions.finish_entry(R, FREE),
        removes=f"r/queue/{FREE}",
    ),
    Multi(
        "a part is published",
        lambda v: transactions.publish_part(
            R,
            QUEUED,
            part("all_2_2_0"),
            b"header",
            nobody_has=absent(OTHER.part("all_2_2_0")),
            counted=[SetData(f"{T.quorum_parallel}/all_2_2_0", b"two", 0)],
        ),
        unchanged="quorum/parallel/all_2_2_0",
        absent="replicas/r2/parts/all_2_2_0",
        makes="r/parts/all_2_2_0=header",
        writes="quorum/parallel/all_2_2_0=two",
        after=(Create(f"{T.quorum_parallel}/all_2_2_0"),),
        removes=f"r/queue/{QUEUED} r/executing/{QUEUED}",
    ),
    Multi(
        "a part is given up",
        lambda v: transactions.refetch_part(
            R, part("all_0_0_0"), b"get", is_lost_version=0, is_lost=b"0", noted=NOTED
        ),
        unchanged="r/is_lost r/mutation_pointer",
        makes="r/queue/queue-0000000002=get",
        writes="r/is_lost=0 r/mutation_pointer=",
        removes="r/parts/all_0_0_0 r/finished_mutations",
    ),
    Multi(
        "a part is given up, and no mutation was finished beyond the pointer",
        lambda v: transactions.refetch_part(
            R, part("all_0_0_0"), b"get", is_lost_version=0, is_lost=b"0", noted=NOTHING_BEYOND
        ),
        unchanged="r/is_lost r/mutation_pointer",
        makes="r/queue/queue-0000000002=get",
        writes="r/is_lost=0 r/mutation_pointer=",
        removes="r/parts/all_0_0_0",
    ),
    Multi(
        "a covered part is forgotten",
        lambda v: transactions.forget_covered(
            R, part("all_0_0_0"), part("all_0_1_1"), is_lost_version=0
        ),
        unchanged="r/is_lost",
        there="r/parts/all_0_1_1",
        removes="r/parts/all_0_0_0",
    ),
    Multi(
        "a merge is assigned",
        lambda v: transactions.assign(T, R, [b"merge"], log_version=0, is_lost_version=0),
        unchanged="log r/is_lost",
        there="r/is_active",
        makes="log/log-0000000002=merge",
        writes="log=",
    ),
    Multi("the log moves", lambda v: transactions.bump_log(T), writes="log="),
    Multi(
        "a mutation takes its numbers",
        lambda v: transactions.lock_partitions(T, ["all"], "h", version=v(T.block_numbers)),
        unchanged="block_numbers",
        makes="~block_numbers/all/block-0000000003",
    ),
    Multi(
        "numbers are taken in partitions that are known",
        lambda v: transactions.lock_partitions(T, ["all"], "h"),
        makes="~block_numbers/all/block-0000000003",
    ),
    Multi(
        "a command on partitions takes its numbers, if none came since",
        lambda v: transactions.lock_partitions(T, ["all"], "h", commands=0),
        unchanged="alter_partition_version",
        makes="~block_numbers/all/block-0000000003",
    ),
    Multi(
        "a mutation is written",
        lambda v: transactions.create_mutation(T, b"entry", 0, LOCKS[2]),
        unchanged="mutations",
        makes="mutations/0000000001=entry",
        writes="mutations=",
        removes=LOCK_2,
    ),
    Multi(
        "a mutation without numbers is written",
        lambda v: transactions.create_mutation(T, b"entry", 0, ""),
        unchanged="mutations",
        makes="mutations/0000000001=entry",
        writes="mutations=",
    ),
    Multi(
        "mutations are excluded",
        lambda v: transactions.bump_mutations(T, 0),
        unchanged="mutations",
        writes="mutations=",
    ),
    Multi(
        "a mutation is noted as finished",
        lambda v: transactions.note_finished(T, R, FinishedMutations("0000000001"), NOTED),
        unchanged="r/is_lost r/mutation_pointer",
        absent="restoring",
        writes="r/mutation_pointer=0000000001",
        removes="r/finished_mutations",
    ),
    Multi(
        "a mutation is noted as finished, and none was beyond the pointer",
        lambda v: transactions.note_finished(
            T, R, FinishedMutations("0000000001"), NOTHING_BEYOND
        ),
        unchanged="r/is_lost r/mutation_pointer",
        absent="restoring",
        writes="r/mutation_pointer=0000000001",
    ),
    Multi(
        "the first mutation beyond the pointer is noted as finished",
        lambda v: transactions.note_finished(
            T, R, FinishedMutations("0000000000", frozenset({"0000000003"})), NOTHING_BEYOND
        ),
        unchanged="r/is_lost r/mutation_pointer",
        absent="restoring",
        writes="r/mutation_pointer=0000000000",
        makes="r/finished_mutations",
        after=(Delete(R.finished_mutations),),
    ),
    Multi(
        "a mutation beyond the pointer is noted as finished, too",
        lambda v: transactions.note_finished(
            T, R, FinishedMutations("0000000000", frozenset({"0000000003"})), NOTED
        ),
        unchanged="r/is_lost r/mutation_pointer",
        absent="restoring",
        writes="r/mutation_pointer=0000000000 r/finished_mutations",
    ),
    Multi(
        "finished mutations go",
        lambda v: transactions.remove_mutations(T, ["0000000000"], v(T.replicas)),
        unchanged="replicas",
        removes="mutations/0000000000",
    ),
    Multi(
        "a replica is marked as lost",
        lambda v: transactions.mark_lost(R, v(R.host)),
        unchanged="r/host",
        writes="r/is_lost=1",
    ),
    Multi(
        "the log is trimmed",
        lambda v: transactions.trim_log(
            T,
            ["log-0000000000"],
            hosts=[("r2", v(OTHER.host))],
            replicas_version=v(T.replicas),
        ),
        unchanged="replicas replicas/r2/host",
        removes="log/log-0000000000",
    ),
    Multi(
        "ids go",
        lambda v: transactions.remove_ids(
            T.blocks, 0, transactions.remove_node(T.block("all_old"))
        ),
        unchanged="blocks",
        writes="blocks=",
        removes="blocks/all_old",
    ),
    Multi(
        "the record of an insert goes",
        lambda v: transactions.remove_insert(T, "x", 1, 0),
        unchanged="inserts/x",
        removes="inserts/x/0000000000 inserts/x",
    ),
    Multi(
        "a replica comes back",
        lambda v: transactions.activate(T.replica("r3"), b"who", b"address"),
        makes="~replicas/r3/is_active=who",
        writes="replicas/r3/host=address",
    ),
    Multi(
        "a replica is announced",
        lambda v: [transactions.announce_replica(T, "r9", v(T.replicas))],
        unchanged="replicas",
        writes="replicas",
    ),
    Multi(
        "partitions are dropped",
        lambda v: partitions.submit_drops(
            T, R, [partitions.LoggedDrop(b"drop", LOCKS[0])], version=0
        ),
        unchanged="alter_partition_version",
        there="r/is_active",
        makes="log/log-0000000002=drop",
        writes="alter_partition_version= log=",
        removes="block_numbers/all/block-0000000000",
    ),
    Multi(
        "parts come and go",
        lambda v: partitions.submit_swaps(
            T, R, SWAPS, version=0, log_version=0, is_lost_version=0
        ),
        unchanged="alter_partition_version log r/is_lost",
        there="r/is_active",
        makes="log/log-0000000002=replace r/parts/all_1_1_0_7=header "
        "blocks/all_new=all_1_1_0_7",
        writes="alter_partition_version= log=",
        removes="block_numbers/all/block-0000000000 block_numbers/all/block-0000000001 "
        f"r/queue/{FREE} r/parts/all_0_0_0",
    ),
    Multi(
        "parts come, and nothing goes for them",
        lambda v: partitions.submit_swaps(
            T,
            R,
            [
                partitions.Swap(
                    b"replace",
                    arrivals=(
                        partitions.Arrival(part("all_1_1_0_7"), b"header", LOCKS[1], ""),
                    ),
                )
            ],
            version=0,
            log_version=-1,
            is_lost_version=0,
        ),
        unchanged="alter_partition_version r/is_lost",
        there="r/is_active",
        makes="log/log-0000000002=replace r/parts/all_1_1_0_7=header",
        writes="alter_partition_version= log=",
        removes="block_numbers/all/block-0000000001",
    ),
    Multi(
        "an insert in flight is cancelled",
        lambda v: partitions.cancel_insert(LOCKS[2]),
        removes=LOCK_2,
    ),
    Multi(
        "a drop takes queue entries",
        lambda v: DROPPING.remove_entries([FREE]),
        unchanged="r/is_lost",
        there=f"r/executing/{QUEUED}",
        removes=f"r/queue/{FREE}",
    ),
    Multi(
        "a drop takes parts",
        lambda v: DROPPING.forget_parts([part("all_0_0_0")]),
        unchanged="r/is_lost",
        there=f"r/executing/{QUEUED}",
        removes="r/parts/all_0_0_0",
    ),
    Multi(
        "a drop ends",
        lambda v: DROPPING.finish([part("all_0_0_0")], [(part("all_2_2_0"), b"header")]),
        unchanged="r/is_lost",
        makes="r/parts/all_2_2_0=header",
        removes=f"r/queue/{QUEUED} r/executing/{QUEUED} r/parts/all_0_0_0",
    ),
    Multi(
        "an ALTER is submitted",
        lambda v: altering.submit_alter(T, R, TEXTS, ALTERED),
        unchanged="metadata columns alters mutations",
        there="r/is_active",
        makes="alters/0000000001=rec log/log-0000000002=alter mutations/0000000001=mut",
        writes="metadata=m columns=c alters= mutations=",
        removes=LOCK_2,
    ),
    Multi(
        "an ALTER that rewrites nothing is submitted",
        lambda v: altering.submit_alter(
            T, R, altering.AlterTexts(b"m", b"c", b"rec", b"alter", None), ALTERED
        ),
        unchanged="metadata columns alters mutations",
        there="r/is_active",
        makes="alters/0000000001=rec log/log-0000000002=alter",
        writes="metadata=m columns=c alters=",
    ),
    Multi(
        "an ALTER of a table without rows is submitted",
        lambda v: altering.submit_alter(
            T,
            R,
            altering.AlterTexts(b"m", b"c", b"rec", b"alter", None),
            replace(ALTERED, end=altering.LogEnd(2, 0)),
        ),
        unchanged="metadata columns alters mutations r/log_pointer",
        there="r/is_active",
        makes="alters/0000000001=rec log/log-0000000002=alter",
        writes="metadata=m columns=c alters=",
    ),
    Multi(
        "an ALTER is excluded",
        lambda v: altering.fence_alter(T, ALTERED),
        unchanged="alters",
        writes="alters=",
    ),
    Multi(
        "an ALTER is applied",
        lambda v: altering.applied_alter(R, FREE, metadata=b"m", columns=b"c", version=1),
        writes="r/metadata=m r/columns=c r/metadata_version=1",
        removes=f"r/queue/{FREE}",
    ),
    Multi(
        "a replica is made what its disk says",
        lambda v: restoring.reset_replica(R, metadata=b"m", columns=b"c", version=3, log=7),
        writes="r/is_lost=0 r/metadata=m r/columns=c r/metadata_version=3 r/log_pointer=7 "
        "r/mutation_pointer=",
    ),
    Multi(
        "a table is to be restored",
        lambda v: restoring.begin_again(
            T, ["r3"], ["r3", "r4"], log=7, replicas_version=v(T.replicas)
        ),
        unchanged="replicas",
        absent="replicas/r3/is_active restoring_lock",
        makes="restoring restoring/r3= restoring/r4=",
    ),
    Multi(
        "a table that is being restored is opened",
        lambda v: restoring.open_table(
            T, {"r1": 0, "r2": 1}, [R], GET, log=7, not_lost={R.is_lost: 0}, gone=[OLD]
        ),
        unchanged="restoring/r1 restoring/r2 r/is_lost",
        makes="r/queue/queue-0000000002=get",
        writes="r/is_lost=0 r/log_pointer=7 log=",
        removes="restoring restoring/r1 restoring/r2 restoring_lock blocks/all_old",
        after=(
            *(Create(path) for path in (T.restoring, T.restoring_lock)),
            *(Create(T.restoring_replica(name)) for name in ("r1", "r2")),
            SetData(T.restoring_replica("r2")),
        ),
    ),
    Multi(
        "numbers are skipped",
        lambda v: restoring.skip_numbers(T.partition("all"), T.lock_prefix("all"), 3, 2, 0),
        unchanged="block_numbers/all",
        writes="block_numbers/all=",
    ),
]


class Tree:
    """A table with two active replicas: `r1` has parts, one queue entry that it has claimed and one
    that it has not; there are numbers in flight, an insert's record, a mutation. And r3, whose
    server is away.
    """

    def __init__(self) -> None:
        self.zookeeper = FakeZooKeeper(_Still())
        self.keeper = self.zookeeper.connect()
        self.others = self.zookeeper.connect()
        make = self.keeper.multi
        make(transactions.create_table(T, "r1", b"", b""))
        for name in ("r1", "r2", "r3"):
            replica = T.replica(name)
            made = transactions.create_replica(
                replica,
                is_lost=False,
                metadata=b"",
                columns=b"",
                metadata_version=0,
                creator=b"",
                creation="",
            )
            make([*made, transactions.announce_replica(T, name, -1)])
            if name != "r3":
                make(transactions.activate(replica, b"", b""))
        make(transactions.create_partition(T, R, "all"))
        make(transactions.lock_partitions(T, ["all"] * len(LOCKS), "somebody"))
        make([Create(R.queue_prefix, b"", sequence=True) for _ in range(2)])
        make([Create(T.log_prefix, b"", sequence=True) for _ in range(2)])
        make([Create(R.claim(QUEUED), ephemeral=True)])
        make([Create(R.part(name)) for name in ("all_0_0_0", "all_1_1_0", "all_0_1_1")])
        make([Create(T.block("all_old"), b"all_0_0_0")])
        make([Create(T.insert("x")), Create(T.insert_batch("x", 0))])
        make([Create(f"{T.mutations}/", sequence=True), Create(R.finished_mutations)])
        self._made = self.nodes = dict(self.zookeeper.nodes)

    def again(self, multi: Multi) -> None:
        """As it is when the multi succeeds."""
        self.zookeeper.nodes.clear()
        self.zookeeper.nodes.update(self._made)
        if multi.after:
            self.keeper.multi(multi.after)
        self.nodes = dict(self.zookeeper.nodes)

    def version(self, path: str) -> int:
        return self.zookeeper.nodes[path].version

    def node(self, path: str) -> Node:
        return self.zookeeper.nodes[path]

    def meanwhile(self, new: Sequence[str]) -> Iterator[tuple[str, str, Op]]:
        """Everything that can happen to one node."""
        for path, node in self.nodes.items():
            if path.startswith(f"{T.root}/"):
                yield "written", path, SetData(path, node.data)
                if not node.children:
                    yield "removed", path, Delete(path)
        for path in new:
            if path not in self.zookeeper.nodes and path.rpartition("/")[0] in self.nodes:
                yield "made", path, Create(path)


class _Still:
    def now_s(self) -> float:
        return 1e9

    def monotonic_s(self) -> float:
        return 1e9

    def sleep_s(self, seconds: float) -> None:
        raise NotImplementedError


@pytest.fixture(scope="module")
def tree() -> Tree:
    return Tree()


@pytest.mark.parametrize("multi", MULTIS, ids=lambda multi: multi.name)
def test_a_multi_is_refused_by_what_it_depends_on_and_by_nothing_else(
    tree: Tree, multi: Multi
) -> None:
    unchanged, there, absent = _all(multi.unchanged), _all(multi.there), _all(multi.absent)
    needed = unchanged | there | _all(multi.removes) | _all(multi.writes)
    tree.again(multi)
    named = {op.path for op in multi.ops(tree.version) if _has_a_name(op)}
    new, made = sorted(named | absent), named & _all(multi.makes)
    wrong = []
    for what, path, change in tree.meanwhile(new):
        if what == "removed" and path not in needed and _has_below(new, path):
            continue  # the parent of what is made
        must = path in {"written": unchanged, "removed": needed, "made": made | absent}[what]
        tree.again(multi)
        ops = multi.ops(tree.version)
        tree.others.multi([change])
        try:
            tree.keeper.multi(ops)
            is_refused = False
        except Refused:
            is_refused = True
        if is_refused != must:
            wrong.append(f"{path} was {what}: {'refused' if is_refused else 'not refused'}")
    assert wrong == []


@pytest.mark.parametrize("multi", MULTIS, ids=lambda multi: multi.name)
def test_a_multi_does_all_that_it_is_for_and_nothing_else(tree: Tree, multi: Multi) -> None:
    tree.again(multi)
    tree.keeper.multi(multi.ops(tree.version))
    before, after = tree.nodes, dict(tree.zookeeper.nodes)
    made = {path for path in after if path not in before}
    written = {
        path for path in after if path in before and after[path].version != before[path].version
    }
    assert made == _all(multi.makes)
    assert {path for path in before if path not in after} == _all(multi.removes)
    assert written == _all(multi.writes)
    for word in f"{multi.makes} {multi.writes}".split():
        path, has_data, data = word.partition("=")
        node = tree.node(_path(path))
        assert bool(node.owner) == word.startswith("~"), f"{path} goes with the session"
        assert not has_data or node.data.decode() == data


def _all(words: str) -> set[str]:
    return {_path(word.partition("=")[0]) for word in words.split()}


def _path(word: str) -> str:
    word = word.removeprefix("~")
    return f"{R.root}/{word[2:]}" if word.startswith("r/") else f"{T.root}/{word}"


def _has_a_name(op: Op) -> bool:
    return isinstance(op, Create) and not op.sequence


def _has_below(paths: Sequence[str], parent: str) -> bool:
    return any(path.startswith(f"{parent}/") for path in paths)


def test_a_table_that_is_made_anew_is_restored_by_all_that_are_named_and_once() -> None:
    keeper = FakeZooKeeper(_Still()).connect()
    anew = restoring.begin_anew(T, "r1", ["r2", "r1"], metadata=b"m", columns=b"c")
    keeper.multi(anew)
    assert keeper.children(T.restoring) == ["r1", "r2"]
    assert Restoring.decode(keeper.get(T.restoring)[0]) == Restoring(0)
    assert (keeper.get(T.metadata)[0], keeper.get(T.columns)[0]) == (b"m", b"c")
    assert keeper.children(T.replicas) == keeper.children(T.log) == []
    with pytest.raises(Refused):
        keeper.multi(anew)


MADE_FOR_A_TABLE = """
metadata=m columns=c log blocks async_blocks inserts block_numbers nonincrement_block_numbers
leader_election leader_election/leader_election-0=all_(multiple_leaders_Ok)
temp temp/abandonable_lock-insert temp/abandonable_lock-other
replicas=last_added_replica:_r1 quorum quorum/parallel quorum/last_part quorum/failed_parts
mutations alters alter_partition_version pinned_part_uuids lost_part_count lost_parts
"""
MADE_FOR_A_REPLICA = """
host log_pointer queue parts flags is_lost={} metadata=m columns=c metadata_version=3
min_unprocessed_insert_time max_processed_insert_time mutation_pointer creator_info=me executing
attempts
"""


def _nodes(zookeeper: FakeZooKeeper, below: str) -> set[str]:
    return {
        path.removeprefix(f"{below}/")
        + (f"={node.data.decode().replace(' ', '_')}" if node.data else "")
        for path, node in zookeeper.nodes.items()
        if path.startswith(f"{below}/")
    }


@pytest.mark.parametrize("creation", ["", "uuid"])
@pytest.mark.parametrize("is_lost", [False, True])
def test_a_new_table_and_a_new_replica_have_these_nodes(is_lost: bool, creation: str) -> None:
    """Those of the original (§11.1), and ours: `inserts`, `executing`, `attempts`, `creation`."""
    zookeeper = FakeZooKeeper(_Still())
    keeper = zookeeper.connect()
    keeper.multi(transactions.create_table(T, "r1", b"m", b"c"))
    assert _nodes(zookeeper, T.root) == set(MADE_FOR_A_TABLE.split())
    keeper.multi(
        transactions.create_replica(
            R,
            is_lost=is_lost,
            metadata=b"m",
            columns=b"c",
            metadata_version=3,
            creator=b"me",
            creation=creation,
        )
    )
    made = set(MADE_FOR_A_REPLICA.format(int(is_lost)).split())
    created = {"creation", "creation/uuid"} if creation else set()
    assert _nodes(zookeeper, R.root) == made | created


def test_what_a_drop_deletes_at_once_fits_into_a_packet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "MULTI_BYTES_MAX", 3000)
    names = [f"queue-{number:010d}" for number in range(40)]
    groups = list(partitions.cut_deletions(names, R.queue_entry))
    assert [name for group in groups for name in group] == names
    sizes = [sum(map(op_bytes, DROPPING.remove_entries(group))) for group in groups]
    assert max(sizes) <= 3000
    one_more = op_bytes(Delete(R.queue_entry(names[0])))
    wasted = 2 * limits.OP_BYTES_OVERHEAD
    assert all(size + one_more + wasted > 3000 for size in sizes[:-1])
