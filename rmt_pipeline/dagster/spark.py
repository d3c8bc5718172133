"""The resource `spark`: a run's Spark session, by dagster-pyspark. rmt.toml says where Spark is."""

import threading
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from dagster_pyspark import LazyPySparkResource
from pydantic import Field

from rmt_pipeline.compute.jobs.merge import SparkMerger
from rmt_pipeline.compute.jobs.mutate import SparkMutator
from rmt_pipeline.compute.jobs.spark import SparkSessions, require_reachable, start_jvm
from rmt_pipeline.compute.merge.job import MergeJob, MergeOutcome
from rmt_pipeline.compute.mutate.job import MutateJob, MutateOutcome
from rmt_pipeline.config import load_config
from rmt_pipeline.dagster.engine import CONFIG_PATH_HELP
from rmt_pipeline.processes.java import find_java
from rmt_pipeline.processes.spark import SESSION_OPTIONS
from rmt_pipeline.protocol.errors import Unavailable
from rmt_pipeline.system import RandomIds

JobOutcome = TypeVar("JobOutcome")
_MAKING = threading.Lock()


class SparkResource(LazyPySparkResource):  # type: ignore[misc]  # dagster-pyspark has no types
    """dagster-pyspark's lazy session: made at the first merge, so that runs which only fetch start
    none.

    Without `spark.remote` or `spark.master` in `spark_config`, the `[spark]` section of rmt.toml
    decides; it is read when the session is made, not when definitions are loaded.
    """

    spark_config: dict[str, Any] = Field(
        default_factory=dict, description="Spark settings on top of those from rmt.toml."
    )
    config_path: str = Field(default="", description=CONFIG_PATH_HELP)

    def merge(self, jobs: Sequence[MergeJob]) -> Iterator[MergeOutcome]:
        """Carry out merges: the engine's `Merger`. Raises Unavailable when there is no Spark
        session.
        """
        return self._watched(SparkMerger(self._sessions(), RandomIds()).merge(jobs))

    def mutate(self, jobs: Sequence[MutateJob]) -> Iterator[MutateOutcome]:
        """Carry out mutations: the engine's `Mutator`. Raises Unavailable when there is no Spark
        session.
        """
        return self._watched(SparkMutator(self._sessions(), RandomIds()).mutate(jobs))

    def _sessions(self) -> SparkSessions:
        """The session, for any thread: the tables of a run share one."""
        with _MAKING:
            return SparkSessions(given=self.spark_session)

    def _watched(self, outcomes: Iterator[JobOutcome]) -> Iterator[JobOutcome]:
        """Pass the outcomes on. When Spark itself failed, forget the session, so that the next call
        makes a new one: a Spark server that was restarted does not know the old session.
        """
        for outcome in outcomes:
            if isinstance(getattr(outcome, "error", None), Unavailable):
                self._spark_session = None
            yield outcome

    def _init_session(self) -> None:
        if self._spark_session is not None:
            return
        settings = self._settings()
        if "spark.remote" in settings:
            require_reachable(settings["spark.remote"])
            self._spark_session = LazyPySparkResource(spark_config=settings).spark_session
        else:
            options = {name: str(value) for name, value in _flat(settings)}
            java_home = find_java().env.get("JAVA_HOME")
            self._spark_session = start_jvm(options, java_home=java_home)

    def _settings(self) -> dict[str, Any]:
        if {"spark.remote", "spark.master"} & self.spark_config.keys():
            return self.spark_config
        section = load_config(self.config_path or None).spark
        if section.connect_url is not None:
            return {"spark.remote": section.connect_url, **self.spark_config}
        return {**SESSION_OPTIONS, "spark.master": section.master, **self.spark_config}


def _flat(settings: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The settings with dotted names. They may be nested, as dagster-spark's are: `{"spark":
    {"driver": {"memory": …}}}`.
    """
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
