"""Settings of a session or statement (`SET`, `SETTINGS`, `--set`; spec §15), 24.x defaults."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from rmt_pipeline.protocol.settings.neutral import NEUTRAL_QUERY_SETTINGS
from rmt_pipeline.protocol.settings.setting import Setting, find, setting, settings_of

BLOCK_ROWS = 1_048_545

ALIASES = {"replication_alter_partitions_sync": "alter_sync"}


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySettings:
    """One statement's settings. Times are in seconds unless the name says ms, sizes
    in bytes.
    """

    # --- inserts
    max_insert_block_size: int = setting(
        BLOCK_ROWS, "most rows of one block, hence of one part", "NonZeroUInt64"
    )
    min_insert_block_size_rows: int = setting(BLOCK_ROWS, "small blocks are joined up to this")
    min_insert_block_size_bytes: int = setting(256 * BLOCK_ROWS, "or up to so many bytes")
    max_partitions_per_insert_block: int = setting(100, "partitions in one block; 0 is any")
    throw_on_max_partitions_per_insert_block: bool = setting(
        default=True, description="more partitions are an error, not only a warning"
    )
    insert_deduplicate: bool = setting(
        default=True,
        description="a block or an insert that is there already is not added again",
    )
    insert_deduplication_token: str = setting(
        "",
        "a name for the insert: with the same token it is the same insert, even with other rows",
    )
    async_insert: bool = setting(
        default=False,
        description="rows of VALUES and of a format are known again when async_insert_deduplicate "
        "says so, not insert_deduplicate; each INSERT is carried out at once in any case",
    )
    async_insert_deduplicate: bool = setting(
        default=False, description="what insert_deduplicate is when async_insert is 1"
    )
    insert_quorum: str = setting(
        "0",
        "replicas that must have the rows before the insert is answered; below 2 is off, auto is "
        "the majority",
    )
    insert_quorum_parallel: bool = setting(
        default=True, description="several inserts may wait for their quorums at a time"
    )
    insert_quorum_timeout: int = setting(
        600_000, "how long an insert waits for its quorum", "Milliseconds"
    )
    insert_keeper_max_retries: int = setting(20, "tries when ZooKeeper is away")
    insert_keeper_retry_initial_backoff_ms: int = setting(100, "first pause", "Milliseconds")
    insert_keeper_retry_max_backoff_ms: int = setting(10_000, "longest pause", "Milliseconds")
    optimize_on_insert: bool = setting(
        default=True, description="apply the engine's merge to each inserted block"
    )
    parts_to_delay_insert: int = setting(0, "instead of the table's; 0 is the table's")
    parts_to_throw_insert: int = setting(0, "instead of the table's; 0 is the table's")

    # --- reading
    select_sequential_consistency: bool = setting(
        default=False,
        description="read all rows that reached their quorum, and none that waits for it",
    )
    final: bool = setting(default=False, description="read every table as with FINAL")
    do_not_merge_across_partitions_select_final: bool = setting(
        default=False, description="FINAL merges the rows of each partition by themselves"
    )
    check_parts_before_reading: bool = setting(
        default=True,
        description="files of parts that were written to since they were last known to be whole "
        "are compared with their hashes first",
    )
    broken_parts_wait_ms: int = setting(
        10_000,
        "how long a query waits for a broken part to be fetched again before it fails",
        "Milliseconds",
    )
    skip_broken_parts: bool = setting(
        default=False,
        description="answer without the parts that are broken and not fetched again yet",
    )
    check_query_single_value_result: bool = setting(
        default=True, description="CHECK TABLE answers with one value, not a row for each part"
    )
    max_threads: int = setting(0, "threads of one statement; 0 is the number of cores")
    max_execution_time: float = setting(
        0.0, "seconds after which what a query computes fails with TIMEOUT_EXCEEDED; 0 is never"
    )
    max_memory_usage: int = setting(0, "bytes that a query may use before it fails; 0 is 1 GiB")

    # --- waiting
    alter_sync: int = setting(
        1, "which replicas to wait for: 0 none, 1 this one, 2 all, 3 all active ones"
    )
    mutations_sync: int = setting(0, "the same for mutations")
    lightweight_deletes_sync: int = setting(
        2, "the same for DELETE FROM, instead of mutations_sync"
    )
    replication_wait_for_inactive_replica_timeout: int = setting(
        120, "how long to wait for an inactive replica; 0 not at all, below 0 forever", "Int64"
    )
    database_atomic_wait_for_drop_and_detach_synchronously: bool = setting(
        default=False, description="DROP TABLE and DETACH TABLE are as with SYNC"
    )
    receive_timeout: int = setting(300, "limit of SYSTEM SYNC REPLICA and of waits", "Seconds")

    distributed_ddl_task_timeout: int = setting(
        180,
        "how long ON CLUSTER waits for its servers; 0 not at all, below 0 as long as it takes",
        "Int64",
    )
    distributed_ddl_output_mode: str = setting(
        "throw",
        "what ON CLUSTER answers: throw, none, null_status_on_timeout, never_throw; with "
        "_only_active (not never_throw) it waits for servers that run",
    )

    # --- OPTIMIZE, ALTER
    optimize_throw_if_noop: bool = setting(
        default=False, description="an OPTIMIZE that assigns no merge is an error"
    )
    optimize_skip_merged_partitions: bool = setting(
        default=False, description="OPTIMIZE FINAL leaves partitions of one merged part alone"
    )
    allow_nondeterministic_mutations: bool = setting(
        default=False, description="permit functions whose result differs between replicas"
    )
    materialize_ttl_after_modify: bool = setting(
        default=True,
        description="MODIFY TTL takes away what has expired by it, as MATERIALIZE TTL does",
    )
    max_fetch_partition_retries_count: int = setting(
        5, "how often FETCH PARTITION lists its source again, when parts of it are gone or late"
    )
    alter_partition_verbose_result: bool = setting(
        default=False,
        description="ATTACH, FREEZE and UNFREEZE answer with a row for each part",
    )
    dry_run: bool = setting(default=False, description="say what would happen, change nothing")

    flatten_nested: bool = setting(
        default=True,
        description="a column Nested(a T) becomes columns `n.a Array(T)`; else it is one array",
    )

    allow_drop_detached: bool = setting(
        default=False, description="permit DROP DETACHED PARTITION and PART"
    )

    allow_replace_partition_from_empty_source: bool = setting(
        default=False,
        description="permit REPLACE PARTITION from a table without a row in it: a drop",
    )

    # --- formats
    format_csv_delimiter: str = setting(",", "between the values of a CSV line", "Char")
    format_csv_null_representation: str = setting("\\N", "how NULL is written in CSV")
    format_tsv_null_representation: str = setting("\\N", "how NULL is written in TSV")
    input_format_null_as_default: bool = setting(
        default=True, description="a NULL for a column that has none becomes its default"
    )
    input_format_skip_unknown_fields: bool = setting(
        default=False, description="ignore columns of the input that the table does not have"
    )
    input_format_allow_errors_num: int = setting(
        0, "wrong rows of a text that an INSERT skips before it fails"
    )
    input_format_allow_errors_ratio: float = setting(
        0.0, "or this part of the rows read so far; the larger of the two counts"
    )
    input_format_encoding: str = setting(
        "", "of CSV, TSV and JSON texts, by its usual name: latin1, utf-16, cp1251; else UTF-8"
    )
    date_time_input_format: str = setting(
        "basic", "basic, or best_effort: times as people write them, 3 Feb 2024 4:05 PM"
    )
    input_format_csv_allow_variable_number_of_columns: bool = setting(
        default=False, description="further CSV values are left out, missing ones are defaults"
    )
    format_csv_allow_double_quotes: bool = setting(
        default=True, description='CSV values may stand in "'
    )
    format_csv_allow_single_quotes: bool = setting(
        default=False, description="CSV values may stand in '"
    )
    input_format_csv_skip_first_lines: int = setting(0, "lines of a CSV file to leave out")
    input_format_csv_empty_as_default: bool = setting(
        default=True, description="an empty CSV value becomes the column's default"
    )
    output_format_json_quote_64bit_integers: bool = setting(
        default=False, description="write 64-bit integers as strings in JSON"
    )
    output_format_pretty_max_rows: int = setting(10_000, "rows shown in a pretty table")

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """The settings that are `given`, as texts or values, and the defaults of the others. Raises
        UnknownSetting, BadSetting.
        """
        values: dict[str, Any] = {}
        for name, text in given.items():
            found = find_query_setting(name)
            value = found.parse(text)
            if found.name in QUERY_SETTINGS:
                values[found.name] = value
        return cls(**values)


QUERY_SETTINGS: Mapping[str, Setting] = settings_of(QuerySettings, "query")


def find_query_setting(name: str) -> Setting:
    """The setting of that name, which may be a neutral one. Raises UnknownSetting with the nearest
    names.
    """
    return NEUTRAL_QUERY_SETTINGS.get(name) or find(QUERY_SETTINGS, name, ALIASES)


def query_settings(settings: Mapping[str, Any] | QuerySettings | None) -> QuerySettings:
    """The settings of a statement, from what a caller in Python gave. Raises UnknownSetting,
    BadSetting.
    """
    if isinstance(settings, QuerySettings):
        return settings
    return QuerySettings.of(settings or {})
