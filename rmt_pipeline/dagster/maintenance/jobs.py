"""Jobs that a person starts: what SQL and Python can do to a table as a whole, as forms.

There is one job for each verb and server, with one op that calls the same function of the engine as
`rmt sql`. A job that can lose rows only says what it would do, until `dry_run` is switched off.
When a value does not fit, the job fails with an error that names the field, and does nothing.
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg
from pydantic import ValidationError

from rmt_pipeline.dagster import names
from rmt_pipeline.dagster.engine import EngineResource
from rmt_pipeline.dagster.maintenance import forms
from rmt_pipeline.dagster.maintenance.doing import Doing, Verb, refuse_value
from rmt_pipeline.dagster.maintenance.partitions import PARTITION_VERBS
from rmt_pipeline.dagster.maintenance.tables import TABLE_VERBS
from rmt_pipeline.protocol.errors import RmtError

STORES_NOTHING = "rmt_stores_nothing"
"""The jobs' own IO manager: with the location's, every form would ask for its configuration."""

VERBS = (*TABLE_VERBS, *PARTITION_VERBS)
_DO_IT = "To do it, launch the job again with `dry_run: false`"


def maintenance_jobs(server: str) -> list[dg.JobDefinition]:
    """The jobs of one server that a person starts, one for each verb."""
    return [_job(server, verb) for verb in VERBS]


def _job(server: str, verb: Verb) -> dg.JobDefinition:
    name = f"{verb.name}_{names.dagster_name(server)}"

    @dg.op(
        name=f"work_{name}",
        description=verb.description,
        config_schema=forms.schema_of(verb.form),
        out=dg.Out(dg.Nothing, io_manager_key=STORES_NOTHING),
    )
    def work(context: dg.OpExecutionContext, engine: EngineResource) -> None:
        config = _filled_in(verb.form, context.op_config)
        with engine.server(server, purpose=f"run {context.run_id[:8]}") as opened:
            try:
                told = verb.do(Doing(context, opened), config)
            except RmtError as error:
                raise dg.Failure(f"{error.code}. {error}", allow_retries=False) from error
            if getattr(config, "dry_run", False):
                context.log.info("This was a dry run: nothing was changed. %s", _DO_IT)
                told = {"dry run": True, **told}
            context.add_output_metadata(told)

    @dg.job(
        name=name,
        executor_def=dg.in_process_executor,
        tags={
            names.SERVER_TAG: server,
            names.KIND_TAG: "maintenance",
            "dagster/max_retries": "0",  # the person who started it decides
        },
        description=f"{verb.description} Server: {server}.",
    )
    def job() -> None:
        work()

    return job


def _filled_in(form: type[dg.Config], values: Mapping[str, Any]) -> dg.Config:
    try:
        return form(**values)
    except ValidationError as error:
        first = error.errors()[0]
        refuse_value(str(first["loc"][0]), first["input"], first["msg"])
