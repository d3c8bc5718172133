"""Who does what: clients that insert, and ask again when they are not sure; readers; operators who
optimize, mutate, kill mutations and clean up; and what happens to machines.
"""

import contextlib
from collections.abc import Callable, Collection, Sequence

from rmt_pipeline.protocol.errors import Corruption, MissingPart
from rmt_pipeline.protocol.inserts.ids import insert_id_of_parts
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.assign.merges import Assigned, optimize_partition, select_and_assign
from rmt_pipeline.replica.insert.result import InsertResult, OtherBlocks
from rmt_pipeline.replica.mutations.mutations import (
    UnknownMutation,
    create_mutation,
    kill_mutation,
)
from rmt_pipeline.replica.mutations.request import wait_as_asked
from rmt_pipeline.replica.reading import ActivePart
from rmt_pipeline.replica.upkeep.check import check_part
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.store.hashes.checksums import hash_hex
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.zookeeper.snapshot import active_parts
from tests.simulation import keeping
from tests.simulation.altering import add_column, alter, drop_column
from tests.simulation.between import FORMS, WAITS, Tables
from tests.simulation.dropping import WAITS as DROP_WAITS
from tests.simulation.dropping import drawn, drop
from tests.simulation.expiring import TTLS, Expiry, deduplicate, modify_ttl
from tests.simulation.ledger import SUFFIX, Change, ClientInsert, Ledger, Read, answered_of
from tests.simulation.removing import remove_some
from tests.simulation.replacing import put, put_beside
from tests.simulation.restoring import restore_some
from tests.simulation.several import PATIENCE_S, Several
from tests.simulation.size import Size
from tests.simulation.undoing import undo
from tests.support.cluster import TABLE, Cluster, Context, SimWaker, Site
from tests.support.sim_rows import stage_rows
from tests.support.world import Host, Process, World

QUORUM_TIMEOUT_MS = 2000
SHARES = 0.2  # of inserts without a token have a block of another one
SKEW_S = (-3600.0, 0.0, 5.0, 3600.0)


WAITS_FOR_MUTATION_S = 20.0
TOGETHER = 3  # of so many inserts one is under way beside others, in one process
_AT_ONCE = {"broken_parts_wait_ms": 0}


class Workload:
    """Fills a world with clients. Their own machine never fails: it is where truth is kept."""

    def __init__(
        self, cluster: Cluster, ledger: Ledger, size: Size, tables: Tables | None = None
    ) -> None:
        self._cluster = cluster
        self._world: World = cluster.world
        self._rng = cluster.world.rng
        self._ledger = ledger
        self._size = size
        self._tables = tables
        self._several: dict[str, Several] = {}
        self._desk = Host("clients", cluster.world.hosts["h1"].disk, [0.0])
        self._world.everybody.append(self._desk)

    def begin(self) -> None:
        for number in range(self._size.clients):
            self._spawn(f"client {number}", self._insert_some)
        self._spawn("reader", lambda: self._again_and_again("read", self._read))
        self._spawn("operator", lambda: self._again_and_again("optimize", self._optimize))
        self._spawn("cleaner", lambda: self._again_and_again("clean up", clean_up))
        self._spawn("time", self._set_clocks)
        size = self._size
        for some, name, run in (
            (size.mutations, "statements", self._mutate_some),
            (size.alters, "alters", self._alter_some),
            (size.drops, "drops", self._drop_some),
            (size.swaps, "swaps", self._swap_some),
            (size.keepings, "keepings", self._keep_some),
            (size.removals, "removals", self._removals),
            (size.restores, "restores", self._restores),
            (size.undos, "undos", self._undo_some),
            (size.copies, "copies", self._copy_some),
            (size.expiries, "expiries", self._expire_some),
        ):
            if some:
                self._spawn(name, run)
        if self._tables is not None:
            self._spawn("between", lambda: self._send_some(self._tables))
        if self._size.losses:
            self._spawn("checker", lambda: self._again_and_again("check", check_parts))
        if self._size.outages + self._size.losses + self._size.vanishings:
            self._spawn("misfortune", self._have_bad_luck)
        for site in list(self._cluster.sites.values())[
            len(self._cluster.sites) - self._size.newcomers :
        ]:
            self._spawn(f"newcomer {site.replica}", lambda site=site: self._join(site))

    def _spawn(self, name: str, run: Callable[[], None]) -> None:
        process = self._world.start_process(self._desk, name)
        self._ledger.clients += 1

        def until_done() -> None:
            run()
            self._ledger.clients -= 1
            self._world.end_process(process, kill_others=True)

        process.spawn(until_done)

    def _somewhere(self) -> Site:
        """A host that has its replica; one that is switched off only when all are."""
        everywhere = list(self._cluster.sites.values())
        sites = [site for site in everywhere if not site.is_out] or everywhere
        up = [site for site in sites if not self._cluster.is_down(site)]
        return self._rng.choice(up or sites)

    def _think(self) -> None:
        self._world.sleep_s(self._rng.choice((0.0, 0.01, 0.1)))

    # --- inserts ---

    def _insert_some(self) -> None:
        for _ in range(self._size.inserts_each):
            self._think()
            self._insert(self._new_insert())

    def _new_insert(self) -> ClientInsert:
        rng, number = self._rng, len(self._ledger.inserts)
        partitions = rng.sample(
            "abc"[: self._size.partitions], rng.randint(1, self._size.partitions)
        )
        insert = ClientInsert(
            number=number,
            rows={
                partition: [
                    f"{number:03}.{partition}.{row}"
                    for row in range(rng.randint(1, self._size.rows_max))
                ]
                for partition in sorted(partitions)
            },
            token=f"token {number}" if rng.random() < 0.4 else "",
            gives_up=rng.random() < 0.15,
        )
        if rng.random() < SHARES and not insert.token and not self._size.restores:
            self._share(insert)
        if self._size.quorums:
            insert.quorum = rng.choice((0, 2, 2, self._size.hosts - self._size.newcomers))
            insert.is_parallel = rng.random() < 0.7
        self._ledger.inserts.append(insert)
        return insert

    def _share(self, insert: ClientInsert) -> None:
        """One of its blocks is a block of an earlier insert: the ids of blocks keep it out."""
        alone = [
            (other, partition, rows)
            for other in self._ledger.inserts
            for partition, rows in other.rows.items()
            if len(rows) == 1 and not other.token
        ]
        if alone:
            other, partition, rows = self._rng.choice(alone)
            insert.rows = dict(sorted({**insert.rows, partition: list(rows)}.items()))
            other.shared.update(rows)
            insert.shared.update(rows)

    def spawn_insert(self, insert: ClientInsert, *, at: Site) -> None:
        """One client with one insert, which asks at `at` first."""
        self._ledger.inserts.append(insert)
        self._spawn(f"client of {insert}", lambda: self._insert(insert, at))

    def _insert(self, insert: ClientInsert, first: Site | None = None) -> None:
        """Ask until there is an answer; sometimes once more after it."""
        waker = SimWaker(self._world)
        while not insert.is_answered:
            self._attempt(insert, first or self._somewhere(), waker)
            first = None
            waker.wait_s(PATIENCE_S)
            if insert.gives_up:
                break
            self._think()
        if self._rng.random() < 0.2 and insert.is_answered:
            self._attempt(insert, self._somewhere(), waker)
            waker.wait_s(PATIENCE_S)
        insert.is_over = True

    def _attempt(self, insert: ClientInsert, site: Site, waker: SimWaker) -> None:
        """One process that inserts. Blocks are cut anew each time: when some of an earlier cut are
        lost, and others are in, another cut is refused, until one has what is in.
        """
        insert.attempts += 1
        blocks = [
            (partition, block)
            for partition, rows in insert.rows.items()
            for block in self._cut(rows, insert.block_rows_max)
        ]

        def run(context: Context) -> None:
            ledger = self._ledger
            age, removed, dropped = ledger.age, ledger.removed, set(ledger.dropped_by)
            restored = ledger.restored
            # What a condition takes out stays known (`ReplaceRange.keeps_ids`).
            stays = {*ledger.unanswered, *ledger.kept}
            gone = {one for one in dropped if ledger.dropped_by[one] not in stays}
            staged: list[StagedPart] = []
            created_s = int(context.clock.now_s())
            insert_id = insert_id_of_parts(insert.token, deduplicate=True)
            for partition, rows in blocks:
                part = stage_rows(
                    context.store,
                    partition,
                    rows,
                    created_s=created_s,
                    insert_id=insert_id,
                    definition=context.definition,
                )
                staged.append(part)
            settings = QuerySettings(
                insert_quorum=str(insert.quorum),
                insert_quorum_parallel=insert.is_parallel,
                insert_quorum_timeout=QUORUM_TIMEOUT_MS,
            )
            try:
                result = context.table().commit(staged, token=insert.token, settings=settings)
            except OtherBlocks:
                if age == ledger.age:
                    self._require_in_part(insert)
                raise
            if removed == ledger.removed:
                self._require_on_enough(insert, result, gone)
            if (age, restored) == (ledger.age, ledger.restored):
                for partition, rows in insert.rows.items():
                    # A record keeps its insert out until its last block in a partition is dropped.
                    its_blocks = {block for row in rows for block in ledger.blocks[row]}
                    assert not gone.issuperset(its_blocks), (
                        f"{insert} is answered, and what it had in {partition} was dropped before "
                        "it was asked for"
                    )
            (insert.answers if age == ledger.age else insert.answers_before).append(result)
            self._world.note(str(insert), "answered", result.words())
            waker.wake()

        name = f"insert {insert.number}.{insert.attempts}"
        if self._size.is_crowded or insert.number % TOGETHER == 0:
            process = self._beside_others(site, name, run, waker)
        else:
            process = self._cluster.spawn(site, name, run)
        process.on_end.append(waker.wake)

    def _beside_others(
        self, site: Site, name: str, run: Callable[[Context], None], waker: SimWaker
    ) -> Process:
        """In a process of the host in which others insert, with one session; in a new one if there
        is none. It ends with the last of them.
        """
        several = self._several.get(site.replica)
        if several is None or not several.is_open:
            several = self._several[site.replica] = Several(self._world)
            several.process = self._cluster.spawn(site, f"{name} and others", several.wait)
        several.begin(run, waker)
        return several.process

    def _require_in_part(self, insert: ClientInsert) -> None:
        """P37. Only what has lost some of its rows, and has others, is refused for its blocks."""
        ledger = self._ledger
        gone = [
            block
            for row in insert.all_rows()
            for block in ledger.blocks.get(row, ())
            if block in ledger.failed | ledger.lost
        ]
        assert gone, f"{insert} is refused for how it is cut, and none of its blocks was lost"

    def _require_on_enough(
        self, insert: ClientInsert, result: InsertResult, before: Collection[PartName]
    ) -> None:
        """P41. What is acknowledged with a quorum of n is on n replicas, unless it was dropped, or
        the replica that alone had it, or a disk broke, or a replica came too late and clones
        another. Since the answered parts were dropped another try may have inserted the rows again:
        that one has its own answer. What was dropped `before` this try began it did not find; but
        it may have found what a drop that was not answered had taken.
        """
        ledger, nodes = self._ledger, self._world.zookeeper.nodes
        replicas = [TABLE.replica(site.replica) for site in self._cluster.sites.values()]
        there = [paths for paths in replicas if paths.is_lost in nodes]
        if ledger.lost_parts or any(nodes[paths.is_lost].data == b"1" for paths in there):
            return
        gone = ledger.dropped_by.keys() | ledger.alone
        for row in insert.all_rows():
            blocks = answered_of(result, ledger.blocks[row], before)
            if any(block in gone for block in blocks):
                continue
            holders = {
                block: [
                    paths.name
                    for paths in there
                    if any(
                        PartName.parse(name).contains(block)
                        for name in nodes[paths.parts].children
                    )
                ]
                for block in blocks
            }
            assert any(len(names) >= insert.quorum for names in holders.values()), (
                f"{insert} is answered with a quorum of {insert.quorum}, and the replicas that "
                f"have what it may be about are {holders}"
            )

    def _cut(self, rows: Sequence[str], rows_max: int) -> list[list[str]]:
        if rows_max:
            return [list(rows[at : at + rows_max]) for at in range(0, len(rows), rows_max)]
        if len(rows) == 1 or self._rng.random() < 0.5:
            return [list(rows)]
        where = self._rng.randint(1, len(rows) - 1)
        return [list(rows[:where]), *self._cut(rows[where:], rows_max)]

    # --- others ---

    def _again_and_again(self, name: str, run: Callable[[Context], None]) -> None:
        pause_s = self._rng.choice((0.03, 0.1, 0.5))
        for _ in range(10):
            self._world.sleep_s(self._rng.uniform(0.0, pause_s))
            if self._world.is_calm:
                return
            self._cluster.spawn(self._somewhere(), name, run)

    def _read(self, context: Context) -> None:
        site, drops = context.site, context.site.drops
        try:
            with context.table().snapshot(_AT_ONCE) as snapshot:
                if drops != site.drops:
                    return  # its files may be gone: nobody would be told of rows, but of that
                if any(self._has_broken(site, part) for part in snapshot.parts):
                    return  # since it was compared: that nobody can notice
                rows = [row for part in snapshot.parts for row in site.rows(part.name)]
        except Corruption as error:
            may_miss = isinstance(error, MissingPart) and site.has_left_parts
            is_broken = self._ledger.lost_parts or self._world.reads_failed
            if not (is_broken or drops != site.drops or may_miss):
                raise
            return  # the reader was told
        self._ledger.reads.append(Read(context.site.replica, rows))

    def _has_broken(self, site: Site, part: ActivePart) -> bool:
        for file in part.manifest.files:
            data = site.host.disk.peek(f"{site.path(part.name)}/{file.name}")
            if data is None or hash_hex(data) != file.hash:
                assert str(part.name) in self._ledger.hit, f"{part.name} is read, and not whole"
                return True
        return False

    def _optimize(self, context: Context) -> None:
        replica = context.replica()
        if self._rng.random() < 0.3:
            outcome = select_and_assign(replica, aggressive=True)
        else:
            partition = self._rng.choice("abc"[: self._size.partitions])
            outcome = optimize_partition(
                replica, partition, final=self._rng.random() < 0.5, skip_merged=False
            )
        if isinstance(outcome, Assigned):
            self._ledger.assigned += 1

    # --- mutations ---

    def _mutate_some(self) -> None:
        for number in range(self._size.mutations):
            self._world.sleep_s(self._rng.uniform(0.0, 1.0))
            if self._world.is_calm:
                return
            self.spawn_mutation(
                self._drawn_change(number),
                at=self._somewhere(),
                partitions=self._drawn_partitions(),
            )
            if self._rng.random() < 0.4 and not self._size.copies:
                self._until_some_part_has_it()
                self._cluster.spawn(self._somewhere(), "kill", self.kill_newest)

    def _alter_some(self) -> None:
        """Columns come and go, on any replica, one at a time or several at once."""
        for _ in range(self._size.alters):
            self._world.sleep_s(self._rng.uniform(0.0, 1.0))
            if self._world.is_calm:
                return
            self._alter()

    def _alter(self) -> None:
        change = self._rng.choice((add_column, add_column, drop_column))
        command = change(self._rng.choice("xy"))
        action = alter(command, ledger=self._ledger if self._size.restores else None)
        self._cluster.spawn(self._somewhere(), "alter", action)

    def _drop_some(self) -> None:
        """On any replica, one at a time or several at once. Then somebody may say an insert again
        that was there before.
        """
        for _ in range(self._size.drops):
            self._world.sleep_s(self._rng.uniform(0.0, 1.0))
            if self._world.is_calm:
                return
            action = drawn(self._rng, "abcd"[: self._size.partitions + 1], self._ledger)
            process = self._cluster.spawn(self._somewhere(), "drop", action)
            if self._rng.random() < 0.5:
                continue
            while process.is_alive and not self._world.is_calm:
                self._world.sleep_s(0.05)
            over = [one for one in self._ledger.inserts if one.is_over and one.is_acknowledged]
            if over:
                waker = SimWaker(self._world)
                self._attempt(self._rng.choice(over), self._somewhere(), waker)
                waker.wait_s(PATIENCE_S)

    def _swap_some(self) -> None:
        """On any replica, one at a time or several at once. Rows that stay are told from those that
        go by how they begin, so only where no mutation changes them and no disk loses them.
        """
        forms = ["replace", "replace", "attach"]
        size = self._size
        takes = size.mutations + size.losses + size.alters + size.copies + size.expiries
        if not takes and size.ttl is size.value_ttl is None:
            forms.append("condition")
        for _ in range(self._size.swaps):
            self._world.sleep_s(self._rng.uniform(0.0, 1.0))
            if self._world.is_calm:
                return
            number = len(self._ledger.inserts)
            some = self._rng.sample(
                "abc"[: self._size.partitions], self._rng.randint(1, self._size.partitions)
            )
            self.spawn_swap(
                self._rng.choice(forms),
                "".join(some),
                at=self._somewhere(),
                taken=f"{self._rng.randrange(number + 1):03}.",
            )

    def spawn_swap(self, form: str, partitions: str, *, at: Site, taken: str = "") -> Process:
        """Rows that nobody has inserted come into these partitions; nobody asks again."""
        number = len(self._ledger.inserts)
        rows = {
            partition: [f"{number:03}.{partition}.{row}" for row in range(2)]
            for partition in sorted(partitions)
        }
        self._ledger.inserts.append(ClientInsert(number, rows, token="", gives_up=True))
        action = put(self._ledger, rows, replaces=form == "replace")
        if form == "condition":
            action = put_beside(self._ledger, rows, taken)
        return self._cluster.spawn(at, "swap", action)

    def _undo_some(self) -> None:
        """Any insert that can be named, also one that is under way; then it may be said again."""
        for _ in range(self._size.undos):
            self._world.sleep_s(self._rng.uniform(0.0, 0.8))
            known = [one for one in self._ledger.inserts if one.token or one.is_answered]
            if self._world.is_calm:
                return
            if not known:
                continue
            insert, query = self._rng.choice(known[-3:]), self._rng.choice(DROP_WAITS)
            action = undo(insert, query, self._ledger)
            process = self._cluster.spawn(self._somewhere(), "undo", action)
            while self._rng.random() < 0.9 and process.is_alive and not self._world.is_calm:
                self._world.sleep_s(0.05)
            if insert.is_over and insert.is_acknowledged and self._rng.random() < 0.5:
                waker = SimWaker(self._world)
                self._attempt(insert, self._somewhere(), waker)
                waker.wait_s(PATIENCE_S)

    def _copy_some(self) -> None:
        """Rows that are there come once more, by an insert of its own; and OPTIMIZE is to keep one
        of each.
        """
        for _ in range(self._size.copies):
            self._world.sleep_s(self._rng.uniform(0.0, 0.8))
            if self._world.is_calm:
                return
            others = [one for one in self._ledger.inserts if one.attempts and not one.shared]
            if others:
                other = self._rng.choice(others)
                partition = self._rng.choice(list(other.rows))
                self._insert(self._copy_of(other, partition))
            for _ in range(self._rng.choice((1, 2))):
                action = deduplicate(
                    self._rng, "abc"[: self._size.partitions], self._ledger.merges
                )
                self._cluster.spawn(self._somewhere(), "deduplicate", action)
                self._world.sleep_s(self._rng.uniform(0.0, 0.5))

    def _copy_of(self, other: ClientInsert, partition: str) -> ClientInsert:
        number, rows = len(self._ledger.inserts), list(other.rows[partition])
        copy = ClientInsert(
            number, {partition: rows}, token=f"token {number}", gives_up=False, block_rows_max=9
        )
        self._ledger.insert_copy(copy, other)
        return copy

    def _expire_some(self) -> None:
        """By another TTL from now on; what has expired by it may be taken away at once."""
        for _ in range(self._size.expiries):
            self._world.sleep_s(self._rng.uniform(0.0, 1.5))
            if self._world.is_calm:
                return
            ttl, site = self._rng.choice(TTLS), self._somewhere()
            if self._rng.random() < 0.7:
                self._cluster.spawn(site, "modify ttl", alter(modify_ttl(ttl)))
            if self._rng.random() < 0.5:
                now_s = self._world.now_s + site.host.skew[0]
                self.spawn_mutation(Expiry(ttl, int(now_s)), at=site)

    def _keep_some(self) -> None:
        """On any replica, one at a time or several at once: what one has detached another may
        attach. And beside it in the second table, if there is one.
        """
        partitions = "abc"[: self._size.partitions]
        for _ in range(self._size.keepings):
            self._world.sleep_s(self._rng.uniform(0.0, 0.6))
            if self._world.is_calm:
                return
            form, action = keeping.drawn(self._rng, partitions, self._ledger, self._tables)
            process = self._cluster.spawn(self._somewhere(), form, action)
            while self._rng.random() < 0.9 and process.is_alive and not self._world.is_calm:
                self._world.sleep_s(0.1)

    def _removals(self) -> None:
        remove_some(self._cluster, self._size.removals)

    def _restores(self) -> None:
        size = self._size
        restore_some(
            self._cluster,
            self._ledger,
            size.restores,
            some_live_on=size.some_live_on,
            goes_back=size.goes_back,
            last_changes=self._change_at_last if size.mutations + size.alters else None,
        )

    def _change_at_last(self) -> None:
        """A mutation or an ALTER that may be anywhere between its begin and its end when ZooKeeper
        loses the table.
        """
        if self._size.mutations and self._rng.random() < 0.8:
            self.spawn_mutation(
                self._drawn_change(10 + len(self._ledger.changes)),
                at=self._somewhere(),
                partitions=self._drawn_partitions(),
            )
            if self._rng.random() < 0.7:
                self._until_some_part_has_it(looks=self._size.storm_steps // 6)
        if self._size.alters and self._rng.random() < 0.6:
            self._alter()
        self._world.sleep_s(self._rng.uniform(0.0, 0.4))

    def _send_some(self, tables: Tables) -> None:
        """From any server, one statement at a time or several at once; now and then the second
        table loses what it has.
        """
        for _ in range(self._size.between):
            self._world.sleep_s(self._rng.uniform(0.0, 1.0))
            if self._world.is_calm:
                return
            site = self._somewhere()
            partition = self._rng.choice("abc"[: self._size.partitions])
            form, query = self._rng.choice(FORMS), self._rng.choice(WAITS)
            process = self._cluster.spawn(site, form, tables.statement(form, partition, query))
            while self._rng.random() < 0.9 and process.is_alive and not self._world.is_calm:
                self._world.sleep_s(0.1)
            if self._rng.random() < 0.2:
                other = tables.target.sites[site.replica]
                tables.target.spawn(other, "drop", drop(partition))

    def _until_some_part_has_it(self, looks: int = 100) -> None:
        """The worst moment for a kill: some parts are mutated already and some are not."""
        nodes = self._world.zookeeper.nodes
        for _ in range(looks):
            newest = max(self._ledger.mutations, default=None)
            versions = dict(self._ledger.mutations[newest].block_numbers) if newest else {}
            for site in self._cluster.sites.values():
                node = nodes.get(TABLE.replica(site.replica).parts)
                parts = map(PartName.parse, node.children if node else ())
                if any(part.mutation == versions.get(part.partition, -1) for part in parts):
                    return
            self._world.sleep_s(0.01)

    def _drawn_change(self, number: int) -> Change:
        """Of one insert, of its rows in one partition, of some inserts, or of all."""
        insert = f"{self._rng.randint(0, len(self._ledger.inserts) + 1):03}"
        prefix = self._rng.choice((insert, f"{insert}.a", insert[:2], "0"))
        return Change(prefix, self._rng.choice(("", f"{SUFFIX}{number}")))

    def spawn_mutation(
        self, change: Change | Expiry, *, at: Site, partitions: Sequence[str] | None = None
    ) -> None:
        """Where ZooKeeper may be lost, the client waits for its replica now and then."""
        command = change.command()
        self._ledger.changes[command] = change
        waits = self._size.restores > 0 and self._rng.random() < 0.5

        def run(context: Context) -> None:
            mutation = create_mutation(context.replica(), command, partitions)
            if waits and at.is_created:
                query = QuerySettings(receive_timeout=WAITS_FOR_MUTATION_S)
                wait_as_asked(context.replica, mutation, query, 1, SimWaker(self._world))
                self._ledger.mutations_answered.add(mutation)

        self._cluster.spawn(at, "mutate", run)

    def _drawn_partitions(self) -> list[str] | None:
        """Of a mutation: all, one or some; also ones where nothing is."""
        if self._rng.random() < 0.5:
            return None
        return self._rng.sample("abcd", self._rng.randint(1, 2))

    def kill_newest(self, context: Context) -> None:
        ids = context.keeper().children(TABLE.mutations)
        if ids:
            self._ledger.killed.add(ids[-1])
            with contextlib.suppress(UnknownMutation):  # our first answer was lost
                kill_mutation(context.replica(), ids[-1])

    # --- misfortune ---

    def _have_bad_luck(self) -> None:
        strikes = [self._switch_off] * self._size.outages + [self._lose] * self._size.losses
        if self._tables is None:  # of two tables nobody looks whether others have both
            strikes += [self._lose_disk] * self._size.vanishings
        self._rng.shuffle(strikes)
        for strike in strikes:
            self._world.sleep_s(self._rng.uniform(0.1, 0.8))
            if self._world.is_calm:
                return
            strike()

    def _switch_off(self) -> None:
        site = self._somewhere()
        self._world.note(site.replica, "is switched off", "")
        self._cluster.switch_off(site, for_s=self._rng.uniform(0.5, 8.0))

    def _lose(self) -> None:
        """Of any host, a part, one of its files or a bit; as soon as there is a part that another
        host has whole. Each part is hit once, so that none is lost everywhere.
        """
        found: list[tuple[Site, str]] = []
        for _ in range(50):
            found = [
                (site, name)
                for site in self._cluster.sites.values()
                for name in site.host.disk.list("")
                if name not in self._ledger.hit
                and self._is_whole_on(site, name)
                and any(
                    other is not site and self._is_whole_on(other, name)
                    for other in self._cluster.sites.values()
                )
            ]
            if found or self._world.is_calm:
                break
            self._world.sleep_s(0.02)
        if found and not self._world.is_calm:
            self._break(*self._rng.choice(found))

    def _lose_disk(self) -> None:
        """Of any host, and with it all that it promises; as soon as each part of it is, or is in,
        one that another host has whole.
        """
        found: list[Site] = []
        for _ in range(50):
            found = [site for site in self._cluster.sites.values() if self._can_be_missed(site)]
            if found or self._world.is_calm:
                break
            self._world.sleep_s(0.02)
        if not found or self._world.is_calm:
            return
        site = self._rng.choice(found)
        self._world.note(site.replica, "loses its disk", "")
        promised = self._promised(site)
        self._ledger.lost_parts += len(promised)
        self._ledger.hit.update(map(str, promised))
        self._ledger.broken.add(site.replica)
        self._cluster.switch_off(site, for_s=self._rng.uniform(0.1, 3.0))
        for name in site.host.disk.list(""):
            site.host.disk.lose(name)

    def _promised(self, site: Site) -> list[PartName]:
        node = self._world.zookeeper.nodes.get(TABLE.replica(site.replica).parts)
        return sorted(map(PartName.parse, node.children), key=str) if node else []

    def _can_be_missed(self, site: Site) -> bool:
        elsewhere = [
            part
            for other in self._cluster.sites.values()
            if other is not site
            for part in self._promised(other)
            if str(part) not in self._ledger.hit and self._is_whole_on(other, str(part))
        ]
        promised = self._promised(site)
        return (
            bool(promised)
            and all(any(one.contains(part) for one in elsewhere) for part in promised)
            and not self._is_promising(site)
        )

    def _is_promising(self, site: Site) -> bool:
        """Whether a write that is on its way will say that it has a part: that would land when the
        disk is gone, and perhaps nobody else has the part.
        """
        parts = TABLE.replica(site.replica).parts
        return any(
            op.path.startswith(f"{parts}/")
            for writes in self._world.late_writes.values()
            for ops in writes
            for op in ops
        )

    def _is_whole_on(self, site: Site, name: str) -> bool:
        part = PartName.try_parse(name)
        promised = TABLE.replica(site.replica).part(name) in self._world.zookeeper.nodes
        if part is None or not promised or site.outside is None:
            return False
        try:
            site.outside.verify(part)
        except Corruption:
            return False
        return True

    def _break(self, site: Site, part: str) -> None:
        disk = site.host.disk
        what = self._rng.choice((part, *(f"{part}/{name}" for name in disk.list(part))))
        is_file = what != part
        how = self._rng.choice(("loses", "can't read", "has rot in") if is_file else ("loses",))
        if how == "has rot in" and not disk.size(what):
            how = "can't read"
        if self._tables is not None:
            # A REPLACE or the like links files as they are, into a part that nobody else may have.
            how = "loses"
        self._world.note(site.replica, how, what)
        self._ledger.lost_parts += 1
        self._ledger.hit.add(part)
        self._ledger.broken.add(site.replica)
        if how == "loses":
            disk.lose(what)
        elif how == "can't read":
            disk.spoil(what)
        else:
            disk.rot(what, self._rng)

    def _join(self, site: Site) -> None:
        self._world.sleep_s(self._rng.uniform(0.2, 2.0))
        self._cluster.boot(site.replica)
        if self._tables is not None:
            self._tables.target.boot(site.replica)

    def _set_clocks(self) -> None:
        for _ in range(self._rng.choice((0, 0, 3))):
            self._world.sleep_s(self._rng.uniform(0.1, 1.0))
            if self._world.is_calm:
                return
            host = self._rng.choice(list(self._world.hosts.values()))
            host.skew[0] = self._rng.choice(SKEW_S)
            self._ledger.clock_jumps += 1


def check_parts(context: Context) -> None:
    """As the schedule does: every byte of every part."""
    replica = context.replica()
    for part in active_parts(replica.keeper, replica.paths):
        check_part(replica, part)


def clean_up(context: Context) -> None:
    """As `rmt cleanup` and the schedule do."""
    replica = context.replica()
    carry_out(replica, plan_clean_up(replica))
