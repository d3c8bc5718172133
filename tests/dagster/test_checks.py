"""What the checks of a table's health find, and that each says what to do about it."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from rmt_pipeline.dagster import names
from rmt_pipeline.dagster.maintenance.jobs import STORES_NOTHING, maintenance_jobs
from rmt_pipeline.dagster.upkeep import checks
from rmt_pipeline.dagster.upkeep.checks import CHECKS, NOTHING_TO_DO, REMEDY, check_of
from rmt_pipeline.protocol.nodes.records import LostPart
from rmt_pipeline.replica.upkeep.compare import compare_replicas
from rmt_pipeline.replica.upkeep.lag import Lag
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.zookeeper.keeper import Create, SetData
from tests.support.local_engine import SERVERS, LocalEngine
from tests.support.local_session import create, local_session
from tests.support.local_work import working

TABLE, SERVER = "default.t", "r1"


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with local_session(tmp_path) as session:
        SERVERS.append(session.context.server)
        create(
            session,
            "CREATE TABLE t (n UInt64) ENGINE = ReplicatedMergeTree('/tables/t', 'r1') "
            "PARTITION BY n ORDER BY n",
        )
        yield session


def found(
    *only: str, knowing: dg.DagsterInstance | None = None
) -> dict[str, tuple[bool, dict[str, Any]]]:
    """Of each check, or of `only` these, whether it passed, and its metadata. By a new Dagster, or
    one that was there before.
    """
    wanted = [check_of(name, TABLE, SERVER) for name in only or CHECKS]
    with nullcontext(knowing) if knowing else dg.instance_for_test() as instance:
        result = dg.materialize(
            [dg.AssetSpec(names.health_key(TABLE, SERVER)), *wanted],
            resources={"engine": LocalEngine()},
            selection=dg.AssetSelection.all_asset_checks(),
            instance=instance,
        )
    return {
        one.check_name: (one.passed, {key: value.value for key, value in one.metadata.items()})
        for one in result.get_asset_check_evaluations()
    }


def test_a_table_that_is_well_has_nothing_to_do(session: Session) -> None:
    session.execute("INSERT INTO t VALUES (1)")
    told = found()
    assert len(told) == 9
    assert {name for name, (passed, _) in told.items() if not passed} == set()
    assert {metadata[REMEDY] for _, metadata in told.values()} == {NOTHING_TO_DO}


def test_what_is_detached_is_listed_with_what_may_go(session: Session) -> None:
    session.execute("INSERT INTO t VALUES (1), (2)")
    server = session.context.server
    with working(server, server.table("t").definition):
        session.execute("ALTER TABLE t DETACH PARTITION 1")
    passed, metadata = found("detached")["detached"]
    assert not passed
    assert metadata["directories"] == 1
    [row] = metadata["detached"].records
    assert row.data["directory"] == "1_0_0_0"
    assert row.data["rows"] == 1
    assert "keep it: a statement detached" in row.data["verdict"]
    assert "0 of 1" in metadata[REMEDY]
    session.execute(
        "ALTER TABLE t DROP DETACHED PART '1_0_0_0' SETTINGS allow_drop_detached = 1"
    )
    assert found("detached")["detached"][0]


def lose(session: Session, part: str, age_s: float, *inserts: str) -> None:
    replica = session.context.server.table("t").replica
    if replica.keeper.exists(replica.table.lost_parts) is None:
        replica.keeper.multi([Create(replica.table.lost_parts)])
    lost = LostPart(int(replica.clock.now_s() - age_s), SERVER, inserts).encode()
    before = replica.keeper.exists(replica.table.lost_part(part))
    there = replica.table.lost_part(part)
    replica.keeper.multi(
        [Create(there, lost) if before is None else SetData(there, lost, before.version)]
    )


def test_what_was_lost_is_said_for_a_week_with_the_inserts_to_repeat(session: Session) -> None:
    lose(session, "7_0_0_0", checks.LOST_TOLD_S + 60, "long ago")
    passed, metadata = found("lost")["lost"]
    assert passed
    assert metadata["lost parts ever"] == 1
    lose(session, "8_0_0_0", 60, "orders-2026-01-01")
    passed, metadata = found("lost")["lost"]
    assert not passed
    assert metadata["lost parts"] == "8_0_0_0"
    assert "inserts, whose rows were lost, again" in metadata[REMEDY]
    assert "orders-2026-01-01" in metadata[REMEDY]
    assert "long ago" not in metadata[REMEDY]


def acknowledge(instance: dg.DagsterInstance, **form: str) -> dg.ExecuteInProcessResult:
    name = f"acknowledge_lost_{SERVER}"
    [job] = [job for job in maintenance_jobs(SERVER) if job.name == name]
    return job.execute_in_process(
        run_config={"ops": {f"work_{name}": {"config": {"table": TABLE, **form}}}},
        resources={"engine": LocalEngine(), STORES_NOTHING: dg.mem_io_manager},
        instance=instance,
        raise_on_error=False,
    )


def test_a_loss_that_is_acknowledged_is_said_no_more_and_the_next_one_is(
    session: Session,
) -> None:
    with dg.instance_for_test() as instance:
        assert not acknowledge(instance).success, "nothing was lost"
        lose(session, "8_0_0_0", 60, "orders-2026-01-01")
        assert "acknowledge_lost_r1" in found("lost", knowing=instance)["lost"][1][REMEDY]
        assert acknowledge(instance, note="sent again from the archive").success
        assert found("lost", knowing=instance)["lost"][0]
        [seen] = instance.fetch_observations(names.health_key(TABLE, SERVER), limit=9).records
        assert seen.asset_observation is not None
        assert seen.asset_observation.metadata["note"].value == "sent again from the archive"
        lose(session, "9_0_0_0", 50)
        assert found("lost", knowing=instance)["lost"][1]["lost parts"] == "9_0_0_0"
        lose(session, "8_0_0_0", 40)  # its empty part, once more
        passed, metadata = found("lost", knowing=instance)["lost"]
        assert not passed
        assert metadata["lost parts"] == "8_0_0_0, 9_0_0_0"


def test_a_replica_that_is_late_says_where_to_look(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "lag_of", lambda _: Lag(7, 301.0))
    passed, metadata = found("delay")["delay"]
    assert not passed
    assert metadata["delay, seconds"] == 301.0
    assert metadata["log entries behind"] == 7
    assert "log_r1" in metadata[REMEDY]


def answered(name: str) -> tuple[dg.AssetCheckSeverity | None, dict[str, Any]]:
    """How bad it is, None: not at all; and its metadata."""
    result = check_of(name, TABLE, SERVER)(dg.build_asset_check_context(), engine=LocalEngine())
    assert isinstance(result, dg.AssetCheckResult)
    told = {key: value.value for key, value in (result.metadata or {}).items()}
    return None if result.passed else result.severity, told


def test_wrong_bytes_are_an_error_and_are_fetched_again(session: Session) -> None:
    session.execute("INSERT INTO t VALUES (1)")
    table = session.context.server.table("t")
    [part] = table.parts()
    [file] = Path(table.store.directory(part.name)).glob("*.parquet")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    severity, told = answered("checksums")
    assert severity is dg.AssetCheckSeverity.ERROR
    assert str(part.name) in told["broken"]
    assert "fetched again" in told[REMEDY]


def test_too_many_parts_say_who_merges(session: Session) -> None:
    session.execute("ALTER TABLE t MODIFY SETTING parts_to_delay_insert = 2")
    for _ in range(2):
        session.execute("INSERT INTO t SETTINGS insert_deduplicate = 0 VALUES (1)")
    severity, told = answered("parts_per_partition")
    assert severity is dg.AssetCheckSeverity.ERROR
    assert (told["fullest partition"], told["parts of the fullest partition"]) == ("1", 2)
    assert "merges_r1" in told[REMEDY]


def test_a_mutation_that_nobody_may_do_says_how_to_start_it(session: Session) -> None:
    session.execute("INSERT INTO t VALUES (1)")
    session.execute("ALTER TABLE t DELETE WHERE n = 1 SETTINGS mutations_sync = 0")
    severity, told = answered("mutations")
    assert severity is dg.AssetCheckSeverity.WARN
    assert told[REMEDY].startswith("Wait")
    session.execute("SYSTEM STOP MERGES t")
    _, told = answered("mutations")
    assert "stopped by hand on this server (SYSTEM START MERGES)" in told[REMEDY]


@pytest.mark.parametrize(
    ("behind", "severity", "remedy"),
    [
        ((), dg.AssetCheckSeverity.ERROR, "rmt check"),
        (("r2",), dg.AssetCheckSeverity.WARN, "Wait for the replicas that are behind"),
    ],
)
def test_replicas_that_differ_are_an_error_once_they_have_caught_up(
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
    behind: tuple[str, ...],
    severity: dg.AssetCheckSeverity,
    remedy: str,
) -> None:
    session.execute("INSERT INTO t VALUES (1)")
    alike = compare_replicas(session.context.server.table("t").replica)
    differing = replace(alike, behind=behind, replicas=("r1", "r2"))  # that has nothing
    monkeypatch.setattr(checks, "compare_replicas", lambda _: differing)
    found_bad, told = answered("replicas_equal")
    assert found_bad is severity
    assert told["different"] == "1"
    assert remedy in told[REMEDY]


def test_each_check_that_fails_names_a_remedy(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.execute("INSERT INTO t VALUES (1)")
    session.execute("SYSTEM STOP MERGES t")
    monkeypatch.setattr(checks, "QUEUE_AGE_MAX_S", -1)
    told = found()
    failed = {name for name, (passed, _) in told.items() if not passed}
    assert failed == {"queue_age", "stopped_by_hand"}
    assert all(told[name][1][REMEDY] != NOTHING_TO_DO for name in failed)
