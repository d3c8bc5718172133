"""What a run says of an error that it ends with, and whether Dagster tries it again."""

import dagster as dg

from rmt_pipeline.protocol.errors import RmtError, UserError

RETRY_TAG = "dagster/retry_on_asset_or_op_failure"


class WrongAsset(UserError):
    """An asset's declaration, or what it returned, is of a kind that can't be stored or loaded."""


def log_failure(log: dg.DagsterLogManager, about: str, error: RmtError) -> None:
    """Say what is wrong in a line of the run's log: in its page the failure's own message is below
    Dagster's stack traces, and cut off.
    """
    notes: list[str] = getattr(error, "__notes__", [])
    log.error("%s: %s", about, "\n".join([str(error), *notes]))


def try_no_more(instance: dg.DagsterInstance, run_id: str) -> None:
    """The same would come of it again, until a person has changed something."""
    instance.add_run_tags(run_id, {RETRY_TAG: "false"})
