"""TTL merges from the choice of a leader to the same rows on every replica."""

import datetime as dt
from dataclasses import replace

import pytest

from rmt_pipeline.protocol.background import Background
from rmt_pipeline.protocol.log.codec import decode
from rmt_pipeline.protocol.log.entry import MERGE_TTL_DELETE, MERGE_TTL_RECOMPRESS
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.table import TableSettings
from rmt_pipeline.protocol.table import Column, TableDefinition
from rmt_pipeline.replica.assign.explain import explain_merges
from rmt_pipeline.replica.assign.merges import (
    Assigned,
    Nothing,
    optimize_partition,
    select_and_assign,
)
from rmt_pipeline.zookeeper.keeper import SetData
from tests.support.local_replicas import BEGAN_S, Replicas, definition_of

HOUR_S = 3600


def with_ttl(replica: str) -> TableDefinition:
    columns = (Column("n", "UInt64"), Column("t", "DateTime"))
    ttl = "t, t + toIntervalDay(1) RECOMPRESS CODEC(NONE)"
    return replace(definition_of(replica, columns), ttl=ttl)


@pytest.fixture
def replicas(tmp_path):
    with Replicas(tmp_path, define=with_ttl) as opened:
        yield opened


def insert(replicas: Replicas, *rows: tuple[int, int]) -> PartName:
    """One part of rows (n, seconds until they expire)."""
    began = dt.datetime.fromtimestamp(BEGAN_S, dt.UTC)
    data = [{"n": n, "t": began + dt.timedelta(seconds=after)} for n, after in rows]
    [part] = replicas.table("r1").insert(data).parts
    return part


def assign(replicas: Replicas) -> Assigned:
    outcome = select_and_assign(replicas["r1"], aggressive=False)
    assert isinstance(outcome, Assigned), outcome
    return outcome


def carry_out(replicas: Replicas) -> None:
    """On both replicas; the second, which fetches nothing but inserts, does it a day later."""
    assert all(not done.error for done in replicas.step("r1").done)
    replicas.clock.passed_s += 24 * HOUR_S
    while replicas.step("r2", "fetch").done:
        pass
    assert all(not done.error for done in replicas.step("r2").done)


def rows(replicas: Replicas, name: str) -> list[int]:
    return sorted(replicas.table(name).dataset().to_table().column("n").to_pylist())


def test_nothing_is_due_before_its_time(replicas):
    """P20."""
    insert(replicas, (1, HOUR_S))
    assert isinstance(select_and_assign(replicas["r1"], aggressive=False), Nothing)


def test_expired_rows_go_at_the_time_that_was_decided_on_every_replica(replicas):
    """P20. One part alone is merged with itself; what expires later stays, on the late one too."""
    part = insert(replicas, (1, -5), (2, 2 * HOUR_S))
    outcome = assign(replicas)
    entry = decode(outcome.data)
    assert (entry.sources, entry.merge_type) == ((part,), MERGE_TTL_DELETE)
    carry_out(replicas)
    for name in ("r1", "r2"):
        assert rows(replicas, name) == [2]
        ttl = replicas[name].store.manifest(outcome.result).ttl
        assert ttl.deleted_s == int(BEGAN_S)
    one, other = (replicas[name].store.manifest(outcome.result) for name in ("r1", "r2"))
    assert one == other


def test_a_part_that_has_expired_leaves_an_empty_one(replicas):
    """P20."""
    insert(replicas, (1, -5))
    insert(replicas, (2, -7))
    outcome = assign(replicas)
    assert [str(part) for part in outcome.sources] == ["all_0_0_0", "all_1_1_0"]
    carry_out(replicas)
    for name in ("r1", "r2"):
        manifest = replicas[name].store.manifest(outcome.result)
        assert (manifest.rows, manifest.files) == (0, ())


def test_one_ttl_merge_is_queued_at_a_time_and_explained(replicas):
    insert(replicas, (1, -5), (2, HOUR_S))
    ((first, *_), limit) = explained(replicas)
    assert (first.parts, first.reason, limit) == (("all_0_0_0",), "", "")
    assert first.what == "TTL: rows or values have expired since 2023-11-14 22:13:15"
    assign(replicas)
    insert(replicas, (3, -5), (4, HOUR_S))
    assert isinstance(select_and_assign(replicas["r1"], aggressive=False), Nothing)
    ((second, *_), _) = explained(replicas)
    assert second.parts == ("all_1_1_0",)
    assert second.reason.startswith("1 TTL merges are queued")


def explained(replicas: Replicas):
    found = explain_merges(replicas["r1"])
    return found.ranges, found.limit


def test_no_ttl_merge_is_queued_that_could_never_run(tmp_path):
    """It would stay in the queue for ever, and what comes later to its part behind it."""
    with Replicas(tmp_path, define=with_ttl) as replicas:
        insert(replicas, (1, -5), (2, HOUR_S))
        settings = TableSettings(max_number_of_merges_with_ttl_in_pool=0)
        replica = replace(replicas["r1"], settings=settings)
        assert isinstance(select_and_assign(replica, aggressive=False), Nothing)
        first, *_ = explain_merges(replica).ranges
        assert first.reason.startswith("max_number_of_merges_with_ttl_in_pool is 0")


def test_no_ttl_merge_is_queued_while_they_are_stopped_by_hand(replicas):
    """Nobody would carry it out, and other merges would wait behind it."""
    insert(replicas, (1, -5), (2, HOUR_S))
    replicas.stores["r1"].marks.stop(Background.TTL_MERGES)
    assert isinstance(select_and_assign(replicas["r1"], aggressive=False), Nothing)
    ((first, *_), _) = explained(replicas)
    assert "TTL MERGES are stopped by hand" in first.reason
    replicas.stores["r1"].marks.go_on(Background.TTL_MERGES)
    assign(replicas)


def test_who_has_yet_to_take_up_an_alter_takes_no_rows(replicas):
    """P20. By the newer TTL they may be to stay; a merge for it waits until that is known."""
    insert(replicas, (1, -5), (2, HOUR_S))
    insert(replicas, (3, -5))
    replica = replicas["r1"]
    definition, _ = replica.keeper.get(replica.table.metadata)
    replica.keeper.multi([SetData(replica.table.metadata, definition)])
    assert isinstance(select_and_assign(replica, aggressive=False), Nothing)
    merge = optimize_partition(replica, "all", final=True, skip_merged=False)
    assert isinstance(merge, Assigned)
    carry_out(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == [1, 2, 3]
    replica.definition = replace(replica.definition, metadata_version=1)
    assert assign(replicas).sources == (merge.result,)


def test_a_partition_rests_and_is_looked_at_again(replicas):
    """P20. Who decides later, in another process, knows it from the parts."""
    insert(replicas, (1, -5), (2, HOUR_S), (3, 100 * HOUR_S))
    assign(replicas)
    replicas.step("r1")
    replicas.clock.passed_s += 2 * HOUR_S
    outcome = select_and_assign(replicas["r1"], aggressive=False)
    assert isinstance(outcome, Nothing)
    ((refused, *_), _) = explained(replicas)
    assert refused.reason == (
        "partition all had such a merge 7200 s ago; the next may come in 7200 s"
    )
    replicas.clock.passed_s += 2 * HOUR_S
    assert assign(replicas).sources == (PartName.parse("all_0_0_1"),)


def test_optimize_final_looks_at_a_merged_part_again_only_if_something_has_expired(replicas):
    insert(replicas, (1, HOUR_S), (2, 50 * HOUR_S))
    replica = replicas["r1"]
    first = optimize_partition(replica, "all", final=True, skip_merged=True)
    assert isinstance(first, Assigned)
    replicas.step("r1")
    again = optimize_partition(replica, "all", final=True, skip_merged=True)
    assert isinstance(again, Nothing)
    replicas.clock.passed_s += HOUR_S
    assert isinstance(
        optimize_partition(replica, "all", final=True, skip_merged=True), Assigned
    )
    replicas.step("r1")
    assert rows(replicas, "r1") == [2]


def test_a_part_from_before_the_ttl_is_looked_at_once(tmp_path):
    """P20. What the original does by a mutation after MODIFY TTL."""
    with Replicas(tmp_path, define=lambda name: replace(with_ttl(name), ttl="")) as replicas:
        insert(replicas, (1, -5), (2, HOUR_S))
        assert isinstance(select_and_assign(replicas["r1"], aggressive=False), Nothing)
        replicas["r1"].definition = with_ttl("r1")
        ((first, *_), _) = explained(replicas)
        assert first.what == "TTL: the table has a TTL that is new to the part"
        assign(replicas)
        replicas.step("r1")
        assert rows(replicas, "r1") == [2]
        replicas.clock.passed_s += 5 * HOUR_S
        outcome = assign(replicas)  # the last row has expired: an empty part, and no more
        replicas.step("r1")
        assert replicas["r1"].store.manifest(outcome.result).rows == 0
        replicas.clock.passed_s += 5 * HOUR_S
        assert isinstance(select_and_assign(replicas["r1"], aggressive=False), Nothing)


def recompressing(replica: str) -> TableDefinition:
    return replace(with_ttl(replica), ttl="t RECOMPRESS CODEC(NONE)")


def test_a_part_is_recompressed_once(tmp_path):
    """P20."""
    with Replicas(tmp_path, define=recompressing) as replicas:
        insert(replicas, (1, HOUR_S), (2, HOUR_S))
        assert isinstance(select_and_assign(replicas["r1"], aggressive=False), Nothing)
        replicas.clock.passed_s += 2 * HOUR_S
        outcome = assign(replicas)
        assert decode(outcome.data).merge_type == MERGE_TTL_RECOMPRESS
        before = replicas["r1"].store.manifest(outcome.sources[0])
        replicas.step("r1")
        manifest = replicas["r1"].store.manifest(outcome.result)
        assert (manifest.ttl.codec, manifest.row_hash) == ("NONE", before.row_hash)
        replicas.clock.passed_s += 24 * HOUR_S
        assert isinstance(select_and_assign(replicas["r1"], aggressive=False), Nothing)
