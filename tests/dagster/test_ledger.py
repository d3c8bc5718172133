"""What Dagster is told about parts."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from rmt_pipeline.dagster import names
from rmt_pipeline.dagster.record import ledger
from rmt_pipeline.dagster.work import workers
from rmt_pipeline.exchange.peers import FetchRequest
from rmt_pipeline.protocol.errors import Unavailable
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.assign.explain import Explained, ExplainedRange
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.work.step import PartDone
from tests.support.local_replicas import DirectPeers, Replicas, by_tens


def part(number: int, *, kind: str = "FETCH", rows: int = 10, lag_s: float = 0.02) -> PartDone:
    return PartDone(
        part=PartName("201301", number, number, 0),
        kind=kind,
        rows=rows,
        size_bytes=100,
        source_replica="r1",
        lag_s=lag_s,
    )


def test_a_flush_is_counted_by_kind_and_lists_every_part() -> None:
    metadata = ledger.parts_metadata([part(1), part(2, rows=5), part(3, kind="MERGE_PARTS")])
    assert (metadata["rows"], metadata["bytes"]) == (25, 300)
    assert list(metadata)[-1] == "parts", "numbers first: the table is long"
    assert metadata["parts FETCH"] == 2
    assert metadata["parts MERGE_PARTS"] == 1
    assert metadata["fetch lag p50 ms"] == 20.0
    table = metadata["parts"]
    assert isinstance(table, dg.TableMetadataValue)
    assert [record.data["part"] for record in table.records] == [
        "201301_1_1_0",
        "201301_2_2_0",
        "201301_3_3_0",
    ]


def test_the_columns_of_the_table_are_those_of_its_rows() -> None:
    table = ledger.parts_table([part(1)])
    assert list(table.records[0].data) == [column.name for column in table.schema.columns]


def test_a_merge_says_what_went_in_and_what_came_out() -> None:
    merges = [
        PartDone(
            part=PartName("201301", number, number + 1, 1),
            kind="MERGE_PARTS",
            rows=7,
            size_bytes=50,
            rows_in=10,
            bytes_in=80,
            seconds=number,
        )
        for number in (1, 3)
    ]
    untold = part(9, kind="MERGE_PARTS")
    metadata = ledger.parts_metadata([*merges, untold, part(8)])
    assert {name: value for name, value in metadata.items() if name.startswith("merge ")} == {
        "merge rows in": 20,
        "merge rows out": 14,
        "merge bytes in": 160,
        "merge bytes out": 100,
        "merge seconds max": 3,
        "merge bytes per second": 40,
    }
    for others in ([part(8)], [untold]):
        assert not any(name.startswith("merge ") for name in ledger.parts_metadata(others))


def test_a_run_says_what_is_worth_merging() -> None:
    ranges = (
        ExplainedRange("a", ("a_0_0_0", "a_1_1_0"), 20, 12.345, ""),
        ExplainedRange("a", tuple(f"a_{n}_{n}_0" for n in range(4)), 40, 50.0, "unbalanced"),
        ExplainedRange("a", ("a_3_3_0", "a_5_5_0"), 0, None, "block 4 is being inserted"),
    )
    metadata = workers.explained_metadata(Explained(ranges, "1000 merges are queued"))
    assert metadata["merge limit"] == "1000 merges are queued"
    table = metadata["merge ranges"]
    assert isinstance(table, dg.TableMetadataValue)
    assert [tuple(record.data.values()) for record in table.records] == [
        ("a", "a_0_0_0 a_1_1_0", 20, 12.3, "may be merged"),
        ("a", "4 parts a_0_0_0 … a_3_3_0", 40, 50.0, "unbalanced"),
        ("a", "a_3_3_0 a_5_5_0", 0, 0.0, "block 4 is being inserted"),
    ]
    assert "merge limit" not in workers.explained_metadata(Explained(ranges, ""))


def test_results_that_differ_are_counted() -> None:
    name = "results that differ from another replica's"
    failed = [
        PartDone(part(1).part, "MERGE_PARTS", error="ours is 1, theirs 2", differs=True),
        PartDone(part(2).part, "FETCH", error="nobody has it"),
    ]
    assert ledger.failures_metadata(failed)[name] == 1
    assert name not in ledger.failures_metadata(failed[1:])


def test_the_sources_of_a_large_merge_are_a_range() -> None:
    sources = tuple(PartName("201301", number, number, 0) for number in range(31))
    merged = PartDone(part=PartName("201301", 0, 30, 1), kind="MERGE_PARTS", sources=sources)
    [row] = ledger.parts_table([merged]).records
    assert row.data["sources"] == "31 parts, 201301_0_0_0 … 201301_30_30_0"


def test_a_column_with_nothing_in_it_is_left_out() -> None:
    """Pages of the UI load a hundred such tables."""
    fetched = replace(part(1), seconds=0.1)
    some = {"part", "kind", "rows", "bytes", "lag_ms", "seconds", "source_replica"}
    for done, columns in (
        ([fetched], some),
        ([fetched, replace(fetched, sources=(part(2).part,))], some | {"sources"}),
        (
            [PartDone(part(1).part, "FETCH", error="no")],
            {"part", "kind", "rows", "bytes", "error"},
        ),
    ):
        table = ledger.parts_table(done)
        assert {column.name for column in table.schema.columns} == columns
        assert all(set(record.data) == columns for record in table.records)


@pytest.mark.parametrize("is_there", [True, False], ids=["explained", "dropped"])
def test_a_worker_s_run_ends_with_what_is_worth_merging(tmp_path: Path, is_there: bool) -> None:
    with Replicas(tmp_path, ["r1"]) as replicas:
        for value in range(2):
            replicas.insert("r1", value)
        if not is_there:
            replicas["r1"].keeper.close()

        @dg.op
        def works(context: dg.OpExecutionContext) -> None:
            workers.explain(context, [replicas.table("r1")])

        @dg.job
        def job() -> None:
            works()

        result = job.execute_in_process()
    [output] = result.filter_events(lambda event: event.is_successful_output)
    found = output.step_output_data.metadata.get(
        f"{replicas.table('r1').definition.full_name}: merge ranges"
    )
    assert (found is not None) is is_there
    if found is not None:
        assert [record.data["parts"] for record in found.records] == ["all_0_0_0 all_1_1_0"]


class Events:
    """What a run writes down."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance = instance
        self.events: list[dg.AssetMaterialization | dg.AssetObservation] = []

    def log_event(self, event: dg.AssetMaterialization | dg.AssetObservation) -> None:
        self.events.append(event)


def test_a_merged_part_tells_the_inserts_and_runs_of_its_sources(tmp_path: Path) -> None:
    """At most so many of them, and how many more there are."""
    with Replicas(tmp_path, ["r1"]) as replicas, dg.DagsterInstance.ephemeral() as instance:
        table = replicas.table("r1")
        made = [table.insert([{"n": n}], run_id=f"run-{n % 2}") for n in range(7)]
        optimize_partition(replicas["r1"], "all", final=True, skip_merged=False)
        done = replicas.work_off()
        events = Events(instance)
        ledger.Recorder(events, table, "r1").parts(done)
        metadata = events.events[-1].metadata
        [row] = [one for one in metadata["parts"].records if one.data["part"] == "all_0_6_1"]
        shown = " ".join(one.insert_id for one in made[:2])
        assert row.data["insert_ids"] == f"{shown} and 5 more"
        assert row.data["run_ids"] == "run-0 run-1"
        links = [metadata["inserted by run"], metadata["inserted by run 2"]]
        assert links == [dg.MetadataValue.dagster_run(f"run-{n}") for n in range(2)]


def test_of_many_mutated_parts_the_first_are_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one flush: how many parts are in one depends on how busy the machine is."""
    monkeypatch.setattr(ledger, "MUTATED_EVENTS_MAX", 2)
    with Replicas(tmp_path, ["r1"]) as replicas:
        table = replicas.table("r1")
        for value in range(3):
            replicas.insert("r1", value)
        table.mutate("DELETE WHERE n < 2", settings={"mutations_sync": 0})
        assign_mutations(replicas["r1"])
        done = replicas.work_off()
        events = list(ledger.mutated_parts(table, "r1", done))
    mutated = [str(one.part) for one in done if one.kind == "MUTATE_PART"]
    assert len(mutated) == 3
    assert [event.metadata["part"].value for event in events] == mutated[:2]


def test_a_partition_that_holds_nothing_leaves_dagster_s_partitions(tmp_path: Path) -> None:
    """Whoever dropped it: here nobody of Dagster's. It is back with its first row."""
    with Replicas(tmp_path, ["r1"], define=by_tens) as replicas:
        table, events = replicas.table("r1"), Events(dg.DagsterInstance.ephemeral())
        recorder = ledger.Recorder(events, table, "r1")
        replicas.insert("r1", 1)
        replicas.insert("r1", 11)
        recorder.parts(ledger.inserted(table, [PartName("0", 0, 0, 0), PartName("1", 0, 0, 0)]))
        assert sorted(events.instance.get_dynamic_partitions("t_partition")) == ["0", "1"]
        table.drop_partitions(["1"], settings={"alter_sync": 0})
        recorder.parts(replicas.work_off())
        assert events.instance.get_dynamic_partitions("t_partition") == ["0"]
        [command] = [one for one in events.events if isinstance(one, dg.AssetObservation)]
        assert command.asset_key == names.partitions_key("default.t", "r1")
        assert command.partition == "1"
        told = {name: value.value for name, value in command.metadata.items()}
        assert (told["command"], told["asked for through"]) == ("DROP_RANGE", "r1")
        assert told["user"] == "user of r1"
        assert (told["rows that went"], told["which went"]) == (1, "1_0_0_0")
        *_, last, flush = events.events
        assert flush.asset_key == names.parts_key("default.t", "r1")
        assert (last.partition, last.metadata["dagster/row_count"].value) == ("1", 0)
        again = replicas.insert("r1", 12)
        recorder.parts(ledger.inserted(table, [again]))
        assert sorted(events.instance.get_dynamic_partitions("t_partition")) == ["0", "1"]
        events.instance.dispose()


def test_partitions_that_dagster_has_under_an_earlier_name_are_there_under_the_new_one(
    tmp_path: Path,
) -> None:
    """The earlier name of `sales.t` was that of the table `sales_t`, too."""
    with (
        Replicas(
            tmp_path, ["r1"], define=lambda name: replace(by_tens(name), database="sales")
        ) as replicas,
        dg.DagsterInstance.ephemeral() as instance,
    ):
        table = replicas.table("r1")
        replicas.insert("r1", 1)
        instance.add_dynamic_partitions("sales_t_partition", ["0", "gone"])
        recorder = ledger.Recorder(Events(instance), table, "r1")
        recorder.parts(ledger.inserted(table, [replicas.insert("r1", 11)]))
        assert sorted(instance.get_dynamic_partitions("sales.t_partition")) == ["0", "1"]


def test_dagster_is_asked_once_for_the_partitions_that_flushes_touch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer takes longer than an event does to store."""
    with (
        Replicas(tmp_path, ["r1"], define=by_tens) as replicas,
        dg.DagsterInstance.ephemeral() as instance,
    ):
        asked = []
        answer = instance.get_dynamic_partitions

        def get_dynamic_partitions(name: str) -> object:
            asked.append(name)
            return answer(name)

        monkeypatch.setattr(instance, "get_dynamic_partitions", get_dynamic_partitions)
        table = replicas.table("r1")
        recorder = ledger.Recorder(Events(instance), table, "r1")
        for value in (1, 2, 11, 3, 12):
            recorder.parts(ledger.inserted(table, [replicas.insert("r1", value)]))
        assert asked == ["t_partition"] * 2
        assert sorted(answer("t_partition")) == ["0", "1"]


def test_a_partition_that_another_process_forgot_is_back_with_its_next_rows(
    tmp_path: Path,
) -> None:
    """A worker knew it. A maintenance run drops it; then rows come that the worker tells of, in
    the second of two flushes only.
    """
    with (
        Replicas(tmp_path, ["r1"], define=by_tens) as replicas,
        dg.DagsterInstance.ephemeral() as instance,
    ):
        table = replicas.table("r1")
        worker, other = (ledger.Recorder(Events(instance), table, "r1") for _ in range(2))
        worker.parts(ledger.inserted(table, [replicas.insert("r1", 1)]))
        table.drop_partitions(["0"], settings={"alter_sync": 0})
        other.parts(replicas.work_off())
        assert instance.get_dynamic_partitions("t_partition") == []
        replicas.insert("r1", 2)
        worker.parts(ledger.inserted(table, [replicas.insert("r1", 3)]))
        assert instance.get_dynamic_partitions("t_partition") == ["0"]


def test_a_partition_forgotten_before_a_late_fetch_is_back_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker knew it by two of its three blocks, and both are dropped. The third, of the block in
    between, is fetched afterwards.
    """

    def nobody_has_it(_: object, requests: Sequence[FetchRequest], *__: object) -> object:
        yield [(request, Unavailable("not now")) for request in requests]

    with (
        Replicas(tmp_path, define=by_tens) as replicas,
        dg.DagsterInstance.ephemeral() as instance,
    ):
        table = replicas.table("r1")
        worker, other = (ledger.Recorder(Events(instance), table, "r1") for _ in range(2))
        parts = [replicas.insert(name, 1 + at) for at, name in enumerate(("r1", "r2", "r1"))]
        worker.parts(ledger.inserted(table, [parts[0], parts[2]]))
        for part in (parts[0], parts[2]):
            table.drop_part(part, settings={"alter_sync": 0})
        with monkeypatch.context() as patch:
            patch.setattr(DirectPeers, "fetch", nobody_has_it)
            for _ in parts:
                other.parts(replicas.step("r1", "fetch").done)
        assert table.parts() == []
        assert instance.get_dynamic_partitions("t_partition") == []
        replicas.clock.sleep_s(60.0)
        fetched = replicas.work_off("r1")
        assert [part.part for part in fetched] == [parts[1]]
        worker.parts(fetched)
        assert instance.get_dynamic_partitions("t_partition") == ["0"]


def test_rows_that_come_while_their_partition_is_being_forgotten_bring_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker records them just before another process, which has found nothing there, has
    Dagster forget the partition.
    """
    with (
        Replicas(tmp_path, ["r1"], define=by_tens) as replicas,
        dg.DagsterInstance.ephemeral() as instance,
    ):
        table, forget = replicas.table("r1"), instance.delete_dynamic_partition
        worker, other = (ledger.Recorder(Events(instance), table, "r1") for _ in range(2))

        def late(name: str, partition: str) -> None:
            worker.parts(ledger.inserted(table, [replicas.insert("r1", 2)]))
            forget(name, partition)

        worker.parts(ledger.inserted(table, [replicas.insert("r1", 1)]))
        table.drop_partitions(["0"], settings={"alter_sync": 0})
        monkeypatch.setattr(instance, "delete_dynamic_partition", late)
        other.parts(replicas.work_off())
        assert instance.get_dynamic_partitions("t_partition") == ["0"]


def test_a_drop_or_detach_is_one_event_of_each_partition_on_each_server(tmp_path: Path) -> None:
    """With its account, its parts, and as what it was asked for; however many partitions."""
    partitions = [str(number) for number in range(30)]
    with Replicas(tmp_path, define=by_tens) as replicas:
        table = replicas.table("r1")
        table.insert([{"n": 10 * number} for number in range(30)])
        replicas.work_off()
        table.drop_partitions(partitions[:29], detach=True, settings={"alter_sync": 0})
        table.drop_part(PartName("29", 0, 0, 0), settings={"alter_sync": 0})
        for name in ("r1", "r2"):
            events = Events(dg.DagsterInstance.ephemeral())
            ledger.Recorder(events, replicas.table(name), name).parts(replicas.work_off(name))
            told = [one for one in events.events if isinstance(one, dg.AssetObservation)]
            assert {one.asset_key for one in told} == {names.partitions_key("default.t", name)}
            assert sorted(str(one.partition) for one in told) == sorted(partitions)
            for one in told:
                said = {key: value.value for key, value in one.metadata.items()}
                command = "DROP_PART" if one.partition == "29" else "DETACH PARTITION"
                assert (said["command"], said["user"]) == (command, "user of r1")
                assert said["which went"] == f"{one.partition}_0_0_0"
            events.instance.dispose()


def test_replaced_and_moved_partitions_are_told_on_servers_that_others_asked(
    tmp_path: Path,
) -> None:
    """By the command, its account, and the parts that went and came; a partition that is emptied
    leaves Dagster's, one that has its first row joins them. Of the server that was asked, the log
    sensor tells (`test_unrecorded`).
    """
    with Replicas(tmp_path / "t", define=by_tens) as t:
        s = Replicas(tmp_path / "s", define=lambda name: other_of(by_tens(name)), beside=t)
        t.insert("r1", 1)
        t.insert("r1", 11)
        s.insert("r1", 2)
        s.insert("r1", 3)
        both = {"t": t, "s": s}
        instances = {name: Events(dg.DagsterInstance.ephemeral()) for name in ("r1", "r2")}
        for name in ("r1", "r2"):  # what they have, before
            tell(both, instances[name], name)
        now = {"alter_sync": 0}
        for name, events in instances.items():
            events.events.clear()
            assert partitions_of(events, "t") == ["0", "1"], name
        t.table("r1").replace_partition("0", s.table("r1"), settings=now)
        t.table("r1").move_partition("1", s.table("r1"), settings=now)
        for name, events in instances.items():
            tell(both, events, name)
            told = {
                (event.asset_key, event.partition): {
                    key: value.value for key, value in event.metadata.items()
                }
                for event in events.events
                if isinstance(event, dg.AssetObservation)
            }
            assert partitions_of(events, "t") == ["0"]
            assert partitions_of(events, "s") == ["0", "1"]
            events.instance.dispose()
            if name == "r1":
                assert told == {}
                continue
            t_asset, s_asset = (
                names.partitions_key(f"default.{table}", name) for table in ("t", "s")
            )
            assert told.keys() == {(t_asset, "0"), (t_asset, "1"), (s_asset, "1")}
            for one in told.values():
                assert (one["user"], one["asked for through"]) == ("user of r1", "r1")
            replaced, left, arrived = told[t_asset, "0"], told[t_asset, "1"], told[s_asset, "1"]
            assert (replaced["command"], replaced["which went"]) == ("REPLACE_RANGE", "0_0_0_0")
            assert replaced["which came"] == "0_2_2_0 0_3_3_0"
            assert (replaced["rows that went"], replaced["rows that came"]) == (1, 2)
            assert (left["command"], left["which went"]) == ("DROP_RANGE", "1_0_0_0")
            assert (left["which came"], left["rows that went"]) == ("none", 1)
            assert (arrived["which went"], arrived["which came"]) == ("none", "1_0_0_0")


def other_of(definition: TableDefinition) -> TableDefinition:
    engine = replace(definition.engine, zookeeper_path="/tables/s")
    return replace(definition, name="s", engine=engine)


def tell(tables: dict[str, Replicas], events: Events, name: str) -> None:
    """What the server's workers do, and tell Dagster."""
    for replicas in tables.values():
        done = replicas.work_off(name)
        table = replicas.table(name)
        there = ledger.inserted(table, [one.name for one in table.parts()])
        ledger.Recorder(events, table, name).parts([*there, *done])


def partitions_of(events: Events, table: str) -> list[str]:
    found = events.instance.get_dynamic_partitions(names.partitions_name(f"default.{table}"))
    return sorted(found)
