"""Runs that have nothing more to tell leave nothing behind."""

from pathlib import Path

import dagster as dg

from rmt_pipeline.dagster.upkeep.clean_up import forget_runs


@dg.op
def nothing() -> None:
    pass


@dg.job(executor_def=dg.in_process_executor)
def often() -> None:
    nothing()


@dg.job(executor_def=dg.in_process_executor)
def seldom() -> None:
    nothing()


def test_forgotten_runs_leave_no_row_and_no_file() -> None:
    with dg.instance_for_test() as instance:
        gone = often.execute_in_process(instance=instance).run_id
        kept = seldom.execute_in_process(instance=instance).run_id
        home = Path(instance.root_directory)
        assert [file for file in home.rglob("*") if gone in str(file)]

        assert forget_runs(instance, ["often"], before_s=4e9) == 1

        assert [run.run_id for run in instance.get_runs()] == [kept]
        assert [file for file in home.rglob("*") if gone in str(file) and file.is_file()] == []
        assert instance.all_logs(kept) != []


def test_younger_runs_stay() -> None:
    with dg.instance_for_test() as instance:
        run_id = often.execute_in_process(instance=instance).run_id
        for before_s in (1.0, -1e14):  # as when a form says that they are kept 10^9 days
            assert forget_runs(instance, ["often"], before_s=before_s) == 0
        assert [run.run_id for run in instance.get_runs()] == [run_id]
