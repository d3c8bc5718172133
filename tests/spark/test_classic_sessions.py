"""The same merges on sessions of the other kinds: of this machine, and of a cluster."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from rmt_pipeline.compute import units
from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.merge.job import MergeDone, MergeJob
from rmt_pipeline.processes.spark import import_path
from rmt_pipeline.system import SystemClock
from tests.support.merging import definition, job_of, sorted_table, write_part
from tests.support.spark_cluster import cluster

pytestmark = pytest.mark.spark

TABLE = definition([("id", "Int64"), ("text", "String")], ("id",))
ROWS = 600_000
TIMEOUT_S = 1200  # a minute on an idle machine


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> list:
    """Enough for a merge of two units."""
    root = tmp_path_factory.mktemp("parts")
    schema = sorted_table([], TABLE).schema
    found = []
    for number in range(4):
        random = np.random.default_rng(number)
        ids = np.sort(random.integers(0, 2**62, ROWS))
        texts = np.char.mod("%x", random.integers(0, 2**62, ROWS))
        table = pa.table({"id": ids, "text": texts}).cast(schema)
        found.append(write_part(root, f"all_{number}_{number}_0", table))
    assert sum(source.manifest.bytes_on_disk for source in found) > units.UNIT_BYTES
    return found


def jobs_in(root: Path, sources: list) -> list[MergeJob]:
    jobs = []
    for number, chosen in enumerate([sources, sources[:1], sources[1:2]]):
        staging = root / f"staging-{number}"
        staging.mkdir(parents=True)
        jobs.append(job_of(TABLE, chosen, staging))
    return jobs


def merge_in_a_process(root: Path, master: str, sources: list) -> int:
    """The manifests are those of the kernel; returns how many executors there were."""
    here = {
        each.job.result: each
        for each in LocalMerger(SystemClock()).merge(jobs_in(root / "here", sources))
    }
    (root / "jobs").write_bytes(pickle.dumps(jobs_in(root / "there", sources)))
    command = [sys.executable, "-m", "tests.support.spark_script", master]
    subprocess.run(
        [*command, str(root / "jobs"), str(root / "results")],
        check=True,
        timeout=TIMEOUT_S,
        # As a process inherits it from one that is a client of Spark Connect.
        env={**os.environ, "PYTHONPATH": import_path(), "SPARK_CONNECT_MODE_ENABLED": "1"},
    )
    outcomes, executors = pickle.loads((root / "results").read_bytes())
    assert len(outcomes) == len(here)
    for outcome in outcomes:
        assert isinstance(outcome, MergeDone), outcome
        assert outcome.manifest == here[outcome.job.result].manifest
    assert max(len(outcome.manifest.files) for outcome in outcomes) > 1, "several units"
    return executors


def test_a_local_session(tmp_path, sources) -> None:
    merge_in_a_process(tmp_path, "local[2]", sources)


def test_a_cluster_of_two_workers(tmp_path, sources, java_home) -> None:
    with cluster(tmp_path, 2, java_home) as master:
        assert merge_in_a_process(tmp_path, master, sources) == 2
