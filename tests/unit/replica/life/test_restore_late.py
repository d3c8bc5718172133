"""A replica that comes when the table was restored without it: it joins, as a new one does."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmt_pipeline.protocol.alter.commands import AddColumn, AlterCommand, DropColumn
from rmt_pipeline.protocol.errors import (
    Conflict,
    MetadataMismatch,
    OutcomeUnknown,
    ReplicaRetired,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.replica.alter.request import request_alter
from rmt_pipeline.replica.life import latecomer
from rmt_pipeline.replica.life.create import create_replica
from rmt_pipeline.replica.life.drop import drop_dead_replica
from rmt_pipeline.replica.life.restore import restore
from rmt_pipeline.system import EventWaker
from rmt_pipeline.zookeeper.keeper import Create, Op
from tests.support.local_replicas import definition_of
from tests.support.lost_answers import before, faulty
from tests.support.restoring import Disaster


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Disaster]:
    """r1 is there alone, with the row 1. The disk of r2 has that too, and the row 2."""
    with Disaster(tmp_path) as disaster:
        disaster.insert("r1", 1)
        disaster.step("r2", "fetch")
        disaster.insert("r2", 2)
        disaster.wipe()
        disaster.restore("r1")
        drop_dead_replica(disaster["r1"].session, disaster["r1"].table, "r2")
        disaster.live_on(["r1"])
        yield disaster


def altered(two: Disaster, command: AlterCommand) -> None:
    """By r1, which takes it up."""
    two.start("r1")
    request_alter(
        lambda: two["r1"], lambda _: [command], QuerySettings(alter_sync=0), EventWaker
    )
    two.step("r1", "fetch")


def test_who_has_another_structure_is_told_so_and_nothing_is_changed(two: Disaster) -> None:
    """What it is named in the catalog stays, and so do its parts. When the structures are equal it
    joins, with the number of the table's last ALTER, and with the columns that these have dropped.
    """
    altered(two, AddColumn(Column("x", "Int64")))
    before, parts = two.catalog["r2"], two["r2"].store.parts()
    for _ in range(2):
        with pytest.raises(MetadataMismatch, match="it has 1 columns here, 2 there"):
            two.restore("r2")
        two["r2"].session.exists("/")  # a session that lives on removes the lock that it left
    assert two.catalog["r2"] == before
    assert two["r2"].store.parts() == parts
    altered(two, DropColumn("x"))
    assert two.restore("r2").joined
    now = two.catalog["r2"]
    assert now.metadata_version == 2
    assert [(one.version, one.column, one.renamed_to) for one in now.history] == [(2, "x", "")]
    assert now.creation in two["r2"].session.children(two["r2"].paths.creations)
    two.live_on()
    assert two.values("r1") == two.values("r2") == Counter([1])


def test_the_number_of_an_alter_that_the_table_never_had_is_forgotten(two: Disaster) -> None:
    """r2 alone had carried out two, and the second one took back the first. The next ones of the
    table have the same numbers: r2 must not take them for those that it has.
    """
    two.catalog["r2"] = replace(two.catalog["r2"], metadata_version=2)
    assert two.restore("r2").joined
    assert two.catalog["r2"].metadata_version == 0
    altered(two, AddColumn(Column("x", "Int64")))
    two.live_on()
    assert two.catalog["r2"].columns == two.catalog["r1"].columns
    assert len(two.catalog["r2"].columns) == 2


def test_who_stood_still_while_another_one_joined_sets_nothing_aside(
    two: Disaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. A process has the lock, and stands still until its session has ended. 2. Another one of r2
    joins; its server clones, and takes an insert. 3. The first one goes on: of the parts that it
    finds now, nobody else may have the rows.
    """
    first, set_aside = two.connect("r2"), latecomer._set_aside

    def late(*what: Any) -> Iterator[tuple[PartName, str]]:
        monkeypatch.undo()
        two.zookeeper.expire(first.session.session_id)
        assert two.restore("r2").joined
        two.live_on()
        two.insert("r2", 3)
        return set_aside(*what)

    monkeypatch.setattr(latecomer, "_set_aside", late)
    with pytest.raises(ReplicaRetired):
        restore(first, b"r2")
    two.work_off()
    assert two.values("r1") == two.values("r2") == Counter([1, 3])


def comes(two: Disaster, name: str) -> None:
    """Another replica of the table, just then."""
    create_replica(two.zookeeper.connect(), definition_of(name), name.encode())


@pytest.mark.parametrize("what", ["refused", "unanswered"])
def test_what_a_try_has_set_aside_that_ended_with_an_error_is_told_by_that(
    two: Disaster, what: str
) -> None:
    """The next try does not find it on the disk any more."""
    first = two.connect("r2")

    def joins(op: Op) -> bool:
        return isinstance(op, Create) and op.path == first.paths.root

    strike = (
        before(first.session, joins, lambda: comes(two, "r3"))
        if what == "refused"
        else faulty(first.session, joins, landed=False)
    )
    with strike, pytest.raises((Conflict, OutcomeUnknown)) as raised:
        restore(first, b"r2")
    [name] = [one for one in first.store.detached() if one.startswith("ignored")]
    part = name.removeprefix("ignored_")
    told = f"{part} was left out: no other replica has it: its 1 rows are set aside"
    assert told in str(raised.value)
    first.session.exists("/")  # a session that lives on removes the lock that it left
    assert two.restore("r2").joined
