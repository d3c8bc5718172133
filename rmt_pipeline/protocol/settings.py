"""Settings: what there is, what it means, and one value of each for a table or a statement."""

from rmt_pipeline.protocol.query_settings import (
    QUERY_SETTINGS,
    QuerySettings,
    find_query_setting,
    parse_query_setting,
)
from rmt_pipeline.protocol.setting import BadSetting, Level, Setting, Value, value_text
from rmt_pipeline.protocol.table_settings import (
    TABLE_SETTINGS,
    TableSettings,
    find_table_setting,
    parse_table_setting,
)

__all__ = [
    "QUERY_SETTINGS",
    "TABLE_SETTINGS",
    "BadSetting",
    "Level",
    "QuerySettings",
    "Setting",
    "TableSettings",
    "Value",
    "find_query_setting",
    "find_table_setting",
    "parse_query_setting",
    "parse_table_setting",
    "value_text",
]
