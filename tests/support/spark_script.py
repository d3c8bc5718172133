"""Runs merges on a classic Spark session: `spark_script MASTER JOBS RESULTS`, the latter files.

In a process of its own, since one process can have a classic session or Spark Connect, not both.
"""

import os
import pickle
import sys
from pathlib import Path

from rmt_pipeline.compute.jobs import spark
from rmt_pipeline.compute.jobs.merge import SparkMerger
from rmt_pipeline.compute.jobs.spark import SparkSessions
from rmt_pipeline.processes.java import find_java
from rmt_pipeline.processes.spark import NICENESS
from rmt_pipeline.system import RandomIds


def main(master: str, jobs: str, results: str) -> None:
    sessions = SparkSessions(master=master, java_home=find_java().env["JAVA_HOME"])
    merger = SparkMerger(sessions, RandomIds())
    outcomes = list(merger.merge(pickle.loads(Path(jobs).read_bytes())))
    jvm = spark._jvm.running.pid
    assert os.getpriority(os.PRIO_PROCESS, jvm) >= NICENESS
    executors = sessions.get().sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    sessions.close()
    Path(results).write_bytes(pickle.dumps((outcomes, executors)))


if __name__ == "__main__":
    main(*sys.argv[1:])
