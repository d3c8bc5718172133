"""What a setting is when nobody says it: as in the original, but for those that are named here."""

import dataclasses

import pytest

from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.settings.table import TableSettings
from tests.support.clickhouse_oracle import ask

OWN_OF_TABLES = {
    # ours alone
    "scrub_period": 604_800,
    "scrub_bytes_per_second": 10 << 20,
    # a server's; in chdb, which has no background pools and drops old parts at once, they are 0
    "number_of_free_entries_in_pool_to_lower_max_size_of_merge": 8,
    "number_of_free_entries_in_pool_to_execute_mutation": 20,
    "old_parts_lifetime": 480,
    # of the versions whose protocol this is
    "replicated_deduplication_window": 1000,
    "replicated_deduplication_window_seconds": 604_800,
}
OWN_OF_QUERIES = {
    # ours alone
    "check_parts_before_reading": True,
    "broken_parts_wait_ms": 10_000,
    "skip_broken_parts": False,
    "dry_run": False,
    "input_format_encoding": "",
    # a server's; chdb has others, and newer ones
    "max_insert_block_size": 1_048_545,
    "min_insert_block_size_rows": 1_048_545,
    "min_insert_block_size_bytes": 268_427_520,
    "async_insert": False,
    "check_query_single_value_result": True,
    "max_threads": 0,
    "mutations_sync": 0,
    "input_format_skip_unknown_fields": False,
    "date_time_input_format": "basic",
    "output_format_pretty_max_rows": 10_000,
}


@pytest.mark.parametrize(
    ("ours", "theirs", "own"),
    [
        (TableSettings(), "merge_tree_settings", OWN_OF_TABLES),
        (QuerySettings(), "settings", OWN_OF_QUERIES),
    ],
    ids=["of tables", "of queries"],
)
def test_what_nobody_says_is_as_in_the_original(
    ours: TableSettings | QuerySettings, theirs: str, own: dict[str, object]
) -> None:
    lines = ask(f"SELECT name, default FROM system.{theirs}").splitlines()
    defaults = dict(line.split("\t") for line in lines)
    values = {field.name: getattr(ours, field.name) for field in dataclasses.fields(ours)}
    others = {
        name: value for name, value in values.items() if _text(value) != defaults.get(name)
    }
    assert others == own
    assert len(values.keys() & defaults.keys()) > 50


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).replace("\\", "\\\\")
