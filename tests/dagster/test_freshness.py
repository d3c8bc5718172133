"""A replica's asset is as fresh as the replica is."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest

from rmt_pipeline.dagster import names
from rmt_pipeline.dagster.location import definition_of
from rmt_pipeline.dagster.replicas import replica_asset
from rmt_pipeline.dagster.upkeep import clean_up
from rmt_pipeline.dagster.upkeep.clean_up import clean_up_job
from rmt_pipeline.replica.upkeep.lag import Lag, lag_of
from rmt_pipeline.sql.run.session import Session
from tests.support.local_engine import SERVERS, LocalEngine
from tests.support.local_session import NUMBERS, create, local_session


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with local_session(tmp_path) as session:
        SERVERS.append(session.context.server)
        create(session, NUMBERS)
        yield session


def cleaned_up(instance: dg.DagsterInstance) -> None:
    job = clean_up_job("r1")
    result = job.execute_in_process(instance=instance, resources={"engine": LocalEngine()})
    assert result.success


def test_an_insert_that_nobody_has_copied_counts_from_its_log_entry(session: Session) -> None:
    replica = session.context.server.table("t").replica
    assert lag_of(replica) == (0, 0.0)
    session.execute("INSERT INTO t VALUES (1)")
    behind = lag_of(replica)
    assert behind.entries == 1
    assert behind.seconds > 0


def test_a_replica_that_keeps_up_is_materialized_and_a_late_one_is_not(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = names.replica_key("default.t", "r1")
    with dg.instance_for_test() as instance:
        cleaned_up(instance)
        [record] = instance.fetch_materializations(key, limit=9).records
        assert record.asset_materialization is not None
        assert record.asset_materialization.metadata["delay, seconds"].value == 0.0
        monkeypatch.setattr(clean_up, "lag_of", lambda _: Lag(7, 301.0))
        cleaned_up(instance)
        assert len(instance.fetch_materializations(key, limit=9).records) == 1
        [seen] = instance.fetch_observations(key, limit=9).records
        assert seen.asset_observation is not None
        assert seen.asset_observation.metadata["log entries behind"].value == 7


def test_the_asset_has_a_policy_that_clean_up_can_keep() -> None:
    asset = replica_asset(definition_of(NUMBERS), "r1")
    [spec] = asset.specs
    policy = spec.freshness_policy
    assert policy is not None
    assert policy.warn_window.to_timedelta().total_seconds() > 2 * 300, "two clean-ups"


def test_what_inserts_into_a_table_stays_in_sync_with_a_replica_that_keeps_up(
    session: Session,
) -> None:
    """Clean-up says every five minutes that it does: nothing of the replica's has changed."""
    table = session.context.server.table("t").definition
    replica = replica_asset(table, "r1")

    @dg.asset(deps=[replica])
    def orders() -> None: ...

    defs = dg.Definitions([replica, orders], resources={"engine": LocalEngine()})
    with dg.instance_for_test() as instance:
        assert dg.materialize(
            [replica, orders], instance=instance, resources={"engine": LocalEngine()}
        ).success
        cleaned_up(instance)
        graph = defs.resolve_asset_graph()
        resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
        assert resolver.get_stale_causes(orders.key) == [], "as the UI asks"
        assert resolver.get_status(orders.key).value == "FRESH"
