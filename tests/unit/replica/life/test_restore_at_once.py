"""A replica is restored by two processes at once: whatever comes between two requests."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from rmt_pipeline.protocol.errors import Conflict, RmtError
from rmt_pipeline.protocol.nodes.formats import ReplicaAddress
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.life import opening
from rmt_pipeline.replica.life.drop import drop_dead_replica
from rmt_pipeline.replica.life.restore import restore
from rmt_pipeline.replica.life.restoring import NothingToRestore
from rmt_pipeline.replica.life.start import start
from rmt_pipeline.replica.replica import Replica, UpdateDefinition
from rmt_pipeline.replica.upkeep.rewound import BeingRestored, TableIsLost, require_promises
from rmt_pipeline.zookeeper.keeper import Create, Delete, Keeper, Op, Refused, SetData
from rmt_pipeline.zookeeper.paths import TablePaths
from rmt_pipeline.zookeeper.through import ThroughKeeper
from tests.support.between_requests import BeforeRequest, BetweenAnswers
from tests.support.local_replicas import ROOT
from tests.support.lost_answers import before
from tests.support.restoring import Disaster, restore_until_open

REQUESTS_MAX = 200
ADDRESS = ReplicaAddress("r1", 9009, 9000, "default", "t")


def in_an_older_copy(two: Disaster) -> None:
    """r1 has a part there that its disk does not have, another one with other bytes, and an entry
    that has failed.
    """
    two.insert("r1", 1)
    two.step("r2", "fetch")
    older = two.copy_of_zookeeper()
    two.insert("r1", 2)
    two.note()
    paths = two["r1"].paths
    older.connect().multi(
        [
            Create(paths.part(PartName("all", 7, 7, 0)), b"header"),
            SetData(paths.part(PartName("all", 0, 0, 0)), b"header"),
            Create(paths.queue_entry("queue-0000000009"), b"entry"),
            Create(paths.attempts_of("queue-0000000009"), b"attempts"),
        ]
    )
    two.go_back_to(older)


@pytest.mark.parametrize("name", ["r1", "r2"])
def test_two_processes_that_restore_a_replica_between_any_two_requests_end_as_one(
    tmp_path: Path, name: str
) -> None:
    for number in range(REQUESTS_MAX):
        with Disaster(tmp_path / str(number)) as two:
            in_an_older_copy(two)
            if name == "r2":
                two.restore("r1")
            one = two.connect(name)
            one.keeper.session = between = BeforeRequest(
                one.session, number, lambda: restore_until_open(two, [name])
            )
            with suppress(Conflict, NothingToRestore):
                restore(one, name.encode())
            restore_until_open(two, ["r1", "r2"])
            for part in two.parts("r1"):
                [read] = two["r1"].keeper.get_many([two["r1"].paths.part(part)])
                manifest = two["r1"].store.manifest(PartName.parse(part))
                assert read[0] == manifest.header().encode()
            two.live_on()
            assert two.values("r1") == two.values("r2") == Counter([1, 2])
        if not between.has_come:
            break
    assert 10 < number < REQUESTS_MAX - 1


def test_a_table_is_not_opened_while_somebody_has_yet_to_say_what_he_has(
    tmp_path: Path,
) -> None:
    """He has begun anew since it was found that all had said so."""
    with Disaster(tmp_path) as two:
        two.insert("r1", 1)
        two.wipe()
        assert two.restore("r1").waits_for == ("r2",)
        with pytest.raises(Conflict):
            opening._open_locked(two["r1"])
        assert two["r1"].session.exists(TablePaths(ROOT).restoring) is not None


def test_who_begins_between_two_answers_is_no_table_that_is_there(tmp_path: Path) -> None:
    """1. r2, of which nobody else has the rows, looks whether its table is being restored: it is
    not. 2. Another process of r2 begins, says that the log starts anew, and dies. 3. The first one
    finds replicas, and none of its name: it is not one that joins their table, whose parts are set
    aside.
    """
    for number, stop in product(range(8), range(12)):
        with Disaster(tmp_path / f"{number} {stop}") as two:
            two.insert("r1", 1)
            two.insert("r2", 2)
            two.wipe()
            last, other = two.connect("r2"), two.connect("r2")
            other.keeper.session = BeforeRequest(other.session, stop, _dies)

            def begins(other: Replica = other) -> None:
                with suppress(Conflict):
                    restore(other, b"r2")

            last.keeper.session = BetweenAnswers(last.session, number, begins)
            with suppress(Conflict):
                restore(last, b"r2")
            restore_until_open(two, ["r1", "r2"])
            two.live_on()
            assert two.values("r1") == two.values("r2") == Counter([1, 2])


def _dies() -> None:
    raise Conflict("its process died here")


def test_who_reads_while_it_is_begun_is_told_so(tmp_path: Path) -> None:
    for number in range(3):
        with Disaster(tmp_path / str(number)) as two:
            two.insert("r1", 1)
            two.wipe()
            reader = two.connect("r1")
            reader.keeper.session = BetweenAnswers(
                reader.session, number, lambda: two.restore("r1")
            )
            with pytest.raises((BeingRestored, TableIsLost)):
                require_promises(reader)
            assert reader.keeper.session.has_come


@pytest.mark.parametrize("what", ["comes", "is dropped"])
def test_a_replica_that_comes_or_goes_while_the_table_is_opened_is_told_in_words(
    tmp_path: Path, what: str
) -> None:
    """1. r2 was waited for last, and opens the table. 2. r3, of which nobody knew, comes; or r1 is
    given up. 3. What r2 has looked at is not the table: it says so, and the next try is right.
    """
    with Disaster(tmp_path) as two:
        two.insert("r1", 1)
        two.step("r2", "fetch")
        two.wipe()
        two.restore("r1")
        last = two.connect("r2")
        table, other = last.table, two.zookeeper.connect()

        def happens() -> None:
            if what == "comes":
                other.multi([Create(table.restoring_replica("r3"))])
            else:
                drop_dead_replica(other, table, "r1")

        with (
            before(last.session, lambda op: op == Delete(table.restoring), happens),
            pytest.raises(
                Conflict, match="came, or was dropped, while it was opened; try again"
            ),
        ):
            restore(last, b"r2")
        last.session.close()
        if what == "comes":
            other.multi([Delete(table.restoring_replica("r3"))])
        restore_until_open(two, ["r2"])
        two.live_on(["r2"])
        assert two.values("r2") == Counter([1])


def test_a_replica_that_is_dropped_while_it_announces_is_gone_or_waited_for(
    tmp_path: Path,
) -> None:
    """1. Somebody drops r2, which has no nodes yet. 2. r2 makes them, and announces its parts.
    3. Nobody waits for r2 any more: it is no replica of the table either, which nobody opened.
    """
    for number in range(REQUESTS_MAX):
        with Disaster(tmp_path / str(number), ("r1", "r2", "r3")) as three:
            three.insert("r1", 1)
            three.wipe()
            three.restore("r1")
            table, nodes = three["r1"].table, three.zookeeper.nodes
            between = BetweenAnswers(
                three.zookeeper.connect(), number, partial(three.restore, "r2")
            )
            with suppress(RmtError):
                drop_dead_replica(between, table, "r2")
            is_replica = table.replica("r2").root in nodes
            assert is_replica == (table.restoring_replica("r2") in nodes), number
        if not between.has_come:
            break
    assert 2 < number < REQUESTS_MAX - 1


def test_nobody_is_active_while_the_table_is_being_restored(tmp_path: Path) -> None:
    """1. A server that starts reads that nobody restores the table. 2. The table is begun anew, and
    this replica announced; another one is waited for. 3. An insert into the replica, were it active
    now, would take block numbers that are still to be announced.
    """
    for number in range(REQUESTS_MAX):
        with Disaster(tmp_path / str(number)) as two:
            two.insert("r1", 1)
            two.step("r2", "fetch")
            two.wipe()
            table, nodes = two["r1"].table, two.zookeeper.nodes

            def look(
                _: object, table: TablePaths = table, nodes: Collection[str] = nodes
            ) -> None:
                is_active = table.replica("r1").is_active in nodes
                assert not (is_active and table.restoring in nodes)

            two.zookeeper.on_commit(look)
            server = two.connect("r1")
            between = BetweenAnswers(server.session, number, partial(two.restore, "r1"))
            server.keeper.session = between
            with suppress(RmtError):
                start(server, identity="r1", incarnation="3", address=ADDRESS)
            restore_until_open(two, ["r1", "r2"])
            two.live_on()
            assert two.values("r1") == two.values("r2") == Counter([1])
        if not between.has_come:
            break
    assert 3 < number < REQUESTS_MAX - 1


class Late(ThroughKeeper[Keeper]):
    """Of a process that dies when it says which replica it makes; that arrives when it `lands`."""

    def __init__(self, session: Keeper) -> None:
        super().__init__(session)
        self._late: list[Op] = []

    def multi(self, ops: Sequence[Op]) -> list[str]:
        if any(isinstance(op, Create) and "/creation/" in op.path for op in ops):
            self._late = [*ops]
            _dies()
        return super().multi(ops)

    def lands(self) -> None:
        with suppress(Refused):
            self.session.multi(self._late)


def _counted(between: BeforeRequest, update: UpdateDefinition) -> UpdateDefinition:
    def counted(change: Callable[[TableDefinition], TableDefinition]) -> TableDefinition:
        between._next()
        return update(change)

    return counted


@pytest.mark.parametrize("older", [False, True])
def test_who_comes_late_leaves_the_catalog_as_the_replica_is(
    tmp_path: Path, older: bool
) -> None:
    """1. A process has noted in the catalog that r1 becomes another replica, and its request is on
    the way. 2. Another one begins, and stands still. 3. The request arrives, others restore the
    table, and the server of r1 runs. 4. The one of step 2 goes on. Workers ask the catalog which
    replica they work for.
    """
    for number in range(REQUESTS_MAX):
        with Disaster(tmp_path / str(number)) as two:
            if older:
                in_an_older_copy(two)
            else:
                two.insert("r1", 1)
                two.insert("r2", 2)
                two.wipe()
            first = two.connect("r1")
            first.keeper.session = late = Late(first.session)
            with suppress(Conflict):
                restore(first, b"r1")

            def meanwhile(two: Disaster = two, late: Late = late) -> None:
                late.lands()
                restore_until_open(two, ["r1", "r2"])
                two.live_on()

            second = two.connect("r1")
            second.keeper.session = between = BeforeRequest(second.session, number, meanwhile)
            second.update_definition = _counted(between, second.update_definition)
            with suppress(Conflict, NothingToRestore):
                restore(second, b"r1")
            if not between.has_come:
                break
            there = two["r1"].session.children(two["r1"].paths.creations)
            assert [two.catalog["r1"].creation] == there, number
            two.live_on()
            assert two.values("r1") == two.values("r2") == Counter([1, 2])
    assert 10 < number < REQUESTS_MAX - 1
