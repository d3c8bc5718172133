"""What must be true, one promise each, looking at the world from outside.

Checkers of a finished world take `Finished`; `Watchman` looks at every transaction of ZooKeeper
while the world runs. Each raises AssertionError naming its promise and what breaks it. Promises
G1 to G7 are those of spec §16.1.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from rmt_pipeline.protocol.entries import GetPart
from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.formats import PartHeader
from rmt_pipeline.protocol.log_entry import decode
from rmt_pipeline.protocol.part_set import Intersects, PartSet
from rmt_pipeline.protocol.parts import PartName
from rmt_pipeline.protocol.queue import QueueView
from rmt_pipeline.protocol.records import Claim, InsertRecord
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.zookeeper.paths import ReplicaPaths, sequence_number
from tests.simulation.ledger import ClientInsert, Ledger
from tests.support.cluster import TABLE, Cluster, Site
from tests.support.fake_keeper import Node
from tests.support.sim_rows import MASK_128, hash_of_row, rows_on

LOG_ENTRIES_KEPT_MAX = 6  # all replicas are active: min_replicated_logs_to_keep and a few


LASTING = ("server", "fetch", "merge")  # processes that never end by themselves


@dataclass(slots=True)
class Finished:
    """A world after calm: every server runs, every queue is empty, every client has finished."""

    cluster: Cluster
    ledger: Ledger

    @property
    def nodes(self) -> dict[str, Node]:
        return self.cluster.world.zookeeper.nodes

    @property
    def sites(self) -> list[Site]:
        return [site for site in self.cluster.sites.values() if not site.is_out]

    def children(self, path: str) -> list[str]:
        node = self.nodes.get(path)
        return sorted(node.children) if node else []

    def promised(self, site: Site) -> list[PartName]:
        return sorted(map(PartName.parse, self.children(paths_of(site).parts)))

    def active(self, site: Site) -> PartSet:
        return PartSet(self.promised(site))

    def rows(self, site: Site) -> Counter[str]:
        found: Counter[str] = Counter()
        for part in self.active(site):
            found.update(rows_on(site.host.disk, part))
        return found


def paths_of(site: Site) -> ReplicaPaths:
    return TABLE.replica(site.replica)


def what_is_missing(cluster: Cluster) -> str | None:
    """Which replica is not up; None when all are."""
    for site in cluster.sites.values():
        if not site.is_out and not site.is_serving:
            return f"the server of {site.replica} is not up"
    return None


def what_is_left(cluster: Cluster, ledger: Ledger) -> str | None:
    """Why the calm may not end yet; None when nothing is left to do."""
    if ledger.clients:
        return f"{ledger.clients} clients wait for answers"
    if TABLE.log not in cluster.world.zookeeper.nodes:
        return "there is no table"
    for site in cluster.sites.values():
        left = None if site.is_out else _what_a_replica_has_left(cluster, site)
        if left is not None:
            return left
    return _who_still_runs(cluster)


def _what_a_replica_has_left(cluster: Cluster, site: Site) -> str | None:
    if not site.is_serving:
        return f"the server of {site.replica} is not up"
    nodes, paths = cluster.world.zookeeper.nodes, paths_of(site)
    log, pointer, queue = nodes[TABLE.log], nodes[paths.log_pointer], nodes[paths.queue]
    if queue.children:
        first = decode(nodes[paths.queue_entry(min(queue.children))].data)
        return f"{site.replica} has {len(queue.children)} entries left, the first is {first}"
    if nodes[paths.executing].children:
        return f"{site.replica} has claims left"
    if log.children and int(pointer.data or b"0") <= sequence_number(max(log.children)):
        return f"{site.replica} has not pulled the whole log"
    return None


def _who_still_runs(cluster: Cluster) -> str | None:
    processes = [process for host in cluster.world.everybody for process in host.processes]
    living = {session.session_id for process in processes for session in process.sessions}
    if not living.issuperset(cluster.world.zookeeper.sessions):
        return "sessions of the dead have not expired"
    passing = [process for process in processes if process.name not in LASTING]
    return f"{passing[0]} still runs" if passing else None


# --- after calm -------------------------------------------------------------------------------


def queues_are_empty_and_hold_their_invariant(finished: Finished) -> None:
    for site in finished.sites:
        paths = paths_of(site)
        assert finished.children(paths.queue) == [], f"{site.replica} has work left"
        assert finished.children(paths.executing) == [], f"{site.replica} has claims left"
        QueueView([], {}, finished.promised(site)).check()


def replicas_agree_on_parts(finished: Finished) -> None:
    """G3."""
    first, *others = finished.sites
    for other in others:
        mine, theirs = list(finished.active(first)), list(finished.active(other))
        assert mine == theirs, (
            f"{first.replica} has {show(mine)}, {other.replica} has {show(theirs)}"
        )


def replicas_hold_the_same_rows(finished: Finished) -> None:
    """G3: not the names alone."""
    first, *others = finished.sites
    for part in finished.active(first):
        rows = rows_on(first.host.disk, part)
        for other in others:
            theirs = rows_on(other.host.disk, part)
            assert rows == theirs, (
                f"{part} has {rows} on {first.replica}, {theirs} on {other.replica}"
            )


def acknowledged_rows_are_there_once(finished: Finished) -> None:
    """G4. A plain merge keeps duplicates, so a second copy can't hide."""
    for site in finished.sites:
        rows = finished.rows(site)
        for insert in finished.ledger.inserts:
            counts = {rows[row] for row in insert.all_rows()}
            if insert.is_acknowledged:
                assert counts == {1}, f"{insert} on {site.replica}: {count_rows(insert, rows)}"
            else:
                assert counts in ({0}, {1}), (
                    f"{insert}, unacknowledged, on {site.replica}: {count_rows(insert, rows)}"
                )


def no_other_rows_are_there(finished: Finished) -> None:
    known = {row for insert in finished.ledger.inserts for row in insert.all_rows()}
    for site in finished.sites:
        strange = set(finished.rows(site)) - known
        assert not strange, f"nobody inserted {sorted(strange)} on {site.replica}"


def answers_were_true(finished: Finished) -> None:
    """Whoever was told "inserted" inserted it all, and only one was."""
    for insert in finished.ledger.inserts:
        rows = len(insert.all_rows())
        for answer in insert.answers:
            assert answer.rows + answer.rows_duplicate == rows, f"{insert}: {answer.words()}"


def promised_is_on_disk(finished: Finished) -> None:
    """Every byte of it, as its manifest and ZooKeeper say."""
    for site in finished.sites:
        store = outside_store(site)
        for part in finished.promised(site):
            assert store.has(part), f"{site.replica} promises {part} and has nothing on disk"
            manifest = store.verify(part)
            header = PartHeader.decode(finished.nodes[paths_of(site).part(part)].data)
            assert manifest.header().difference(header) is None, (
                f"{part} on {site.replica} is not what its node says"
            )


def on_disk_is_promised(finished: Finished) -> None:
    """What is not promised is staged (and swept later) or detached, never under a part's name."""
    for site in finished.sites:
        extra = set(outside_store(site).parts()) - set(finished.promised(site))
        assert not extra, f"{site.replica} has {show(sorted(extra))} on disk, promised nowhere"


def rows_are_conserved(finished: Finished) -> None:
    """The sums of row hashes of all parts are those of all rows: no merge lost or changed one."""
    for site in finished.sites:
        store = outside_store(site)
        for part in finished.active(site):
            rows = rows_on(site.host.disk, part)
            expected = sum(map(hash_of_row, rows)) & MASK_128
            assert store.manifest(part).row_hash == expected, f"{part} on {site.replica}"


def reads_saw_whole_inserts(finished: Finished) -> None:
    """On the replica that took an insert it is in all its partitions or in none; on the others
    its parts arrive one by one. No row is ever seen twice.
    """
    for read in finished.ledger.reads:
        rows = Counter(read.rows)
        for insert in finished.ledger.inserts:
            counts = {rows[row] for row in insert.all_rows()}
            taken_here = finished.ledger.taken_by.get(insert.all_rows()[0]) == read.replica
            allowed = ({0}, {1}) if taken_here else ({0}, {1}, {0, 1})
            assert counts in allowed, (
                f"a read on {read.replica} saw {insert} so: {count_rows(insert, rows)}"
            )


def nobody_saw_corruption(finished: Finished) -> None:
    """No bit was flipped here and no log trimmed too early: who thinks so is wrong."""
    for process, error in finished.cluster.world.ended_by:
        assert not isinstance(error, Corruption), f"{process} ended by {error!r}"


def locks_are_gone(finished: Finished) -> None:
    """No block number is in flight: nothing holds merges back for ever."""
    for partition in finished.children(TABLE.block_numbers):
        locks = finished.children(TABLE.partition(partition))
        assert locks == [], f"partition {partition} has {locks}"


def inserts_are_recorded(finished: Finished) -> None:
    """An acknowledged insert has its record, so that a late retry is answered."""
    for insert in finished.ledger.inserts:
        for answer in insert.answers:
            node = finished.nodes.get(TABLE.insert(answer.insert_id))
            assert node is not None, f"{insert} has no record {answer.insert_id}"
            record = InsertRecord.decode(node.data)
            assert record.rows == len(insert.all_rows()), f"{insert}: {record}"


CHECKERS: tuple[Callable[[Finished], None], ...] = (
    queues_are_empty_and_hold_their_invariant,
    replicas_agree_on_parts,
    replicas_hold_the_same_rows,
    acknowledged_rows_are_there_once,
    no_other_rows_are_there,
    answers_were_true,
    promised_is_on_disk,
    rows_are_conserved,
    reads_saw_whole_inserts,
    nobody_saw_corruption,
    locks_are_gone,
    inserts_are_recorded,
)


def nothing_is_left_behind(finished: Finished) -> None:
    """After a clean-up: no covered parts, no staging directories, a short log."""
    for site in finished.sites:
        promised = finished.promised(site)
        assert promised == list(finished.active(site)), f"{site.replica} keeps {show(promised)}"
        staged = outside_store(site).staged()
        assert staged == [], f"{site.replica} keeps {staged}"
        assert finished.children(paths_of(site).attempts) == [], (
            f"{site.replica} keeps attempts"
        )
    log = finished.children(TABLE.log)
    assert len(log) <= LOG_ENTRIES_KEPT_MAX, f"{len(log)} log entries are kept"


def outside_store(site: Site) -> PartStore:
    assert site.outside is not None
    return site.outside


def show(parts: list[PartName]) -> str:
    return " ".join(map(str, parts)) or "nothing"


def count_rows(insert: ClientInsert, rows: Counter[str]) -> str:
    return " ".join(f"{rows[row]}*{row}" for row in insert.all_rows())


# --- at every transaction ----------------------------------------------------------------------


@dataclass(slots=True)
class Watchman:
    """Sees every change of ZooKeeper as it happens."""

    cluster: Cluster
    ledger: Ledger
    recorded: PartSet = field(default_factory=PartSet)
    rows_logged: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cluster.world.zookeeper.on_commit(self._look)
        for site in self.cluster.sites.values():
            site.host.disk.on_leave = self._disk_watch(site)

    def _disk_watch(self, site: Site) -> Callable[[str], None]:
        def leaving(path: str) -> None:
            part = PartName.try_parse(path)
            if part is not None:
                self.nothing_promised_leaves_the_disk(site, part)

        return leaving

    def nothing_promised_leaves_the_disk(self, site: Site, part: PartName) -> None:
        """ZooKeeper first, then the disk. A lost replica's promises count for nothing."""
        nodes, paths = self.cluster.world.zookeeper.nodes, paths_of(site)
        lost = nodes[paths.is_lost].data == b"1"
        assert lost or paths.part(part) not in nodes, (
            f"{part} leaves the disk of {site.replica}, which promises it"
        )

    def _look(self, before: dict[str, Node | None]) -> None:
        nodes = self.cluster.world.zookeeper.nodes
        log = f"{TABLE.log}/"
        for path, old in before.items():
            node = nodes.get(path)
            if old is not None or node is None:
                continue
            if path.startswith(log):
                self._logged(path, node)
                continue
            parent, _, name = path.rpartition("/")
            if parent.endswith("/parts"):
                self._promised(parent.split("/")[-2], PartName.parse(name))
            elif parent.endswith("/executing"):
                self.claims_never_overlap(TABLE.replica(parent.split("/")[-2]), name)

    def _promised(self, replica: str, part: PartName) -> None:
        site = self.cluster.sites[replica]
        self.part_is_whole_before_it_is_announced(site, part)
        self.parts_never_overlap(part)

    def part_is_whole_before_it_is_announced(self, site: Site, part: PartName) -> None:
        """The disk first, then ZooKeeper: and it would survive a loss of power right now."""
        store = outside_store(site)
        assert store.has(part), f"{site.replica} announces {part}, which is not on its disk"
        manifest = store.verify(part)
        for name in ("", "part.json", *(file.name for file in manifest.files)):
            path = f"{part}/{name}".rstrip("/")
            assert site.host.disk.is_safe(path), (
                f"{site.replica} announces {part}, but {path} would not survive a loss of power"
            )

    def claims_never_overlap(self, paths: ReplicaPaths, node: str) -> None:
        """No two workers produce overlapping parts, and nobody what was produced already."""
        nodes = self.cluster.world.zookeeper.nodes
        assert paths.queue_entry(node) in nodes, f"{paths.root}/{node} is claimed, and finished"
        claims = {
            other: Claim.decode(nodes[paths.claim(other)].data).parts
            for other in nodes[paths.executing].children
        }
        mine = claims.pop(node)
        for other, parts in claims.items():
            assert all(one.disjoint(two) for one in mine for two in parts), (
                f"{paths.root}: {node} claims {show(list(mine))}, {other} {show(list(parts))}"
            )

    def parts_never_overlap(self, part: PartName) -> None:
        """G1, over all replicas and all times."""
        outcome = self.recorded.add(part)
        assert not isinstance(outcome, Intersects), f"{part} overlaps {outcome}"

    def _logged(self, path: str, node: Node) -> None:
        entry = decode(node.data)
        if isinstance(entry, GetPart):
            self.each_row_is_logged_once(path, entry)

    def each_row_is_logged_once(self, path: str, entry: GetPart) -> None:
        """G4, by the log: merges could hide a second copy, the log can't."""
        site = self.cluster.sites[entry.source_replica]
        for row in rows_on(site.host.disk, entry.part):
            earlier = self.rows_logged.setdefault(row, path)
            assert earlier == path, f"{row} is in {earlier}, and now in {path}: {entry.part}"
            self.ledger.taken_by[row] = entry.source_replica
