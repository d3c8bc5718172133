"""What happens by the clock: clean-up and checks of each server's tables."""

import dagster as dg

from rmt_pipeline.dagster import names

CLEAN_UP_CRON = "*/5 * * * *"
CHECKS_CRON = "17 * * * *"
"""Hourly: reading every byte of a large table is not for every minute."""


def checks_schedule(server: str) -> dg.ScheduleDefinition:
    """Run the checks of all tables of a server in one run: those of assets with its tag, which no
    run of ours makes ("sources").
    """
    of_server = dg.AssetSelection.tag(names.SERVER_TAG, server, include_sources=True)
    return dg.ScheduleDefinition(
        name=f"checks_{names.dagster_name(server)}",
        cron_schedule=CHECKS_CRON,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        job=dg.define_asset_job(
            f"check_{names.dagster_name(server)}",
            selection=dg.AssetSelection.all_asset_checks() & of_server,
            executor_def=dg.in_process_executor,
            tags={names.SERVER_TAG: server},
            description=f"Every asset check of the tables on server {server}.",
        ),
    )


def clean_up_schedule(server: str, job: dg.JobDefinition) -> dg.ScheduleDefinition:
    return dg.ScheduleDefinition(
        name=f"clean_up_{names.dagster_name(server)}",
        cron_schedule=CLEAN_UP_CRON,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        job=job,
    )
