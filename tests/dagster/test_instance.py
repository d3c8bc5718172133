"""A new DAGSTER_HOME, and what our Dagster processes need in their environment."""

from pathlib import Path

import dagster as dg
import pytest

from rmt_pipeline.dagster import instance


def test_a_new_home_is_ready_and_has_the_shipped_configuration(tmp_path: Path) -> None:
    home = tmp_path / "dagster"
    instance.prepare_home(home)
    with dg.DagsterInstance.from_config(str(home)) as opened:
        assert opened.get_runs_count() == 0
        assert not opened.telemetry_enabled
        assert opened.get_settings("sensors") == {"use_threads": True, "num_workers": 16}
        limits = opened.get_concurrency_config().run_queue_config
        assert limits is not None
        assert limits.max_concurrent_runs == 8


def test_a_home_that_is_there_keeps_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    instance.prepare_home(tmp_path)
    assert (tmp_path / "dagster.yaml").read_text() == "telemetry: {enabled: false}\n"


def test_the_code_location_is_for_the_servers_of_the_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RMT_REPLICA", raising=False)
    assert instance.environment({"east": None, "west": None})["RMT_REPLICA"] == "east,west"
    monkeypatch.setenv("RMT_REPLICA", "east")
    assert instance.environment({"east": None, "west": None})["RMT_REPLICA"] == "east"
