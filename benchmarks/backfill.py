"""How soon a backfill of a year has its first row in the table after the click, and its last.

    python -m benchmarks.backfill [--clicks 3]

Everything that `rmt up` starts. What the UI sends when 365 days of an asset are chosen; a click comes
at any moment of the daemon's loop. Before the next one the table is emptied and no run is left.
"""

import argparse
import os
import random
import tempfile
import time
from pathlib import Path

from examples.flights import ingest
from tests.support.laptop import Laptop, running_laptop

RUNNING = ["QUEUED", "NOT_STARTED", "STARTING", "STARTED"]
AT_ANY_MOMENT_S = 30.0
LOOK_S = 0.1


def click(laptop: Laptop, number: int) -> None:
    chosen = ingest.days.get_partition_keys()
    begun_s = time.monotonic()
    backfill = laptop.dagster.backfill(["flights"], chosen, title=f"year {number}")
    clicked_s = time.monotonic() - begun_s
    while not laptop.r1.parts():
        time.sleep(LOOK_S)
    first_s = time.monotonic() - begun_s
    while not (state := laptop.dagster.backfill_state(backfill)).is_over:
        time.sleep(1)
    over_s = time.monotonic() - begun_s
    assert state.succeeded, state
    load = os.getloadavg()[0]
    print(
        f"{number:>5} {len(chosen):>5} {clicked_s:>9.1f} {first_s:>12.1f} {over_s:>8.1f} {load:>6.1f}"
    )


def empty(laptop: Laptop) -> None:
    while laptop.dagster.runs(statuses=RUNNING):
        time.sleep(0.5)
    laptop.r1.truncate()
    while laptop.r1.parts():
        time.sleep(0.5)
    time.sleep(random.uniform(0, AT_ANY_MOMENT_S))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clicks", type=int, default=3)
    options = parser.parse_args()
    print("click  days answer, s first row, s  over, s   load")
    with (
        tempfile.TemporaryDirectory(prefix="rmt-bench-") as directory,
        running_laptop(Path(directory)) as laptop,
    ):
        for number in range(1, options.clicks + 1):
            empty(laptop)
            click(laptop, number)


if __name__ == "__main__":
    main()
