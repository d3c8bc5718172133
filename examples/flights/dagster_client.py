"""Asks a running Dagster for the few things that the demo and its tests need.

It sends the same GraphQL as the UI does, so what works here also works by hand.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import urllib3
from urllib3.exceptions import HTTPError

_LAUNCH_BACKFILL = """
mutation ($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) {
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on PythonError { message }
    ... on UnauthorizedError { message }
    ... on PartitionSetNotFoundError { message }
  }
}
"""
_BACKFILL = """
query ($id: String!) {
  partitionBackfillOrError(backfillId: $id) {
    __typename
    ... on PartitionBackfill {
      status numPartitions
      error { message }
      assetBackfillData { assetBackfillStatuses {
        ... on AssetPartitionsStatusCounts {
          assetKey { path } numPartitionsMaterialized numPartitionsFailed } } }
    }
    ... on PythonError { message }
    ... on BackfillNotFoundError { message }
  }
}
"""
_LOCATIONS = """
{ workspaceOrError { ... on Workspace { locationEntries {
    name locationOrLoadError { __typename ... on PythonError { message } } } } } }
"""
_LAUNCH_RUN = """
mutation ($params: ExecutionParams!) {
  launchRun(executionParams: $params) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
    ... on RunConfigValidationInvalid { errors { message } }
    ... on PipelineNotFoundError { message }
  }
}
"""
_RUNS = """
query ($filter: RunsFilter!) {
  runsOrError(filter: $filter) {
    __typename ... on Runs { results { runId status jobName tags { key value } } } }
}
"""
LOCATION = "examples.flights.definitions"
REPOSITORY = "__repository__"


class DagsterRefused(Exception):
    """Dagster answered that it cannot do what was asked; the message is Dagster's."""


@dataclass(frozen=True, slots=True)
class Backfill:
    """How far a backfill is, in Dagster partitions."""

    status: str
    partitions: int
    done: int
    failed: int
    error: str

    @property
    def is_over(self) -> bool:
        return not self.status.startswith(("REQUESTED", "COMPLETING", "CANCELING"))

    @property
    def succeeded(self) -> bool:
        return self.status in ("COMPLETED", "COMPLETED_SUCCESS") and not self.failed


class DagsterClient:
    """A client of the web server at `url`. Its methods raise urllib3's HTTPError when
    that is away.
    """

    def __init__(self, url: str) -> None:
        self._url = f"{url}/graphql"
        self._http = urllib3.PoolManager(timeout=60, retries=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.clear()

    def is_ready(self) -> bool:
        """Whether every code location is loaded. Raises DagsterRefused when one cannot be."""
        try:
            entries = self._ask(_LOCATIONS)["workspaceOrError"].get("locationEntries", [])
        except HTTPError:
            return False
        loaded = [entry["locationOrLoadError"] for entry in entries]
        for location in loaded:
            if location and location["__typename"] == "PythonError":
                raise DagsterRefused(location["message"])
        return bool(loaded) and all(loaded)

    def materialize(self, assets: Sequence[Sequence[str]], *, location: str = LOCATION) -> str:
        """Launch one run over assets without partitions of one code location. Returns
        the run's id.
        """
        params = {
            "selector": {
                "repositoryLocationName": location,
                "repositoryName": REPOSITORY,
                "pipelineName": "__ASSET_JOB",
                "assetSelection": [{"path": list(path)} for path in assets],
                "assetCheckSelection": [],
            },
            "mode": "default",
            "runConfigData": {},
        }
        answer = self._ask(_LAUNCH_RUN, params=params)["launchRun"]
        if answer["__typename"] != "LaunchRunSuccess":
            raise DagsterRefused(f"the run was not launched: {answer}")
        return str(answer["run"]["runId"])

    def backfill(
        self,
        asset: Sequence[str],
        partitions: Sequence[str],
        *,
        title: str,
        run_config: Mapping[str, Any] | None = None,
    ) -> str:
        """Do what "Materialize…" in the UI does with several partitions. Returns the
        backfill's id.
        """
        params = {
            "assetSelection": [{"path": list(asset)}],
            "partitionNames": list(partitions),
            "title": title,
            "runConfigData": dict(run_config or {}),
        }
        answer = self._ask(_LAUNCH_BACKFILL, params=params)["launchPartitionBackfill"]
        if answer["__typename"] != "LaunchBackfillSuccess":
            raise DagsterRefused(f"the backfill {title!r} was not launched: {answer}")
        return str(answer["backfillId"])

    def backfill_state(self, backfill_id: str) -> Backfill:
        answer = self._ask(_BACKFILL, id=backfill_id)["partitionBackfillOrError"]
        if answer["__typename"] != "PartitionBackfill":
            raise DagsterRefused(f"backfill {backfill_id}: {answer.get('message')}")
        counts = (answer["assetBackfillData"] or {}).get("assetBackfillStatuses", [])
        return Backfill(
            status=answer["status"],
            partitions=answer["numPartitions"] or 0,
            done=sum(count["numPartitionsMaterialized"] for count in counts),
            failed=sum(count["numPartitionsFailed"] for count in counts),
            error=(answer["error"] or {}).get("message", ""),
        )

    def runs(self, **run_filter: Any) -> list[dict[str, Any]]:
        """Runs that match a RunsFilter, e.g. `statuses=["FAILURE"]`, newest first."""
        answer = self._ask(_RUNS, filter=run_filter)["runsOrError"]
        return list(answer.get("results", []))

    def _ask(self, query: str, **variables: Any) -> dict[str, Any]:
        body = {"query": query, "variables": variables}
        response = self._http.request("POST", self._url, json=body)
        if response.status != 200:
            words = response.data.decode("utf-8", "replace")[:500]
            raise DagsterRefused(f"{self._url} answered {response.status}: {words}")
        answer = response.json()
        if answer.get("errors"):
            raise DagsterRefused("; ".join(error["message"] for error in answer["errors"]))
        return dict(answer["data"])
