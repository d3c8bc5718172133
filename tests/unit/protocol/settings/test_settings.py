"""Settings (spec §15)."""

from dataclasses import replace

import pytest

from rmt_pipeline.protocol.errors import UnknownSetting
from rmt_pipeline.protocol.settings.neutral import (
    NEUTRAL_QUERY_SETTINGS,
    NEUTRAL_TABLE_SETTINGS,
)
from rmt_pipeline.protocol.settings.query import (
    QUERY_SETTINGS,
    QuerySettings,
    find_query_setting,
    query_settings,
)
from rmt_pipeline.protocol.settings.setting import (
    BadSetting,
    FixedSetting,
    Setting,
    TypeName,
    checked,
    setting_text,
)
from rmt_pipeline.protocol.settings.table import (
    TABLE_SETTINGS,
    TableSettings,
    find_table_setting,
)


def test_defaults_are_those_of_the_original() -> None:
    """P28. A few that people rely on; 24.x."""
    table, query = TableSettings(), QuerySettings()
    assert table.parts_to_throw_insert == 3000
    assert table.replicated_deduplication_window == 1000
    assert table.max_bytes_to_merge_at_max_space_in_pool == 150 * 1024**3
    assert table.old_parts_lifetime == 480
    assert query.max_insert_block_size == 1_048_545
    assert query.insert_deduplicate
    assert query.alter_sync == 1


def test_every_setting_has_a_type_a_default_and_a_meaning() -> None:
    """P28."""
    for settings in (TABLE_SETTINGS, QUERY_SETTINGS):
        for name, one in settings.items():
            assert one.name == name
            assert len(one.description) > 10
            assert one.parse(one.default_text) == one.default


def test_values_are_read_as_their_type() -> None:
    settings = TableSettings.of(
        {
            "old_parts_lifetime": "1",
            "max_bytes_to_merge_at_max_space_in_pool": "10Gi",
            "max_replicated_fetches_network_bandwidth": "5M",
            "ttl_only_drop_parts": "false",
            "merge_selector_base": "2.5",
            "replicated_can_become_leader": True,
        }
    )
    assert settings.old_parts_lifetime == 1
    assert settings.max_bytes_to_merge_at_max_space_in_pool == 10 * 1024**3
    assert settings.max_replicated_fetches_network_bandwidth == 5_000_000
    assert settings.ttl_only_drop_parts is False
    assert settings.merge_selector_base == 2.5
    assert settings.replicated_can_become_leader is True


def setting_of(kind: TypeName) -> Setting:
    return Setting("s", "table", kind, "", "for tests")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("Bool", "OFF", False),
        ("Bool", "on", True),
        ("Bool", True, True),
        ("UInt64", "0", 0),
        ("UInt64", "18446744073709551615", 2**64 - 1),
        ("UInt64", "18446744073709551616", None),
        ("UInt64", "9223372036854775808", 2**63),
        ("Seconds", "1K", 1000),
        ("Seconds", "2Ki", 2048),
        ("Milliseconds", "3M", 3_000_000),
        ("UInt64", "4Ti", 4 * 1024**4),
        ("UInt64", "9000000000T", None),
        ("UInt64", "-1", None),
        ("UInt64", "1e19", 10**19),
        ("UInt64", "2e19", None),
        ("Int64", "-9223372036854775808", -(2**63)),
        ("Int64", "9223372036854775807", 2**63 - 1),
        ("Int64", "9223372036854775808", None),
        ("Int64", "-9223372036854775809", None),
        ("Float", "2", 2.0),
        ("Float", 0.00001, 0.00001),
        ("Float", 3.0, 3.0),
        ("Float", "-1", None),
        ("Float", ".5", None),
        ("Char", ";", ";"),
        ("Char", "", None),
        ("Char", "ab", None),
        ("String", "", ""),
    ],
)
def test_the_values_of_each_type(kind: TypeName, text: object, value: object) -> None:
    if value is None:
        with pytest.raises(BadSetting, match=f"setting s, which is {kind}"):
            setting_of(kind).parse(text)
        return
    found = setting_of(kind).parse(text)
    assert (found, type(found)) == (value, type(value))


def test_a_setting_that_is_fixed_has_its_default_and_no_other_value() -> None:
    one = replace(setting_of("UInt64"), default=5, fixed=True)
    assert one.parse("5") == 5
    with pytest.raises(FixedSetting, match="the setting s is 5 here and can't become 6"):
        one.parse("6")
    assert replace(one, fixed=False).parse("6") == 6


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "1"), (False, "0"), (1.0, "1"), (2.5, "2.5"), (1e-07, "0.0000001"), (7, "7")],
)
def test_a_value_as_text(value: object, text: str) -> None:
    assert setting_text(value) == text


def test_given_settings_are_checked_and_kept_as_they_were_said() -> None:
    given = [("replication_alter_partitions_sync", "2"), ("max_threads", "1K")]
    kept = {"alter_sync": "2", "max_threads": "1K"}
    assert checked(given, find_query_setting) == kept
    with pytest.raises(BadSetting, match="max_threads"):
        checked([("max_threads", "many")], find_query_setting)


def test_what_a_caller_in_python_gives() -> None:
    """Neutral settings of the original are taken, and change nothing."""
    one = QuerySettings(alter_sync=2)
    assert query_settings(one) is one
    assert query_settings(None) == query_settings({}) == QuerySettings()
    neutral, fine = next(iter(NEUTRAL_QUERY_SETTINGS)), next(iter(NEUTRAL_TABLE_SETTINGS))
    given = {neutral: "1", "alter_sync": 2}
    assert query_settings(given) == one
    assert TableSettings.of({fine: "1"}) == TableSettings()


def test_a_power_of_ten_is_a_number_as_long_as_it_fits() -> None:
    one = find_query_setting("insert_quorum_timeout")
    assert one.parse("300e3") == one.parse("3e+5") == 300_000
    for text in ("3e20", "1.5e3", "3e-1", "e3"):
        with pytest.raises(BadSetting, match="is not a value for the setting"):
            one.parse(text)


def test_an_old_name_still_works() -> None:
    assert QuerySettings.of({"replication_alter_partitions_sync": "2"}).alter_sync == 2


def test_a_negative_number_only_where_it_means_something() -> None:
    name = "replication_wait_for_inactive_replica_timeout"
    assert find_query_setting(name).parse("-1") == -1
    with pytest.raises(BadSetting, match="'-1' is not a value for the setting alter_sync"):
        find_query_setting("alter_sync").parse("-1")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("dry_run", "maybe"),
        ("max_threads", "many"),
        ("max_threads", "1Q"),
        ("max_threads", str(2**64)),
        ("format_csv_delimiter", "::"),
    ],
)
def test_a_value_of_the_wrong_type_is_an_error(name: str, text: str) -> None:
    """P28."""
    with pytest.raises(BadSetting, match=name):
        find_query_setting(name).parse(text)


def test_a_float_is_plain_decimal() -> None:
    with pytest.raises(BadSetting):
        find_table_setting("merge_selector_base").parse("nan")
    assert find_table_setting("merge_selector_base").parse("3") == 3.0


def test_an_unknown_name_names_the_nearest() -> None:
    """P28."""
    with pytest.raises(UnknownSetting, match="did you mean insert_deduplicate"):
        find_query_setting("insert_deduplicat").parse("1")
    with pytest.raises(UnknownSetting, match=r"there is no table setting qqqqqqqq$"):
        find_table_setting("qqqqqqqq").parse("1")


def test_a_string_is_taken_as_it_is() -> None:
    assert find_query_setting("insert_deduplication_token").parse(" t ") == " t "
    assert find_query_setting("format_csv_delimiter").parse(";") == ";"
