"""Inserts and commands that no Dagster run made, as the log sensor's ticks tell of them."""

import json
import shutil
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partialmethod

import dagster as dg
import pyarrow as pa
import pytest

from rmt_pipeline.dagster import names
from rmt_pipeline.dagster.engine import STANDING
from rmt_pipeline.dagster.location import definition_of
from rmt_pipeline.dagster.record import ledger, unrecorded
from rmt_pipeline.dagster.work.watching import QueueWatch
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.upkeep.check import check_part
from rmt_pipeline.replica.upkeep.lost import replace_lost_parts
from rmt_pipeline.replica.work.pools import Pool
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.store.disk import LocalDisk
from rmt_pipeline.system import account
from rmt_pipeline.table import Table
from tests.support.site import Site, work_through
from tests.support.waiting import until

StoredEvent = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation

pytestmark = [
    pytest.mark.dagster,
    pytest.mark.zookeeper,
    pytest.mark.usefixtures("nothing_to_do"),
]


@pytest.fixture(autouse=True)
def standing_ends() -> Iterator[None]:
    yield
    STANDING.close()


@pytest.fixture
def table(site: Site) -> Iterator[Table]:
    yield from made(site)


@pytest.fixture
def other(site: Site) -> Iterator[Table]:
    yield from made(site)


def made(site: Site) -> Iterator[Table]:
    name = f"told_{uuid.uuid4().hex[:8]}"
    definition = definition_of(
        f"CREATE TABLE {name} (n UInt64, v String) ENGINE = "
        f"ReplicatedMergeTree('/t/{name}', '{{replica}}') "
        "PARTITION BY intDiv(n, 10) ORDER BY n"
    )
    site.r1.create_table(definition)
    yield site.r1.table(name)
    site.r1.drop_table("default", name)


class Daemon:
    """What Dagster's daemon does with the ticks of r1's log sensor."""

    def __init__(self, site: Site, instance: dg.DagsterInstance, table: Table) -> None:
        self._site = site
        self._instance = instance
        self._table = table
        self.cursor: str | None = None
        self.words = ""

    def tick(self, *, dies: bool = False, after: int | None = None) -> list[StoredEvent]:
        """The events of our table. `dies`: before it has stored the cursor, `after` events."""
        sensor = self._site.definitions.resolve_sensor_def("log_r1")
        context = dg.build_sensor_context(
            instance=self._instance, cursor=self.cursor, resources={"engine": self._site.engine}
        )
        result = sensor(context)
        assert isinstance(result, dg.SensorResult)
        for event in list(result.asset_events)[:after]:
            self._instance.report_runless_asset_event(event)
        if not dies:
            self.cursor = result.cursor
        self.words = str(result.skip_reason)
        prefix = names.table_key(self._table.definition.full_name)[0]
        return [event for event in result.asset_events if event.asset_key.path[0] == prefix]


@pytest.fixture
def daemon(
    site: Site, instance: dg.DagsterInstance, table: Table, monkeypatch: pytest.MonkeyPatch
) -> Daemon:
    monkeypatch.setattr(QueueWatch, "wait", partialmethod(QueueWatch.wait, wait_s=0))
    daemon = Daemon(site, instance, table)
    daemon.tick()  # of other tests' tables
    return daemon


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.uint64())})


def parts_of(events: Sequence[StoredEvent]) -> list[str]:
    """Of the flushes among these events."""
    found = []
    for event in events:
        if "parts" in event.metadata and event.partition is None:
            told = event.metadata["parts"]
            assert isinstance(told, dg.TableMetadataValue)
            found += [str(record.data["part"]) for record in told.records]
    return found


def test_an_insert_outside_of_dagster_has_the_events_of_a_flush(
    daemon: Daemon, table: Table, instance: dg.DagsterInstance
) -> None:
    inserted = table.insert(rows(1, 2, 11))
    *partitions, flush = daemon.tick()

    name = table.definition.full_name
    assert isinstance(flush, dg.AssetMaterialization)
    assert flush.asset_key == names.parts_key(name, "r1")
    assert flush.description == "2 insert: 3 rows"
    assert flush.metadata["parts insert"].value == 2
    assert flush.metadata["dagster/row_count"].value == 3
    told = flush.metadata["parts"]
    assert isinstance(told, dg.TableMetadataValue)
    assert {str(record.data["insert_ids"]) for record in told.records} == {inserted.insert_id}
    assert [(one.asset_key, one.partition) for one in partitions] == [
        (names.partitions_key(name, "r1"), "0"),
        (names.partitions_key(name, "r1"), "1"),
    ]
    assert set(instance.get_dynamic_partitions(names.partitions_name(name))) == {"0", "1"}
    assert f"{name}: recorded 2 new parts" in daemon.words


def test_many_inserts_are_one_flush_and_are_told_once_whoever_ticks(
    daemon: Daemon, table: Table
) -> None:
    for number in range(5):
        table.insert(rows(number))
    assert len(parts_of(events := daemon.tick())) == 5
    assert len(events) == 2, "the flush, and its partition"
    assert daemon.tick() == []
    STANDING.close()  # as when the code location is started again
    assert daemon.tick() == []
    table.insert(rows(7))
    assert parts_of(daemon.tick()) == ["0_5_5_0"]


def test_what_a_dagster_run_inserted_is_recorded_by_it(
    daemon: Daemon, table: Table, instance: dg.DagsterInstance
) -> None:
    run = instance.create_run_for_job(dg.JobDefinition(graph_def=dg.GraphDefinition("g")))
    table.insert(rows(1), run_id=run.run_id)
    assert daemon.tick() == []
    table.insert(rows(2), run_id="of another scheduler")
    assert parts_of(daemon.tick()) == ["0_1_1_0"]


def test_a_daemon_that_died_before_it_stored_the_cursor_doubles_nothing(
    daemon: Daemon, table: Table
) -> None:
    table.insert(rows(1))
    assert parts_of(daemon.tick(dies=True)) == ["0_0_0_0"]
    assert daemon.tick(dies=True) == []
    table.insert(rows(2))
    assert parts_of(daemon.tick()) == ["0_1_1_0"]
    assert daemon.tick() == []


def test_a_flush_of_which_some_events_were_stored_is_told_anew(
    daemon: Daemon, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rather twice than never."""
    monkeypatch.setattr(ledger, "PARTS_PER_EVENT_MAX", 2)
    for number in range(5):
        table.insert(rows(number))
    partition, *tables = daemon.tick(dies=True, after=2)
    assert [len(parts_of([one])) for one in tables] == [2, 2, 1]
    assert partition.partition == "0"
    assert len(parts_of(daemon.tick(dies=True))) == 5
    assert daemon.tick() == []


def test_a_tick_tells_no_more_than_it_may_and_the_next_goes_on(
    daemon: Daemon, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unrecorded, "PARTITIONS_MAX", 2)
    monkeypatch.setattr(unrecorded, "PARTS_MAX", 3)
    for number in (1, 2, 3, 4, 11, 21, 31):
        table.insert(rows(number))
    told = [parts_of(daemon.tick()) for _ in range(4)]
    assert told == [
        ["0_0_0_0", "0_1_1_0", "0_2_2_0"],
        ["0_3_3_0", "1_0_0_0"],
        ["2_0_0_0", "3_0_0_0"],
        [],
    ]


def test_a_dagster_that_is_new_tells_the_last_hour(
    site: Site, daemon: Daemon, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or was upgraded: not the whole past at once."""
    table.insert(rows(1))
    hour_s = unrecorded.FIRST_TOLD_S
    note = table.store.part_log.note
    [event] = [one for one in table.store.part_log.events() if one.event_type == "NewPart"]
    for number, age_s in enumerate((hour_s + 60, hour_s - 60), 1):
        note([replace(event, part=f"0_{number}_{number}_0", time_s=event.time_s - age_s)])
    daemon.cursor = None
    assert parts_of(daemon.tick()) == ["0_0_0_0", "0_2_2_0"]
    assert daemon.tick() == []
    monkeypatch.setattr(unrecorded, "FIRST_TOLD_S", 0.0)
    table.insert(rows(2))
    assert parts_of(daemon.tick()) == ["0_1_1_0"], "who was told of is told all"


def test_a_table_that_was_empty_when_dagster_went_away_is_told_whole_when_it_is_back(
    daemon: Daemon, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing had ever been told of it, and it was away for longer than that hour."""
    table.insert(rows(1))
    monkeypatch.setattr(unrecorded, "FIRST_TOLD_S", 0.0)
    assert parts_of(daemon.tick()) == ["0_0_0_0"]
    assert daemon.tick() == []


def test_a_table_that_is_detached_for_a_while_is_not_told_anew(
    site: Site, daemon: Daemon, table: Table
) -> None:
    table.insert(rows(1))
    assert parts_of(daemon.tick()) == ["0_0_0_0"]
    name = table.definition.name
    site.r1.detach_table("default", name, permanently=False)
    daemon.tick()
    site.r1.attach_table("default", name)
    assert daemon.tick() == []


def test_each_command_outside_of_dagster_is_an_event_of_its_partition(
    daemon: Daemon, table: Table, other: Table
) -> None:
    """With its account, and the parts that went and came; and nobody tells of it twice."""
    other.insert(rows(1, 2))
    table.insert(rows(3))
    table.insert(rows(11))
    daemon.tick()
    table.replace_partition("0", other)
    table.replace(rows(4), partition="0")
    table.attach_partition("0", other)
    table.freeze("1", name=table.definition.name)
    table.store.detach_copy(PartName("1", 0, 0, 0), "")
    table.attach("1")
    table.move_partition("0", other)
    assert [what(one) for one in daemon.tick() if isinstance(one, dg.AssetObservation)] == [
        ("REPLACE PARTITION", "0", "0_0_0_0", "0_2_2_0", "none", 1, 2),
        ("INSERT OVERWRITE", "0", "0_2_2_0", "0_4_4_0", "none", 2, 1),
        ("ATTACH PARTITION FROM", "0", "none", "0_6_6_0", "none", 0, 2),
        ("FREEZE PARTITION", "1", "none", "none", "1_0_0_0", 0, 0),
        ("ATTACH PARTITION", "1", "none", "1_1_1_0", "none", 0, 1),
        ("MOVE PARTITION", "0", "0_4_4_0 0_6_6_0", "none", "none", 3, 0),
    ]


def test_what_is_taken_from_snapshots_and_detached_parts_and_cleared_is_told_too(
    site: Site, daemon: Daemon, table: Table
) -> None:
    table.insert(pa.table({"n": [1, 11], "v": ["a", "b"]}))
    daemon.tick()
    name = table.definition.name
    table.freeze(name=name)
    table.unfreeze(name, "1")
    table.unfreeze(name)
    table.freeze("1", name=name)
    Session(site.r1).execute(f"SYSTEM UNFREEZE WITH NAME '{name}'")
    table.store.detach_copy(PartName("1", 0, 0, 0), "broken")
    table.drop_detached(name="broken_1_0_0_0")
    clear = f"ALTER TABLE {name} CLEAR COLUMN v IN PARTITION 1 SETTINGS alter_sync = 0"
    Session(site.r1).execute(clear)
    assert [what(one) for one in daemon.tick() if isinstance(one, dg.AssetObservation)] == [
        ("FREEZE PARTITION", "0", "none", "none", "0_0_0_0", 0, 0),
        ("FREEZE PARTITION", "1", "none", "none", "1_0_0_0", 0, 0),
        ("UNFREEZE PARTITION", "1", "none", "none", "1_0_0_0", 0, 0),
        ("UNFREEZE PARTITION", "0", "none", "none", "0_0_0_0", 0, 0),
        ("FREEZE PARTITION", "1", "none", "none", "1_0_0_0", 0, 0),
        ("SYSTEM UNFREEZE", "1", "none", "none", "1_0_0_0", 0, 0),
        ("DROP DETACHED PARTITION", "1", "none", "none", "1_0_0_0", 0, 0),
        ("CLEAR COLUMN v", "1", "none", "none", "1_0_0_0", 0, 0),
    ]


def what(event: dg.AssetObservation) -> tuple[object, ...]:
    told = {name: value.value for name, value in event.metadata.items()}
    assert (told["user"], told["asked for through"]) == (account(), "r1")
    which = ("which went", "which came", "which it was about")
    shown = (*which, "rows that went", "rows that came")
    return told["command"], event.partition, *(told[name] for name in shown)


def test_parts_that_are_broken_or_lost_are_told_whoever_finds_them(
    site: Site, daemon: Daemon, table: Table
) -> None:
    """And once, also by a daemon that died before it stored its cursor."""
    table.insert(rows(1, 11))
    daemon.tick()
    gone = PartName("0", 0, 0, 0)
    shutil.rmtree(table.store.directory(gone))
    check_part(table.replica, gone)
    [event] = daemon.tick(dies=True)
    assert isinstance(event, dg.AssetObservation)
    assert event.asset_key == names.parts_key(table.definition.full_name, "r1")
    assert event.description is not None
    assert event.description.startswith("1 BROKEN: ")
    assert parts_of([event]) == [str(gone)]
    assert daemon.tick() == []

    def is_noted() -> bool:
        """By us, or by the server, once it has made the table active."""
        work_through(site.r1, table)  # its disk is looked at, and has not the part either
        replace_lost_parts(table.replica)
        return any(one.event_type == "LostPart" for one in table.store.part_log.events())

    until(is_noted)
    [event] = daemon.tick()
    assert event.description is not None
    assert event.description.startswith("1 LOST: ")
    assert "rows are lost" in event.description
    assert f"{table.definition.full_name}: recorded 0 new parts, 1 that are" in daemon.words


@pytest.mark.parametrize("cursor", ["nonsense", "[1]", "12"])
def test_a_cursor_that_somebody_has_set_is_as_none(
    daemon: Daemon, table: Table, cursor: str
) -> None:
    table.insert(rows(1))
    daemon.cursor = cursor
    assert parts_of(daemon.tick()) == ["0_0_0_0"]
    daemon.cursor = json.dumps({table.definition.uuid: cursor})
    daemon.tick()
    assert daemon.tick() == []


def test_a_waiting_tick_ends_when_something_was_inserted(
    site: Site, daemon: Daemon, table: Table, instance: dg.DagsterInstance
) -> None:
    untold = unrecorded.Unrecorded(site.r1, instance, daemon.cursor)
    looks = 0

    def active() -> dict[Pool, str]:
        nonlocal looks
        looks += 1
        if looks == 2:
            table.insert(rows(1))
        assert looks < 30, "it goes on waiting"
        return {}

    QueueWatch(site.r1).wait(active, until=untold.there, wait_s=600)
    assert looks >= 2
    assert untold.there()


def test_at_rest_nothing_is_read_and_zookeeper_is_not_asked(
    site: Site,
    daemon: Daemon,
    table: Table,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table.insert(rows(1))
    daemon.tick()
    assert daemon.cursor is not None
    assert table.definition.uuid in json.loads(daemon.cursor)

    def refuse(*_: object) -> None:
        raise AssertionError

    def read(disk: LocalDisk, path: str) -> None:
        assert disk.size(path) is None, f"{path} is read"

    monkeypatch.setattr(type(site.r1), "keeper", refuse)
    monkeypatch.setattr(LocalDisk, "read", read)
    untold = unrecorded.Unrecorded(site.r1, instance, daemon.cursor)
    assert untold.told() == []
