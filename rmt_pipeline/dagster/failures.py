"""What a run says of an error that it ends with, and whether Dagster tries it again."""

import dagster as dg

from rmt_pipeline.protocol.errors import (
    BadTypeOfField,
    BadValue,
    DuplicateColumn,
    IllegalColumn,
    IncorrectData,
    RmtError,
    SyntaxProblem,
    TooManyPartitions,
    UnknownColumn,
    UnknownFunction,
    UnknownSetting,
    UnknownTable,
    UserError,
    ViolatedConstraint,
)
from rmt_pipeline.protocol.settings.setting import BadSetting, FixedSetting

RETRY_TAG = "dagster/retry_on_asset_or_op_failure"
NOT_AGAIN_TAG = "rmt/not_tried_again"
"""The run that RETRY_TAG was written for. A run that is executed again by hand has both from it."""


class WrongAsset(UserError):
    """An asset's declaration, or what it returned, is of a kind that can't be stored or loaded."""


class NoTable(UnknownTable):
    """The table that an asset is stored in does not exist. The asset `replica` would create it."""

    def __init__(self, message: str, replica: dg.AssetKey) -> None:
        super().__init__(message)
        self.replica = replica


WRONG_ROWS = (
    BadValue,
    DuplicateColumn,
    IllegalColumn,
    IncorrectData,
    TooManyPartitions,
    UnknownColumn,
    ViolatedConstraint,
)
"""Errors that come again however often the same rows are stored."""
COMES_AGAIN = (
    *WRONG_ROWS,
    # What an asset's metadata say that is no expression, or no setting.
    *(BadSetting, BadTypeOfField, FixedSetting, SyntaxProblem, UnknownFunction, UnknownSetting),
    WrongAsset,
)


def comes_again(error: RmtError) -> bool:
    """Whether the same would come of another try, until a person has changed something."""
    return isinstance(error, COMES_AGAIN) and not is_of_the_system(error.__cause__)


def is_of_the_system(error: BaseException | None) -> bool:
    """Whether the operating system failed to read. pyarrow also raises OSError for bytes that can't
    be uncompressed or are not of the format; that has no errno.
    """
    return isinstance(error, OSError) and error.errno is not None


def log_failure(log: dg.DagsterLogManager, about: str, error: RmtError) -> None:
    """Say what is wrong in a line of the run's log: in its page the failure's own message is below
    Dagster's stack traces, and cut off.
    """
    notes: list[str] = getattr(error, "__notes__", [])
    log.error("%s: %s", about, "\n".join([str(error), *notes]))


def try_no_more(instance: dg.DagsterInstance, run_id: str) -> None:
    """The same would come of it again, until a person has changed something."""
    if _is_tried_again(instance, run_id):
        instance.add_run_tags(run_id, {RETRY_TAG: "false", NOT_AGAIN_TAG: run_id})


def try_again(context: dg.InitResourceContext) -> None:
    """A run that a person executes again gets the tags of the failed one. That one was not to be
    tried again; for this one it is not known yet.
    """
    run, instance = context.run, context.instance
    if run is None or instance is None or NOT_AGAIN_TAG not in run.tags:
        return
    run_id = run.run_id
    if _tags(instance, run_id).get(NOT_AGAIN_TAG) != run_id:
        instance.add_run_tags(run_id, {RETRY_TAG: "true", NOT_AGAIN_TAG: run_id})


def _is_tried_again(instance: dg.DagsterInstance, run_id: str) -> bool:
    """Whether Dagster tries it again when a step fails."""
    default = str(instance.run_retries_retry_on_asset_or_op_failure)
    return _tags(instance, run_id).get(RETRY_TAG, default).lower() == "true"


def _tags(instance: dg.DagsterInstance, run_id: str) -> dict[str, str]:
    """As they are now: a run's other processes may have written some."""
    run = instance.get_run_by_id(run_id)
    return {} if run is None else dict(run.tags)
