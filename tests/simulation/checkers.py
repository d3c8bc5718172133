"""What must be true, one promise each, looking at the world from outside.

Each raises AssertionError naming its promise and what breaks it. Promises G1 to G7 are those of
spec §16.1. What can be seen only while the world runs is in `watchman`.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from rmt_pipeline.protocol.errors import Corruption, MissingPart
from rmt_pipeline.protocol.nodes.columns import columns_text
from rmt_pipeline.protocol.nodes.formats import PartHeader
from rmt_pipeline.protocol.nodes.records import InsertRecord
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.replica.pull_log import LogTrimmed
from rmt_pipeline.store import layout
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.zookeeper.paths import ReplicaPaths, TablePaths, sequence_number
from tests.simulation.ledger import ClientInsert, Ledger, fits, inserted_as
from tests.support.cluster import LASTING, SETTINGS, Cluster, Site
from tests.support.fake_keeper import Node
from tests.support.sim_rows import MASK_128, hash_of_row, rows_on

LOG_ENTRIES_KEPT_MAX = 6  # all replicas are active: min_replicated_logs_to_keep and a few
MUTATIONS_KEPT_MAX = int(SETTINGS["finished_mutations_to_keep"])


@dataclass(slots=True)
class Finished:
    """A world after calm: every server runs, every queue is empty, every client has finished."""

    cluster: Cluster
    ledger: Ledger

    is_cut: bool = False
    """Whether inserts go in partition by partition."""

    def wholes(self, insert: ClientInsert) -> list[list[str]]:
        """Rows that are in the table together, or not."""
        parts = [insert.own_rows(partition) for partition in insert.rows]
        return parts if self.is_cut else [[row for rows in parts for row in rows]]

    @property
    def table(self) -> TablePaths:
        return self.cluster.table

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

    def texts(self, site: Site) -> dict[str, list[str]]:
        """All that is there of each row, by what it was when it was inserted."""
        found: dict[str, list[str]] = defaultdict(list)
        for part in self.active(site):
            for text in site.rows(part):
                found[inserted_as(text)].append(text)
        return found


def paths_of(site: Site) -> ReplicaPaths:
    return site.paths


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
    if cluster.table.log not in cluster.world.zookeeper.nodes:
        return "there is no table"
    for site in cluster.sites.values():
        if site.unfinished is not None:
            return f"the table of {site.replica} is being dropped"
        left = None if site.is_out else _what_a_replica_has_left(cluster, site)
        if left is not None:
            return left
    return _who_still_runs(cluster)


def _what_a_replica_has_left(cluster: Cluster, site: Site) -> str | None:
    if not site.is_serving:
        return f"the server of {site.replica} is not up"
    nodes, paths = cluster.world.zookeeper.nodes, paths_of(site)
    if paths.is_active not in nodes:
        return (
            f"{site.replica} is not active: its server has yet to notice that its session ended"
        )
    log, pointer, queue = nodes[cluster.table.log], nodes[paths.log_pointer], nodes[paths.queue]
    if queue.children:
        first = nodes[paths.queue_entry(min(queue.children))].data
        return f"{site.replica} has {len(queue.children)} entries left, the first is {first!r}"
    if site.cleaning:
        return f"{site.replica} is being cleaned"
    if nodes[paths.executing].children:
        return f"{site.replica} has claims left"
    newest = max(nodes[cluster.table.mutations].children, default="")
    if nodes[paths.mutation_pointer].data.decode() < newest:
        return f"{site.replica} has not finished mutation {newest}"
    if log.children and int(pointer.data or b"0") <= sequence_number(max(log.children)):
        return f"{site.replica} has not pulled the whole log"
    return None


def _who_still_runs(cluster: Cluster) -> str | None:
    processes = [process for host in cluster.world.everybody for process in host.processes]
    living = {session.session_id for process in processes for session in process.sessions}
    if not living.issuperset(cluster.world.zookeeper.sessions):
        return "sessions of the dead have not expired"
    passing = [one for one in processes if one.name.rpartition(" ")[2] not in LASTING]
    return f"{passing[0]} still runs" if passing else None


# --- after calm -------------------------------------------------------------------------------


def replicas_agree_on_parts(finished: Finished) -> None:
    """G3."""
    first, *others = finished.sites
    for other in others:
        mine, theirs = list(finished.active(first)), list(finished.active(other))
        assert mine == theirs, (
            f"{first.replica} has {show(mine)}, {other.replica} has {show(theirs)}"
        )


def replicas_hold_the_same_rows(finished: Finished) -> None:
    """G3: not the names alone. Where a result differed, the one that was first is everybody's."""
    first, *others = finished.sites
    mine = finished.texts(first)
    for other in others:
        for part in finished.active(first):
            here, there = (site.rows(part) for site in (first, other))
            assert here == there or part not in finished.active(other), (
                f"{part} is {here} on {first.replica}, {there} on {other.replica}"
            )
        theirs = finished.texts(other)
        for row in sorted(mine.keys() | theirs.keys()):
            here, there = sorted(mine.get(row, [])), sorted(theirs.get(row, []))
            assert here == there, (
                f"{row} is {here} on {first.replica}, {there} on {other.replica}"
            )


def each_row_is_what_the_log_makes_of_it(finished: Finished) -> None:
    """G4, G5. An acknowledged row is in the log, and there once, changed by the mutations with
    greater numbers than its block and by no others; what they deleted, or a drop took, does not
    come back. A plain merge keeps duplicates, so a second copy can't hide.
    """
    ledger = finished.ledger
    for site in finished.sites:
        there = finished.texts(site)
        for insert in ledger.inserts:
            for row in insert.all_rows():
                found = there.get(row, [])
                if row not in ledger.blocks:
                    assert not insert.is_acknowledged, f"{insert} is not in the log: {row}"
                    assert not found, f"{insert} on {site.replica}: {row} is {found}"
        for row in ledger.blocks:
            found, allowed = there.get(row, []), ledger.forms_now(row)
            assert fits(found, allowed), f"on {site.replica} {row} is {found}, not {allowed}"


def inserts_are_whole(finished: Finished) -> None:
    """Acknowledged or not: in all partitions or in none, if it fits into one commit; else each
    partition is in the log, or is not.
    """
    logged = finished.ledger.blocks
    for insert in finished.ledger.inserts:
        for rows in finished.wholes(insert):
            there = [row in logged for row in rows]
            assert all(there) or not any(there), f"{insert} is in the log in part: {there}"


def no_other_rows_are_there(finished: Finished) -> None:
    known = {row for insert in finished.ledger.inserts for row in insert.all_rows()}
    known |= finished.ledger.arrived
    for site in finished.sites:
        strange = finished.texts(site).keys() - known
        assert not strange, f"nobody inserted {sorted(strange)} on {site.replica}"


def mutations_are_finished(finished: Finished) -> None:
    """By every replica, and in the names of all parts (spec §7.6)."""
    newest = max(finished.children(finished.table.mutations), default="")
    for site in finished.sites:
        pointer = finished.nodes[paths_of(site).mutation_pointer].data.decode()
        assert pointer >= newest, (
            f"{site.replica} has finished {pointer or 'none'}, not {newest}"
        )
        for part in finished.active(site):
            for name in finished.children(finished.table.mutations):
                version = finished.ledger.mutations[name].version_in(part.partition) or 0
                is_right = part.data_version >= version or part.block_min > version
                assert is_right, f"{site.replica}: {part} lacks {name} with version {version}"


def answers_were_true(finished: Finished) -> None:
    """Whoever was told "inserted" inserted it all, and only one was."""
    for insert in finished.ledger.inserts:
        rows = len(insert.all_rows())
        for answer in insert.every_answer:
            assert answer.rows + answer.rows_duplicate == rows, f"{insert}: {answer.words()}"


def acknowledged_rows_did_not_fail(finished: Finished) -> None:
    """P41. Whoever was told that they are there has them: nobody's quorum failed afterwards. What
    was dropped since may have been inserted again by a later try, which has an answer of its own.
    """
    ledger = finished.ledger
    for insert in ledger.inserts:
        for answer in insert.answers:
            failed = ledger.failed.intersection(answer.parts)
            assert not failed, f"{insert} was answered, and {failed} failed"
        for row in insert.all_rows() if insert.is_acknowledged else ():
            blocks = ledger.blocks.get(row, ())  # one that is in no log is another check's
            if any(ledger.dropped_by.get(block, block) != block for block in blocks[:-1]):
                continue
            for last in blocks[-1:]:
                assert last not in ledger.failed, f"{insert} was answered, and {last} failed"


def answered_drops_happened(finished: Finished) -> None:
    """Whoever was told that it is dropped, or detached: all that was in the log before he asked is,
    on his replica at once, if he waited; and what was detached there lies beside.
    """
    ledger = finished.ledger
    for answer in ledger.drops_answered:
        stays = answer.blocks - ledger.dropped_by.keys()
        assert not stays, f"{answer.replica} has answered a drop of {show(sorted(stays))}"
        assert not answer.left, f"{answer.left} of a drop were there on {answer.replica}"
        unknown = answer.nowhere if answer.replica not in ledger.broken else set()
        nowhere = {row for row in unknown if not ledger.is_changed(row)}
        assert not nowhere, f"{nowhere} are not among what {answer.replica} has detached"


def nobody_waits_for_a_quorum(finished: Finished) -> None:
    """Every replica is there, and has what there is: whoever waited was answered, or failed."""
    waiting = finished.children(finished.table.quorum_parallel)
    assert waiting == [], f"{waiting} wait for their quorum"
    status = finished.nodes.get(finished.table.quorum_status)
    assert status is None, f"{status.data!r} waits for its quorum"


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
            rows = site.rows(part)
            expected = sum(map(hash_of_row, rows)) & MASK_128
            assert store.manifest(part).row_hash == expected, f"{part} on {site.replica}"


def reads_saw_whole_inserts(finished: Finished) -> None:
    """On the replica that took an insert it is there as it is in the log, whole; on the others
    its parts arrive one by one. No row is ever seen twice. Rows that are mutated may be gone; those
    that were dropped are, partition by partition, and while a replica has yet to drop what another
    has, it may have both that and what was inserted again on it (of the rest see `watchman`).
    """
    ledger = finished.ledger
    for read in ledger.reads:
        rows = Counter(map(inserted_as, read.rows))
        for insert in ledger.inserts:
            seen = f"a read on {read.replica} saw {insert} so: {count_rows(insert, rows)}"
            for whole in finished.wholes(insert):
                own = [row for row in whole if not ledger.was_dropped(row)]
                lasting = {rows[row] for row in own if not ledger.is_changed(row)}
                taken_here = bool(own) and ledger.taken_by.get(own[0]) == read.replica
                assert len(lasting) < 2 or not taken_here, seen
            is_once = all(
                rows[row] < 2 or ledger.may_be_twice(row)
                for row in insert.all_rows()
                if not ledger.was_dropped(row)
            )
            assert is_once, seen


def reads_saw_no_mixture(finished: Finished) -> None:
    """P39. What was in a partition when it was replaced, or what came for it: on any replica, never
    some of both. (Of rows that came once only.)
    """
    ledger = finished.ledger
    for dropped, came in ledger.swaps:
        new = {row for row in came if len(ledger.blocks[row]) == 1}
        old = {
            row
            for row, blocks in ledger.blocks.items()
            if len(blocks) == 1 and ledger.dropped_by.get(blocks[0]) == dropped
        }
        for read in ledger.reads:
            rows = set(map(inserted_as, read.rows))
            assert not (rows & new and rows & old), (
                f"a read on {read.replica} saw {sorted(rows & new)} of the replacement of "
                f"{dropped}, and {sorted(rows & old)} of what it replaced"
            )


def nobody_saw_corruption(finished: Finished) -> None:
    """No log was trimmed too early, and no bit flipped: who thinks so is wrong. But disks may break
    here, or fail for a moment, and staged parts be swept because a clock jumped, or go with their
    table.
    """
    is_broken, jumped = finished.ledger.lost_parts > 0, finished.ledger.clock_jumps > 0
    may_miss = jumped or finished.ledger.removed > 0
    is_broken = is_broken or bool(finished.cluster.world.reads_failed)
    for process, error in finished.cluster.world.ended_by:
        excused = (is_broken and not isinstance(error, LogTrimmed)) or (
            may_miss and isinstance(error, MissingPart)
        )
        assert excused or not isinstance(error, Corruption), f"{process} ended by {error!r}"


def locks_are_gone(finished: Finished) -> None:
    """No block number is in flight: nothing holds merges back for ever. No claim, no lock of a drop
    and nothing else hangs on a session, but that replicas are active; each is, once.
    """
    for partition in finished.children(finished.table.block_numbers):
        locks = finished.children(finished.table.partition(partition))
        assert locks == [], f"partition {partition} has {locks}"
    active = {paths_of(site).is_active for site in finished.sites}
    root = f"{finished.table.root}/"
    held = {
        path for path, node in finished.nodes.items() if node.owner and path.startswith(root)
    }
    assert held == active, f"sessions hold {sorted(held ^ active)}"


def inserts_are_recorded(finished: Finished) -> None:
    """An acknowledged insert has its record, so that a late retry is answered; unless all of its
    rows were dropped, or it was undone. It says what of it every replica has lost.
    """
    for insert in finished.ledger.inserts:
        if all(map(finished.ledger.was_dropped, insert.all_rows())):
            continue
        if insert in finished.ledger.undone:
            continue
        for answer in insert.answers:
            node = finished.nodes.get(finished.table.insert(answer.insert_id))
            assert node is not None, f"{insert} has no record {answer.insert_id}"
            record = InsertRecord.decode(node.data)
            assert record.rows == len(insert.all_rows()), f"{insert}: {record}"
            is_right = record.is_whole or _is_lost_in_part(finished.ledger, insert)
            assert is_right, f"{insert} was answered, and is in part: {record}"


def _is_lost_in_part(ledger: Ledger, insert: ClientInsert) -> bool:
    return any(
        not ledger.lost.isdisjoint(ledger.blocks.get(row, ())) for row in insert.all_rows()
    )


def ids_are_those_of_what_is_there(finished: Finished) -> None:
    """I7. What was dropped can be inserted again, and nothing else until its id is old."""
    ledger, nodes = finished.ledger, finished.nodes
    named = {
        name: PartName.parse(nodes[finished.table.block(name)].data.decode())
        for name in finished.children(finished.table.blocks)
    }
    for name, block in named.items():
        drop = ledger.dropped_by.get(block)
        assert drop is None or drop in ledger.kept, (
            f"{name} keeps out what was {block} until {drop} was dropped"
        )
    known = ledger.all_blocks() - ledger.dropped_by.keys() - ledger.forgotten
    for block in known - set(named.values()):
        raise AssertionError(f"{block} has no id: its rows could be inserted once more")


def structures_agree(finished: Finished) -> None:
    """P34. Every replica has applied every ALTER, on disk and in ZooKeeper."""
    shared = finished.nodes[finished.table.metadata], finished.nodes[finished.table.columns]
    for site in finished.sites:
        paths, definition = paths_of(site), site.definition
        assert definition is not None
        mine = finished.nodes[paths.metadata], finished.nodes[paths.columns]
        for ours, theirs in zip(mine, shared, strict=True):
            assert ours.data == theirs.data, f"{site.replica} has {ours.data!r}"
        version = shared[0].version
        applied = int(finished.nodes[paths.metadata_version].data)
        assert applied == definition.metadata_version == version, (
            f"{site.replica} has ALTER {applied} in ZooKeeper, {definition.metadata_version} on "
            f"its disk, of {version}"
        )
        assert columns_text(definition.columns).encode() == shared[1].data


def what_is_detached_is_kept(finished: Finished) -> None:
    """What somebody took to attach it has come into the table, or lies there still, whatever it is
    called by now; unless a DROP DETACHED removed it.
    """
    ledger = finished.ledger
    for site in finished.sites:
        taken_up = ledger.taken_up.get(site.replica)
        if not taken_up:
            continue
        names = site.host.disk.list(site.path(layout.DETACHED))
        there = {row for name in names for row in detached_rows(site, name)}
        may_go = there | ledger.arrived | ledger.thrown_away.get(site.replica, set())
        lost = taken_up - may_go
        assert not lost, f"{sorted(lost)} were detached on {site.replica}, and are nowhere"


def detached_rows(site: Site, name: str) -> set[str]:
    """As they were inserted; none of what has rotten."""
    with suppress(UnicodeDecodeError):
        return set(map(inserted_as, site.rows(f"{layout.DETACHED}/{name}")))
    return set()


def what_is_frozen_stays(finished: Finished) -> None:
    """Whatever became of the table, until somebody unfreezes it."""
    for key, rows in finished.ledger.frozen.items():
        there = rows_on(finished.cluster.sites[key.replica].host.disk, key.path)
        assert there == rows, f"{key} has {there}, and had {rows}"


CHECKERS: tuple[Callable[[Finished], None], ...] = (
    replicas_agree_on_parts,
    replicas_hold_the_same_rows,
    each_row_is_what_the_log_makes_of_it,
    inserts_are_whole,
    mutations_are_finished,
    structures_agree,
    no_other_rows_are_there,
    answers_were_true,
    acknowledged_rows_did_not_fail,
    answered_drops_happened,
    nobody_waits_for_a_quorum,
    promised_is_on_disk,
    rows_are_conserved,
    reads_saw_whole_inserts,
    reads_saw_no_mixture,
    nobody_saw_corruption,
    locks_are_gone,
    inserts_are_recorded,
    ids_are_those_of_what_is_there,
    what_is_detached_is_kept,
    what_is_frozen_stays,
)


def nothing_is_left_behind(finished: Finished) -> None:
    """After a clean-up: no covered parts, no staging directories, a short log."""
    for site in finished.sites:
        promised = finished.promised(site)
        assert promised == list(finished.active(site)), f"{site.replica} keeps {show(promised)}"
        staged = outside_store(site).staged()
        assert staged == [], f"{site.replica} keeps {staged}"
        dropped = outside_store(site).drops.ranges()
        assert dropped == [], f"{site.replica} remembers that {show(dropped)} was dropped"
        assert finished.children(paths_of(site).attempts) == [], (
            f"{site.replica} keeps attempts"
        )
    log = finished.children(finished.table.log)
    assert len(log) <= LOG_ENTRIES_KEPT_MAX, f"{len(log)} log entries are kept"
    kept = finished.children(finished.table.mutations)
    assert len(kept) <= MUTATIONS_KEPT_MAX, f"mutations {kept} are kept"
    records, most = finished.children(finished.table.inserts), len(finished.ledger.inserts)
    if finished.ledger.restored:  # each block may have been an insert, and all of one second
        most += 2 * len(finished.ledger.all_blocks())
    assert len(records) <= most, f"{len(records)} records of inserts"


def outside_store(site: Site) -> PartStore:
    assert site.outside is not None
    return site.outside


def show(parts: list[PartName]) -> str:
    return " ".join(map(str, parts)) or "nothing"


def count_rows(insert: ClientInsert, rows: Counter[str]) -> str:
    return " ".join(f"{rows[row]}*{row}" for row in insert.all_rows())
