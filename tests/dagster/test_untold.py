"""What workers did and did not tell before they ended."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import dagster as dg
import pytest

from rmt_pipeline.dagster.record import ledger
from rmt_pipeline.dagster.record.untold import untold
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.work.step import PartDone, events_of
from rmt_pipeline.table import Table
from tests.support.local_replicas import Replicas

PART = PartName("all", 0, 0, 0)
FETCHED = PartDone(part=PART, kind="FETCH", rows=1, size_bytes=100, source_replica="r2")
DROPPED = PartDone(part=PartName("all", 0, 5, 999_999_999), kind="DROP_RANGE", sources=(PART,))


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    with Replicas(tmp_path, ["r1"]) as replicas:
        yield replicas.table("r1")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as opened:
        yield opened


def run_that_did(
    instance: dg.DagsterInstance,
    table: Table,
    did: Sequence[PartDone],
    tells: Sequence[PartDone],
) -> dg.RunRecord:
    @dg.op
    def op(context: dg.OpExecutionContext) -> None:
        table.store.part_log.note(events_of(did, 1.0, context.run_id))
        ledger.Recorder(context, table, "r1").parts(tells)

    @dg.job
    def job() -> None:
        op()

    run_id = job.execute_in_process(instance=instance).run_id
    [record] = instance.get_run_records(dg.RunsFilter(run_ids=[run_id]))
    return record


@pytest.mark.parametrize(
    ("tells", "left"),
    [
        ([], ["FETCH", "REMOVE"]),
        ([FETCHED], ["REMOVE"]),
        ([FETCHED, DROPPED], []),
    ],
    ids=["nothing", "that it came", "all"],
)
def test_that_a_part_came_and_that_it_went_are_two_things_to_tell(
    table: Table, instance: dg.DagsterInstance, tells: Sequence[PartDone], left: Sequence[str]
) -> None:
    run = run_that_did(instance, table, [FETCHED, DROPPED], tells)
    found = untold(table, "r1", instance, [run])
    assert [(one.part, one.kind) for one in found] == [(PART, kind) for kind in left]


def test_what_a_run_that_lives_has_told_for_it_is_told(
    table: Table, instance: dg.DagsterInstance
) -> None:
    """Two workers of a pool are harmless: one is started by hand while another one works."""
    dead = run_that_did(instance, table, [FETCHED], [])
    [left] = untold(table, "r1", instance, [dead])
    run_that_did(instance, table, [], [left])
    assert untold(table, "r1", instance, [dead]) == []
