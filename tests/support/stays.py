"""A table of a project of its own, whose runs a test holds up when their rows are in the table."""

from collections.abc import Callable
from pathlib import Path

from rmt_pipeline.config import Config
from rmt_pipeline.context import ServerContext
from tests.support.waiting import until

CREATE = (
    "CREATE TABLE stays (day Date, id UInt64) "
    "ENGINE = ReplicatedMergeTree('/t/stays', '{replica}') PARTITION BY toYYYYMM(day) ORDER BY id"
)
AT_ONCE = 2  # the third run of the backfill is queued meanwhile: default_limit in dagster.yaml
DEFINITIONS = '''
import os, time
from pathlib import Path
import dagster as dg
from rmt_pipeline.dagster import RmtIOManager, rmt_resources, rmt_table

HERE, CONFIG = Path({here!r}), {config!r}

class Holding(RmtIOManager):
    """The rows are in the table, and Dagster does not know it yet."""
    def handle_output(self, context, obj):
        super().handle_output(context, obj)
        (HERE / f"stored-{{context.partition_key}}").touch()
        while (HERE / "hold").exists():
            time.sleep(0.05)

@dg.asset(
    partitions_def=dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-03-01"),
    metadata={{"partition_expr": "day"}},
    pool="two_at_once",
)
def stays(context):
    return [{{"day": context.partition_key, "id": number}} for number in range(3)]

defs = dg.Definitions.merge(
    rmt_table({create!r}, servers=["r1", "r2"], ingest=[stays]),
    dg.Definitions(
        assets=[stays],
        resources={{
            **rmt_resources(CONFIG), "io_manager": Holding(server="r1", config_path=CONFIG)
        }},
        executor=dg.in_process_executor,
    ),
)
'''
DAYS = [f"2026-01-{number:02}" for number in range(1, 4)]
LIMIT_S = 1800.0
"""Of a test: Dagster's processes start one after the other, and others beside them."""


class Stays:
    """The project, and where runs of its asset are held up."""

    def __init__(self, config: Config, directory: Path) -> None:
        self.directory = directory
        self.definitions = directory / "definitions.py"
        code = DEFINITIONS.format(here=str(directory), config=str(config.path), create=CREATE)
        self.definitions.write_text(code)

    def hold(self) -> None:
        (self.directory / "hold").touch()

    def go_on(self) -> None:
        (self.directory / "hold").unlink()

    def stored(self) -> set[str]:
        """The days whose rows some run has stored."""
        files = self.directory.glob("stored-*")
        return {file.name.removeprefix("stored-") for file in files}

    def until_on(self, server: ServerContext, logs: Callable[[], str], *days: str) -> None:
        """All rows of these days, each once."""
        wanted = [(day, number) for day in sorted(days) for number in range(3)]
        until(lambda: len(_rows(server)) >= len(wanted), logs, limit_s=LIMIT_S)
        assert _rows(server) == wanted


def _rows(server: ServerContext) -> list[tuple[str, int]]:
    found = server.table("stays").dataset().to_table(["day", "id"]).to_pylist()
    return sorted((str(row["day"]), row["id"]) for row in found)
