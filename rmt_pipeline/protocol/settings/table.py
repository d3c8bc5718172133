"""Settings of a table (`CREATE TABLE … SETTINGS`, MergeTree settings; spec §15), 24.x
defaults.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from rmt_pipeline.protocol.settings.neutral import NEUTRAL_TABLE_SETTINGS
from rmt_pipeline.protocol.settings.setting import Setting, find, setting, settings_of

MIB = 1024**2
GIB = 1024**3
WEEK_S = 604_800


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    """One table's settings. Times are in seconds unless the name says ms, sizes in bytes."""

    # --- what a part is
    index_granularity: int = setting(8192, "rows between index marks; kept in the metadata")
    index_granularity_bytes: int = setting(10 * MIB, "bytes between index marks; 0 is fixed")
    allow_nullable_key: bool = setting(default=False, description="keys may be Nullable")
    replicated_can_become_leader: bool = setting(
        default=True, description="this replica may assign merges and mutations"
    )

    # --- inserts
    parts_to_delay_insert: int = setting(
        1000, "active parts in one partition from which on inserts are slowed down"
    )
    parts_to_throw_insert: int = setting(
        3000, "active parts in one partition from which on inserts fail with TOO_MANY_PARTS"
    )
    inactive_parts_to_delay_insert: int = setting(0, "the same for outdated parts; 0 is off")
    inactive_parts_to_throw_insert: int = setting(0, "the same for outdated parts; 0 is off")
    max_avg_part_size_for_too_many_parts: int = setting(
        GIB, "a partition whose parts are larger on average may have any number of them"
    )
    max_delay_to_insert: int = setting(
        1, "the longest that an insert is slowed down", "Seconds"
    )
    min_delay_to_insert_ms: int = setting(10, "the shortest", "Milliseconds")
    max_parts_in_total: int = setting(100_000, "active parts of the table before inserts fail")
    replicated_deduplication_window: int = setting(
        1000, "how many ids of blocks and inserts are remembered; 0 is no deduplication"
    )
    non_replicated_deduplication_window: int = setting(
        0,
        "the same for a table of one copy (ENGINE = MergeTree); 0: replicated_deduplication_window "
        "ids of inserts with a token, and the same rows without one are other rows",
    )
    replicated_deduplication_window_seconds: int = setting(
        WEEK_S, "for how long, counted from the newest one", "Seconds"
    )

    # --- choosing merges
    max_bytes_to_merge_at_max_space_in_pool: int = setting(
        150 * GIB, "largest sum of sources while the pool is idle"
    )
    max_bytes_to_merge_at_min_space_in_pool: int = setting(
        MIB, "largest sum of sources while the pool is nearly full"
    )
    max_replicated_merges_in_queue: int = setting(
        1000, "queued merges and mutations from which on no more are assigned"
    )
    max_replicated_mutations_in_queue: int = setting(8, "the same, for mutations alone")
    max_replicated_merges_with_ttl_in_queue: int = setting(1, "the same, for TTL merges alone")
    max_number_of_merges_with_ttl_in_pool: int = setting(2, "TTL merges that run at once")
    number_of_free_entries_in_pool_to_lower_max_size_of_merge: int = setting(
        8, "with fewer free slots in the pool, only smaller merges start"
    )
    number_of_free_entries_in_pool_to_execute_mutation: int = setting(
        20, "a mutation starts only with this many slots free"
    )
    max_parts_to_merge_at_once: int = setting(100, "most parts in one merge; not for FINAL")
    min_parts_to_merge_at_once: int = setting(0, "fewest parts in one merge")
    merge_selector_base: float = setting(
        5.0, "how much larger than its largest part a merge must be"
    )
    merge_selector_window_size: int = setting(1000, "parts of a run that are looked at")
    merge_selector_enable_heuristic_to_remove_small_parts_at_right: bool = setting(
        default=True, description="leave tiny parts at a merge's right end for later"
    )
    merge_selecting_sleep_ms: int = setting(
        5000, "pause when there is nothing to merge", "Milliseconds"
    )
    max_merge_selecting_sleep_ms: int = setting(
        60_000, "the longest such pause", "Milliseconds"
    )
    merge_selecting_sleep_slowdown_factor: float = setting(1.2, "how fast the pause grows")
    min_age_to_force_merge_seconds: int = setting(
        0,
        "parts older than this are merged even if a merge is not worth it; 0 is off",
        "Seconds",
    )
    min_age_to_force_merge_on_partition_only: bool = setting(
        default=False, description="and then only all parts of a partition"
    )
    allow_experimental_replacing_merge_with_cleanup: bool = setting(
        default=False,
        description="OPTIMIZE … FINAL CLEANUP may take rows away that are marked as deleted",
    )

    # --- running merges and mutations
    always_fetch_merged_part: bool = setting(
        default=False, description="never merge here, fetch what others merged"
    )
    prefer_fetch_merged_part_time_threshold: int = setting(
        3600, "from this age of the entry on, large merged parts are fetched", "Seconds"
    )
    prefer_fetch_merged_part_size_threshold: int = setting(10 * GIB, "and large is this")
    execute_merges_on_single_replica_time_threshold: int = setting(
        0, "for how long only one chosen replica merges; 0 is off", "Seconds"
    )
    try_fetch_recompressed_part_timeout: int = setting(
        7200, "for how long to wait for another replica's recompressed part", "Seconds"
    )
    detach_not_byte_identical_parts: bool = setting(
        default=False, description="keep a merge's differing result in detached"
    )
    replicated_max_mutations_in_one_entry: int = setting(10_000, "mutations per MUTATE_PART")
    number_of_mutations_to_delay: int = setting(
        500, "unfinished mutations from which on new ones are slowed down; 0 is off"
    )
    number_of_mutations_to_throw: int = setting(
        1000, "unfinished mutations from which on new ones fail; 0 is off"
    )
    min_delay_to_mutate_ms: int = setting(
        10, "the shortest that a mutation is slowed down", "Milliseconds"
    )
    max_delay_to_mutate_ms: int = setting(1000, "the longest", "Milliseconds")
    max_postpone_time_for_failed_mutations_ms: int = setting(
        300_000, "longest pause between tries of a mutation that fails", "Milliseconds"
    )

    # --- TTL
    merge_with_ttl_timeout: int = setting(
        14_400, "pause between a partition's TTL merges", "Seconds"
    )
    merge_with_recompression_ttl_timeout: int = setting(
        14_400, "the same, recompressing", "Seconds"
    )
    ttl_only_drop_parts: bool = setting(
        default=False, description="only drop parts that are expired as a whole"
    )

    # --- upkeep
    min_replicated_logs_to_keep: int = setting(10, "log entries that are kept in any case")
    max_replicated_logs_to_keep: int = setting(
        1000, "an inactive replica that is farther behind becomes lost"
    )
    old_parts_lifetime: int = setting(480, "how long covered parts stay on disk", "Seconds")
    temporary_directories_lifetime: int = setting(
        86_400, "how long the directories of interrupted attempts are kept", "Seconds"
    )
    finished_mutations_to_keep: int = setting(
        100, "finished mutations that system.mutations still shows"
    )
    cleanup_delay_period: int = setting(30, "pause between clean-ups", "Seconds")
    cleanup_delay_period_random_add: int = setting(10, "up to so much is added", "Seconds")
    max_cleanup_delay_period: int = setting(300, "longest pause of an idle table", "Seconds")
    simultaneous_parts_removal_limit: int = setting(0, "parts per clean-up; 0 is no limit")

    scrub_period: int = setting(
        WEEK_S,
        "how often a server reads every part whole, to find what its disk has lost",
        "Seconds",
    )
    scrub_bytes_per_second: int = setting(
        10 * MIB, "how fast it does, over all tables of the server; 0 is not at all"
    )

    # --- starting
    zookeeper_session_expiration_check_period: int = setting(
        60,
        "how often a server asks whether a table is still active, if nothing told it",
        "Seconds",
    )
    replicated_max_ratio_of_wrong_parts: float = setting(
        0.5, "of a table's rows, how many may be in unexpected parts for it to start"
    )
    max_suspicious_broken_parts: int = setting(100, "parts that may be broken for it to start")
    max_suspicious_broken_parts_bytes: int = setting(GIB, "and how many bytes in them")
    detach_old_local_parts_when_cloning_replica: bool = setting(
        default=True, description="keep in detached what a lost replica had"
    )

    # --- exchange
    max_replicated_fetches_network_bandwidth: int = setting(0, "bytes per second; 0 is any")
    max_replicated_sends_network_bandwidth: int = setting(0, "bytes per second; 0 is any")

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """The settings that are `given`, as texts or values, and the defaults of the others. Raises
        UnknownSetting, BadSetting.
        """
        values: dict[str, Any] = {
            name: find_table_setting(name).parse(text) for name, text in given.items()
        }
        return cls(**{name: values[name] for name in values if name in TABLE_SETTINGS})


TABLE_SETTINGS: Mapping[str, Setting] = settings_of(TableSettings, "table")


def find_table_setting(name: str) -> Setting:
    """The setting of that name, which may be a neutral one. Raises UnknownSetting with the nearest
    names.
    """
    return NEUTRAL_TABLE_SETTINGS.get(name) or find(TABLE_SETTINGS, name, {})
