"""Looks at every transaction of ZooKeeper, and at what leaves a disk, while the world runs.

Each check raises AssertionError naming its promise and what breaks it. Whoever is at work then may
take it for a failure of his own and go on: so the world is told as well, and ends.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.log.codec import decode
from rmt_pipeline.protocol.log.entry import (
    AttachPart,
    DropPart,
    DropRange,
    GetPart,
    LogEntry,
    MergeParts,
    MutatePart,
    ReplaceRange,
    drop_range_of,
    parts_brought,
    virtual_parts,
)
from rmt_pipeline.protocol.mutations import FinishedMutations
from rmt_pipeline.protocol.nodes.formats import MutationEntry
from rmt_pipeline.protocol.nodes.metadata import parse_metadata
from rmt_pipeline.protocol.nodes.records import Claim
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import Intersects, PartSet
from rmt_pipeline.protocol.queue.facts import Facts
from rmt_pipeline.protocol.queue.view import QueueView
from rmt_pipeline.store import layout
from rmt_pipeline.store.hashes.checksums import hash_hex
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.zookeeper.paths import ReplicaPaths, sequence_number
from tests.simulation.checkers import detached_rows, outside_store, paths_of, show
from tests.simulation.expiring import TTLS, expires
from tests.simulation.ledger import Ledger, fits, inserted_as, is_inside
from tests.support.cluster import Cluster, Site
from tests.support.fake_disk import BadSector, FakeDisk
from tests.support.fake_keeper import Node


@dataclass(slots=True)
class Watchman:
    """Sees every change of ZooKeeper as it happens."""

    cluster: Cluster
    ledger: Ledger
    recorded: PartSet = field(default_factory=PartSet)

    def __post_init__(self) -> None:
        self.cluster.world.zookeeper.on_commit(self._committed)
        for site in self.cluster.sites.values():
            site.host.disk.on_leave.append(self._disk_watch(site))

    def _disk_watch(self, site: Site) -> Callable[[str], None]:
        def leaving(path: str) -> None:
            directory, _, name = path.rpartition("/")
            if directory == site.path(layout.DETACHED):
                self._leaves_detached(site, name)
            part = PartName.try_parse(name)
            if part is not None and directory == site.root:
                with self._telling_the_world():
                    self.nothing_promised_leaves_the_disk(site, part)

        return leaving

    def _leaves_detached(self, site: Site, directory: str) -> None:
        """Under this name, at least."""
        name = layout.parse_detached(directory)
        if name is None or name.reason not in ("", "attaching"):
            return
        rows = detached_rows(site, directory)
        self.ledger.taken_up.setdefault(site.replica, set()).update(rows)
        if self.ledger.throwing[site.replica]:
            self.ledger.thrown_away.setdefault(site.replica, set()).update(rows)

    @contextmanager
    def _telling_the_world(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.cluster.world.breaks(error)
            raise

    def nothing_promised_leaves_the_disk(self, site: Site, part: PartName) -> None:
        """ZooKeeper first, then the disk. A lost replica's promises count for nothing. A part that
        a disk has broken is set aside before; without a manifest it has no lock, so the one that
        was fetched in its place may be taken for it, and is put back.
        """
        nodes, paths = self.cluster.world.zookeeper.nodes, paths_of(site)
        is_lost = nodes.get(paths.is_lost)  # None: the replica was dropped
        if is_lost is None and self.ledger.restored:
            raise AssertionError(
                f"{part} leaves the disk of {site.replica}, and nobody knows it"
            )
        nothing_promised = is_lost is None or is_lost.data == b"1"
        assert (
            nothing_promised or paths.part(part) not in nodes or str(part) in self.ledger.hit
        ), f"{part} leaves the disk of {site.replica}, which promises it"

    def _committed(self, before: dict[str, Node | None]) -> None:
        with self._telling_the_world():
            if self.ledger.removed or self.ledger.age:
                self.who_writes_means_what_is_there(before)
            self._look(before)
            table, nodes = self.cluster.table, self.cluster.world.zookeeper.nodes
            is_open = table.restoring not in nodes and table.replicas in nodes
            if before.get(table.restoring) and is_open:
                there = self.all_that_was_there_is_restored()
                self.what_was_changed_stays_so(there)

    def _look(self, changed: dict[str, Node | None]) -> None:
        root = f"{self.cluster.table.root}/"
        before = {path: old for path, old in changed.items() if path.startswith(root)}
        nodes = self.cluster.world.zookeeper.nodes
        log = f"{self.cluster.table.log}/"
        logged = [path for path in before if path.startswith(log) and path in nodes]
        gone = [path for path in before if path not in nodes]
        self._parts_are_lost([path for path in before if path in nodes])
        self._altered(before)
        for path in logged:
            if before[path] is None:
                self._logged(path, nodes[path], gone)
        for path, old in before.items():
            node = nodes.get(path)
            if path.endswith(("/mutation_pointer", "/finished_mutations")) and node:
                self.finished_mutations_are_carried_out(path.split("/")[-2])
            if old is not None or node is None or path.startswith(log):
                continue
            parent, _, name = path.rpartition("/")
            if parent == self.cluster.table.quorum_failed_parts:
                self.failed_parts_are_nowhere(PartName.parse(name))
            if parent == self.cluster.table.mutations:
                self.ledger.mutations[name] = MutationEntry.decode(node.data)
            if parent.endswith("/parts"):
                self._promised(parent.split("/")[-2], PartName.parse(name))
            elif parent.endswith("/executing"):
                paths = self.cluster.table.replica(parent.split("/")[-2])
                self.claims_never_overlap(paths, name)
                self.waits_are_for_what_is_there(paths)
        self._replicas_go(before)

    def _altered(self, before: Mapping[str, Node | None]) -> None:
        nodes, table = self.cluster.world.zookeeper.nodes, self.cluster.table
        if table.metadata in before.keys() & nodes.keys() and table.restoring not in nodes:
            columns, metadata = nodes[table.columns].data, nodes[table.metadata]
            self.ledger.structures[metadata.version] = columns
            ttl = parse_metadata(metadata.data.decode()).ttl
            self.ledger.ttls[metadata.version] = next(
                (one for one in TTLS if ttl and one.text == ttl), None
            )

    def all_that_was_there_is_restored(self) -> PartSet:
        """P37. When the table is opened, each block of it that is not dropped is on a replica."""
        nodes, sites = self.cluster.world.zookeeper.nodes, self.cluster.sites.values()
        lists = [nodes.get(site.paths.parts) for site in sites]
        there = PartSet(PartName.parse(name) for one in lists if one for name in one.children)
        noted = {one for site in sites for one in outside_store(site).drops.ranges()}
        gone = {one for one in self.ledger.all_blocks() if there.containing(one) is None}
        self.ledger.drop_late(gone, noted)
        self.ledger.give_up_repeats(gone - self.ledger.dropped_by.keys())
        gone -= self.ledger.dropped_by.keys()
        assert not gone, f"{show(sorted(gone))} were in the table, and are not restored"
        return there

    def what_was_changed_stays_so(self, there: PartSet) -> None:
        """P37. A mutation is in each block in which one disk had it, and the columns are those of
        the newest ALTER that a disk had.
        """
        ledger, nodes, table = (
            self.ledger,
            self.cluster.world.zookeeper.nodes,
            self.cluster.table,
        )
        for block in ledger.reached.keys() - ledger.dropped_by.keys():
            part, version = there.containing(block), ledger.reached[block]
            is_kept = part is not None and part.mutation >= version
            assert is_kept, f"a disk had {block} in version {version}, and {part} is restored"
        version = nodes[table.metadata].version
        assert version >= ledger.structure_kept, (
            f"a disk had ALTER {ledger.structure_kept}, and {version} is restored"
        )
        assert nodes[table.columns].data == ledger.structures[version], (
            f"ALTER {version} made {ledger.structures[version]!r}, "
            f"and {nodes[table.columns].data!r} is restored"
        )
        ledger.open_again(
            {
                block: part.mutation
                for block in ledger.all_blocks()
                if (part := there.containing(block)) is not None
            },
            nodes[table.mutations].children,
        )

    def who_writes_means_what_is_there(self, before: Mapping[str, Node | None]) -> None:
        """P42. What was meant for a replica that was dropped comes into no other one. (What is held
        by a session goes with it, or is given back.)
        """
        world, root = self.cluster.world, f"{self.cluster.table.root}/"
        nodes = world.zookeeper.nodes
        came = [
            path
            for path, old in before.items()
            if path.startswith(root) and path in nodes
            if old is None or old.version != nodes[path].version
        ]
        writer = world.connected[world.zookeeper.writer]
        meant = {path for path in writer.means if path.startswith(root)}
        is_there = any(path in nodes for path in meant)
        assert is_there or not (came and meant), f"{writer} writes {came}, and means {meant}"

    def _replicas_go(self, before: dict[str, Node | None]) -> None:
        """A replica goes with what nobody else has yet; with the last one everything goes."""
        nodes, table = self.cluster.world.zookeeper.nodes, self.cluster.table
        for site in self.cluster.sites.values():
            was, now = before.get(site.paths.is_lost), nodes.get(site.paths.is_lost)
            if site.unfinished is not None and was is not None and now is not None:
                self.ledger.removed += 1
                self.ledger.alone |= self.ledger.all_blocks() - self._held_beside(site)
        is_gone = before.get(table.replicas) is not None and table.replicas not in nodes
        if is_gone and not self.ledger.restored:
            self.ledger.renew()
            self.recorded = PartSet()

    def _held_beside(self, site: Site) -> set[PartName]:
        nodes = self.cluster.world.zookeeper.nodes
        others = [
            nodes[one.paths.parts].children
            for one in self.cluster.sites.values()
            if one is not site and one.paths.parts in nodes and not _is_lost(nodes, one)
        ]
        held = PartSet(PartName.parse(name) for names in others for name in names)
        return {
            block for block in self.ledger.all_blocks() if held.containing(block) is not None
        }

    def _parts_are_lost(self, written: Sequence[str]) -> None:
        """A disk that failed to read the only copy twice is taken for one that has lost it: its
        bytes are set aside, the part is empty, and everybody is told. And with a replica that is
        dropped goes what nobody else had. Nothing else loses a part.
        """
        lost = f"{self.cluster.table.lost_parts}/"
        for path in written:
            if not path.startswith(lost):
                continue
            part = PartName.parse(path.removeprefix(lost))
            inside = {one for one in self.ledger.all_blocks() if is_inside(one, part)}
            if inside & self.ledger.alone:
                for block in inside:
                    self.ledger.lose(block)
            elif self.cluster.world.reads_failed:
                for site in self.cluster.sites.values():
                    self.what_is_lost_was_looked_at_again(site, part)
                self.ledger.lose(part)

    def what_is_lost_was_looked_at_again(self, site: Site, part: PartName) -> None:
        """Where a part was given up, and its bytes are whole still, in its place or set aside, they
        could not be read when they were looked at again. An empty one that is lost in its turn has
        none, whatever was set aside before.
        """
        disk = site.host.disk
        given_up = f"{layout.GIVEN_UP}/{part}"
        if disk.modified_s(site.path(given_up)) is None or part in self.ledger.lost:
            return
        reasons = ("broken", "broken-on-start", "ignored")
        names = (layout.parse_detached(name) for name in disk.list(site.path(layout.DETACHED)))
        aside = [
            f"{layout.DETACHED}/{one}"
            for one in names
            if one is not None and one.part == part and one.reason in reasons
        ]
        whole = [name for name in (str(part), *aside) if _has_rows(disk, site.path(name))]
        failed = [
            path
            for host, path in self.cluster.world.reads_failed
            if host == site.host.name and str(part) in path
        ]
        assert not whole or len(failed) > 1, (
            f"{part} is lost, and whole on {site.replica}: {whole}; reads that failed: {failed}"
        )

    def failed_parts_are_nowhere(self, part: PartName) -> None:
        """P41, I12. Nobody who is active has the part, or what it became of: at the moment at which
        it fails, and so at any later one.
        """
        self.ledger.fail(part)
        nodes = self.cluster.world.zookeeper.nodes
        for site in self.cluster.sites.values():
            paths = paths_of(site)
            if paths.is_active not in nodes:
                continue
            for name in nodes[paths.parts].children:
                has = PartName.parse(name).contains(part)
                assert not has, f"{part} has failed, and {site.replica} has {name}"

    def _promised(self, replica: str, part: PartName) -> None:
        site = self.cluster.sites[replica]
        if part in self.ledger.merges and part not in self.ledger.carried_out:
            entry, alter = self.ledger.merges[part]
            self.ledger.merge(entry)
            self.merges_take_what_has_expired_and_no_more(site, entry, alter)
        assert part not in self.ledger.failed, f"{replica} announces {part}, which has failed"
        self.part_is_whole_before_it_is_announced(site, part)
        self.parts_never_overlap(site, part)
        self.part_has_the_rows_of_its_blocks(site, part)
        self.what_was_dropped_is_not_beside_what_came_after(site, part.partition)

    def merges_take_what_has_expired_and_no_more(
        self, site: Site, entry: MergeParts, alter: int
    ) -> None:
        """P20. By the TTL that the table has for whoever makes the part, or nothing if another one
        has come since; and what was not to expire when that was decided, after some ALTER, is not
        taken by one who does not know it yet.
        """
        ttls, store, at_s = self.ledger.ttls, outside_store(site), entry.create_time
        if not any(ttls.values()) or not all(map(store.has, entry.sources)):
            return
        made = store.manifest(entry.result).metadata_version
        there = [text for source in entry.sources for text in site.rows(source)]
        due = {text for text in there if expires(ttls[made], inserted_as(text), at_s)}
        left = site.rows(entry.result)
        taken = set(there) - set(left)
        newest = self.cluster.world.zookeeper.nodes[self.cluster.table.metadata].version
        may_wait = (made < newest and not taken) or str(entry.result) in self.ledger.hit
        assert taken == due or may_wait, (
            f"{site.replica} makes {entry.result} by the TTL of ALTER {made}: of {there} "
            f"{due} have expired, and {left} are in it"
        )
        for text in taken if made < alter else ():
            assert expires(ttls[alter], inserted_as(text), at_s), (
                f"{site.replica} makes {entry.result} by the TTL of ALTER {made}, and takes "
                f"{text}, which stays by that of ALTER {alter}, as it was decided"
            )

    def part_is_whole_before_it_is_announced(self, site: Site, part: PartName) -> None:
        """The disk first, then ZooKeeper: and it would survive a loss of power right now."""
        store = outside_store(site)
        assert store.has(part), f"{site.replica} announces {part}, which is not on its disk"
        try:
            manifest = store.verify(part)
        except Corruption:
            # A mutation links files of its source as they are, which may break after it read them.
            disk, path = site.host.disk, site.path(part)
            assert any(disk.is_damaged(f"{path}/{name}") for name in disk.list(path))
            self.ledger.hit.add(str(part))
            return
        for name in ("", "part.json", *(file.name for file in manifest.files)):
            path = f"{site.path(part)}/{name}".rstrip("/")
            assert site.host.disk.is_safe(path), (
                f"{site.replica} announces {part}, but {path} would not survive a loss of power"
            )

    def part_has_the_rows_of_its_blocks(self, site: Site, part: PartName) -> None:
        """Whatever made it: of each row in the log with a block of its range it has what the
        mutations up to its version make of the row, once. So a merge takes no row out of sight
        that it did not read. Parts of a table that was dropped had the names of those of now, in
        the same place: of its rows it has none. What is in a file that broke is not asked.
        """
        if str(part) in self.ledger.hit:
            return
        for row in map(inserted_as, site.rows(part)) if self.ledger.gone else ():
            came = any(is_inside(block, part) for block in self.ledger.blocks.get(row, ()))
            assert came or row not in self.ledger.gone, (
                f"{site.replica} announces {part}, in which {row} is, of a table of before"
            )
        if self.ledger.has_strange_mutations:
            return
        found: dict[str, list[str]] = {}
        for text in site.rows(part):
            found.setdefault(inserted_as(text), []).append(text)
        for row in self.ledger.blocks:
            allowed = self.ledger.forms_in(row, part)
            if allowed is None:
                continue
            there = found.get(row, [])
            right = fits(there, allowed)
            assert right, f"{site.replica} announces {part}, in which {row} is {there}"

    def what_was_dropped_is_not_beside_what_came_after(
        self, site: Site, partition: str
    ) -> None:
        """P14. Who reads now sees no rows of a partition together that were never in the table
        together: those that a drop takes, and rows that are behind that in the log.
        """
        ledger, names = (
            self.ledger,
            self.cluster.world.zookeeper.nodes[site.paths.parts].children,
        )
        there = PartSet(
            part for part in map(PartName.parse, names) if part.partition == partition
        )
        for dropped, place in ledger.dropped_at.items():
            stays = [part for part in there if dropped.contains(part)]
            for block, (came, by) in ledger.came_at.items() if stays else ():
                is_here = came > place and by != site.replica and there.containing(block)
                assert not is_here, (
                    f"{site.replica} has {show(stays)}, which {dropped} takes, and {is_here} with "
                    f"{block}, which came after that"
                )

    def merges_read_all_that_they_cover(self, path: str, entry: MergeParts) -> None:
        """Every block that is in the log and in the range of the result is in a source, but what
        was dropped.
        """
        result = entry.result
        for block in self.ledger.all_blocks():
            covered = is_inside(block, result) and block not in self.ledger.dropped_by
            is_read = any(
                source.block_min <= block.block_min <= source.block_max
                for source in entry.sources
            )
            assert is_read or not covered, f"{path} merges over {block}: {entry}"

    def nothing_comes_into_what_was_dropped(self, path: str, entry: LogEntry) -> None:
        """D2, D3: whatever was decided before a drop is in the log before it, or never."""
        for part in _real_parts(entry):
            for dropped in self.ledger.drops:
                inside = dropped.is_drop_range and is_inside(part, dropped)
                assert not inside, f"{path} brings {part}, and {dropped} was dropped"

    def drops_take_all_that_came_before(
        self, path: str, entry: DropRange | ReplaceRange, gone: Sequence[str]
    ) -> None:
        """What is in the log with a smaller number than the one that was taken for the drop, and
        that goes with its entry: nothing of it stays, and nothing that came later goes.
        """
        dropped = drop_range_of(entry)
        if dropped is None:
            return
        prefix = self.cluster.table.lock_prefix(dropped.partition)
        locks = [lock for lock in gone if lock.startswith(prefix)]
        assert locks, f"{path} drops {dropped}, and no number goes with it"
        number = min(map(sequence_number, locks))
        for block in self.ledger.all_blocks() - self.ledger.dropped_by.keys():
            if block.partition == dropped.partition:
                goes, came_before = is_inside(block, dropped), block.block_max < number
                assert goes == came_before, (
                    f"{path} drops {dropped} with number {number}, and {block} "
                    + ("goes with it" if goes else "stays")
                )

    def finished_mutations_are_carried_out(self, replica: str) -> None:
        """What a replica notes as finished is in every part that it has or will have, for each
        block in the log with a smaller number.
        """
        nodes, paths = self.cluster.world.zookeeper.nodes, self.cluster.table.replica(replica)
        if paths.parts not in nodes or nodes[paths.is_lost].data == b"1":
            return
        beyond = nodes.get(paths.finished_mutations)
        finished = FinishedMutations.decode(
            nodes[paths.mutation_pointer].data, b"" if beyond is None else beyond.data
        )
        there = PartSet(PartName.parse(name) for name in nodes[paths.parts].children)
        for node in nodes[paths.queue].children:
            for part in virtual_parts(decode(nodes[paths.queue_entry(node)].data)):
                there.add(part)
        for mutation in nodes[self.cluster.table.mutations].children:
            if mutation not in finished or mutation in self.ledger.killed:
                continue
            entry = self.ledger.mutations[mutation]
            for block in self.ledger.all_blocks():
                version = entry.version_in(block.partition)
                if version is None or block.block_min > version:
                    continue
                part = there.containing(block)
                gone = part is None and block in self.ledger.dropped_by
                done = gone or (part is not None and part.data_version >= version)
                assert done, (
                    f"{replica} has finished {mutation}, {version}; of {block} has {part}"
                )

    def claims_never_overlap(self, paths: ReplicaPaths, node: str) -> None:
        """No two workers produce overlapping parts, and nobody what was produced already. A drop
        may start over what it takes away; over another drop only when that one's entry was taken
        from it: it can end nothing any more.
        """
        nodes = self.cluster.world.zookeeper.nodes
        assert paths.queue_entry(node) in nodes, f"{paths.root}/{node} is claimed, and finished"
        claims = {
            other: Claim.decode(nodes[paths.claim(other)].data).parts
            for other in nodes[paths.executing].children
        }
        mine = claims.pop(node)
        for other, parts in claims.items():
            is_over = paths.queue_entry(other) not in nodes
            assert all(_is_apart(one, two, is_over) for one in mine for two in parts), (
                f"{paths.root}: {node} claims {show(list(mine))}, {other} {show(list(parts))}"
            )

    def waits_are_for_what_is_there(self, paths: ReplicaPaths) -> None:
        """Every reason to wait names entries that are carried out or come first, and parts that
        somebody is about to make or has.
        """
        nodes = self.cluster.world.zookeeper.nodes
        queue = sorted(nodes[paths.queue].children)
        if len(queue) < 2 or nodes[paths.is_lost].data == b"1":
            return
        entries = {node: decode(nodes[paths.queue_entry(node)].data) for node in queue}
        claims = {
            node: Claim.decode(nodes[paths.claim(node)].data)
            for node in nodes[paths.executing].children
        }
        parts = [PartName.parse(name) for name in nodes[paths.parts].children]
        plan = QueueView(entries, claims, parts).plan(Facts(), len(entries))
        running = {*claims, *(node for node, _ in plan.run)}
        named = {str(part) for entry in entries.values() for part in virtual_parts(entry)}
        # A piece of a mutation is called by its source, which may have gone: then it is fetched.
        named |= {
            str(entry.source) for entry in entries.values() if isinstance(entry, MutatePart)
        }
        named |= {str(part) for claim in claims.values() for part in claim.parts}
        named |= {str(part) for part in parts}
        named |= {str(drop_range_of(entry)) for entry in entries.values()}
        for node, reason in plan.wait:
            for other in re.findall(r"queue-\d+", reason):
                is_there = other in (running if "producing" in reason else queue)
                assert is_there, f"{paths.root}/{node} waits in vain: {reason}"
            for part in re.findall(r"\b[a-z]_\d+_\d+_\d+(?:_\d+)?\b", reason):
                assert part in named, f"{paths.root}/{node} waits for no part: {reason}"

    def parts_never_overlap(self, site: Site, part: PartName) -> None:
        """G1, over all replicas and all times. But what was dropped by name may overlap what was
        merged across its numbers later, whose level can be too small to contain it; never on one
        replica at the same time.
        """
        nodes, there = self.cluster.world.zookeeper.nodes, PartSet()
        for one in map(PartName.parse, nodes[site.paths.parts].children):
            outcome = there.add(one)
            assert not isinstance(outcome, Intersects), f"{one} overlaps {outcome} at once"
        for other in self.recorded.intersecting(part):
            if part.contains(other) or other.contains(part):
                continue
            if self._was_dropped(part):
                return
            assert self._was_dropped(other), f"{part} overlaps {other}"
            self.recorded.remove(other)
        self.recorded.add(part)

    def _was_dropped(self, part: PartName) -> bool:
        return any(dropped.contains(part) for dropped in self.ledger.dropped_at)

    def _logged(self, path: str, node: Node, gone: Sequence[str]) -> None:
        """`gone`: what the same transaction has deleted."""
        entry = decode(node.data)
        self._placed(entry)
        self.nothing_comes_into_what_was_dropped(path, entry)
        if isinstance(entry, DropRange | ReplaceRange):
            self.drops_take_all_that_came_before(path, entry, gone)
        if isinstance(entry, DropRange | DropPart):
            dropped = drop_range_of(entry)
            assert dropped is not None
            if isinstance(entry, DropPart):
                self.an_undo_takes_nothing_else(path, dropped)
            self.ledger.drop(dropped)
        if isinstance(entry, ReplaceRange):
            self._replaced(path, entry)
        if isinstance(entry, MergeParts):
            self.merges_read_all_that_they_cover(path, entry)
            nodes = self.cluster.world.zookeeper.nodes
            version = nodes[self.cluster.table.metadata].version
            self.ledger.merges[entry.result] = entry, version
        if isinstance(entry, AttachPart):
            self._attached(path, entry)
        if isinstance(entry, GetPart):
            site = self.cluster.sites[entry.source_replica]
            rows = site.rows(entry.part)
            if self.cluster.table.restoring in self.cluster.world.zookeeper.nodes:
                self.what_is_restored_was_there(path, entry.part, rows)
                return
            new = [row for row in rows if row not in self.ledger.arrived]
            self.each_row_is_logged_once(path, entry.part, new)
            for row in rows:
                self.ledger.taken_by[row] = entry.source_replica
                self.ledger.blocks.setdefault(row, []).append(entry.part)

    def an_undo_takes_nothing_else(self, path: str, part: PartName) -> None:
        """Than rows of its insert, and of these not those that another one had brought."""
        world, ledger = self.cluster.world, self.ledger
        process = world.connected.get(world.zookeeper.writer)
        insert = None if process is None else ledger.undoing.get(process)
        if process is None or insert is None:
            return
        ledger.undone.append(insert)
        ledger.unanswered[part] = process
        mine, answers = set(insert.all_rows()), insert.every_answer
        made = {block for answer in answers for block in answer.parts}
        found = {name for answer in answers for _, name in answer.duplicates}
        for row, blocks in ledger.blocks.items():
            for block in blocks:
                if is_inside(block, part) and block not in ledger.dropped_by:
                    is_own = row in mine and (block in made or str(block) not in found)
                    assert is_own, f"{path} undoes {insert}, and drops {row}"

    def _placed(self, entry: LogEntry) -> None:
        ledger, dropped = self.ledger, drop_range_of(entry)
        ledger.entries += 1
        if dropped is not None:
            ledger.dropped_at[dropped] = ledger.entries
            process = self.cluster.world.connected.get(self.cluster.world.zookeeper.writer)
            if process is not None and not ledger.do_ids_fit:
                ledger.unanswered[dropped] = process
        if not isinstance(entry, MergeParts | MutatePart):
            place = ledger.entries, entry.source_replica
            ledger.came_at |= dict.fromkeys(parts_brought(entry), place)

    def what_is_restored_was_there(
        self, path: str, part: PartName, rows: Sequence[str]
    ) -> None:
        """P37. Each row in a part that contains its block: so nothing comes twice."""
        for row in map(inserted_as, rows):
            blocks = self.ledger.blocks.get(row, [])
            assert any(is_inside(block, part) for block in blocks), (
                f"{path} restores {part}, in which {row} is, of {blocks}"
            )

    def _attached(self, path: str, entry: AttachPart) -> None:
        """Rows that were detached, or fetched from another table: they come beside those that were
        inserted again since.
        """
        site = self.cluster.sites[entry.source_replica]
        [source] = outside_store(site).manifest(entry.part).sources
        self.what_is_detached_is_attached_once(path, source, entry)
        for text in site.rows(entry.part):
            row = inserted_as(text)
            self.ledger.arrived.add(row)
            self.ledger.taken_by[row] = entry.source_replica
            self.ledger.came_as[row, entry.part] = text
            self.ledger.blocks.setdefault(row, []).append(entry.part)

    def what_is_detached_is_attached_once(
        self, path: str, source: str, entry: AttachPart
    ) -> None:
        """D9. Each replica has a copy of its own; what was dropped since may come again."""
        key = source, entry.checksum
        before = self.ledger.attached.get(key)
        assert before is None or before in self.ledger.dropped_by, (
            f"{path} attaches {source}, which is in the table as {before}"
        )
        self.ledger.attached[key] = entry.part

    def _replaced(self, path: str, entry: ReplaceRange) -> None:
        """What comes without an id of its block is known by none."""
        dropped = drop_range_of(entry)
        site = self.cluster.sites[entry.source_replica]
        texts = [(text, part) for part in entry.new_parts for text in site.rows(part)]
        rows = {inserted_as(text): part for text, part in texts}
        if dropped is not None:
            if entry.keeps_ids:
                self.rows_that_stay_are_there(path, dropped, rows.keys())
                self.ledger.kept.append(dropped)
            else:
                self.ledger.swaps.append((dropped, tuple(rows)))
            self.ledger.drop(dropped)
        if entry.from_table:
            self.ledger.arrived.update(rows)
        for part in entry.new_parts:
            new = [row for row in map(inserted_as, site.rows(part)) if not entry.from_table]
            self.each_row_is_logged_once(path, part, new)
        for text, part in texts:
            row = inserted_as(text)
            self.ledger.taken_by[row] = entry.source_replica
            self.ledger.came_as[row, part] = text
            self.ledger.blocks.setdefault(row, []).append(part)
            self.ledger.forgotten.add(part)

    def rows_that_stay_are_there(
        self, path: str, dropped: PartName, rows: Collection[str]
    ) -> None:
        """P40: what a condition does not hold for is not lost, however late it came."""
        for row, blocks in self.ledger.blocks.items():
            last = blocks[-1]
            if is_inside(last, dropped) and last not in self.ledger.dropped_by:
                stays = row in rows or row in self.ledger.taken_out
                assert stays, f"{path} replaces {dropped}, and {row} of {last} is lost"

    def each_row_is_logged_once(self, path: str, part: PartName, rows: Sequence[str]) -> None:
        """G4, by the log: merges could hide a second copy, the log can't. What was dropped may come
        again.
        """
        for row in rows:
            there = [
                block
                for block in self.ledger.blocks.get(row, ())
                if block not in self.ledger.dropped_by
            ]
            assert not there, f"{row} is in {there[0]}, and now in {path}: {part}"


def _is_lost(nodes: Mapping[str, Node], site: Site) -> bool:
    """Or half removed."""
    node = nodes.get(site.paths.is_lost)
    return node is None or node.data == b"1"


def _has_rows(disk: FakeDisk, directory: str) -> bool:
    """Whether there are rows of a part in it, and each of its bytes can be read."""
    try:
        manifest = Manifest.decode(disk.read(f"{directory}/{layout.MANIFEST}") or b"")
        files = [(file, disk.read(f"{directory}/{file.name}")) for file in manifest.files]
    except (Corruption, BadSector):
        return False
    is_whole = all(data is not None and hash_hex(data) == file.hash for file, data in files)
    return is_whole and manifest.rows > 0


def _is_apart(one: PartName, two: PartName, is_over: bool) -> bool:
    if is_over and one.is_drop_range and one.contains(two):
        return True
    if one.is_drop_range != two.is_drop_range:
        return one.disjoint(two) or one.contains(two) or two.contains(one)
    return one.disjoint(two)


def _real_parts(entry: LogEntry) -> tuple[PartName, ...]:
    """Those that exist once the entry is done."""
    return tuple(part for part in virtual_parts(entry) if not part.is_drop_range)
