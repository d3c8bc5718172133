"""Files as what an asset returns: a form that says how they are read, and their content."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dagster as dg
import pyarrow as pa
from pydantic import Field

from rmt_pipeline.compute.inputs.conform import File, conform, file_of_format, with_content
from rmt_pipeline.compute.insert.blocks import key_columns_of
from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.syntax.types import arrow_schema, parse_type
from rmt_pipeline.table import Table
from rmt_pipeline.types.escapes import quote_name

_SETTINGS = QuerySettings()


def _option(name: str, description: str) -> Any:
    """A field of a form that is the setting of that name."""
    return Field(default=getattr(_SETTINGS, name), description=description)


class ReaderConfig(dg.Config):
    """How an asset reads its files; the defaults are for CSV with a header, in UTF-8. When a file
    can't be read, the error of the run names the option to change here.
    """

    input_format_encoding: str = _option(
        "input_format_encoding", "The text's encoding: latin1, utf-16, cp1251, … Empty: UTF-8."
    )
    format_csv_delimiter: str = _option(
        "format_csv_delimiter", "The character between the values of a CSV line."
    )
    input_format_skip_unknown_fields: bool = _option(
        "input_format_skip_unknown_fields", "Leave out columns that the table does not have."
    )
    input_format_csv_allow_variable_number_of_columns: bool = _option(
        "input_format_csv_allow_variable_number_of_columns",
        "Leave out what a CSV line has after the last column; what it lacks gets the default.",
    )
    input_format_csv_skip_first_lines: int = _option(
        "input_format_csv_skip_first_lines", "How many lines to leave out before the header."
    )
    input_format_allow_errors_num: int = _option(
        "input_format_allow_errors_num", "How many rows that can't be read may be left out."
    )
    date_time_input_format: str = _option(
        "date_time_input_format",
        "basic, or best_effort: also times as people write them, 3 Feb 2024 4:05 PM.",
    )

    def file(
        self, path: str | os.PathLike[str], format_name: str = "CSVWithNames"
    ) -> "ReadFile":
        """A file for an asset to return: its rows are stored. The path may be a pattern; the format
        is one that INSERT … FORMAT knows.
        """
        return ReadFile(file_of_format(format_name, os.fspath(path)), self.model_dump())


@dataclass(frozen=True, slots=True)
class ReadFile:
    """The rows of a file, or of files, and the settings with which they are read."""

    file: File
    settings: Mapping[str, Any]

    def read(self) -> "Content":
        """The files' content as it is now. Raises UserError, IncorrectData."""
        return Content(with_content(self.file), QuerySettings.of(self.settings))


@dataclass(frozen=True, slots=True)
class Content:
    """Files that were read once, for the token and for the rows: so the token is that of the rows
    that are stored, also when a file changes meanwhile.
    """

    files: tuple[File, ...]
    settings: QuerySettings

    def given(self, table: Table) -> pa.Table:
        """The rows with the values that the files have. What they do not have is NULL, or zero or
        empty in a column that can't be NULL: its default may be another one each time. Raises what
        `conform` raises.
        """
        columns = _without_defaults(table.definition.columns)
        found = conform(
            self.files,
            columns,
            settings=self.settings,
            key_columns=key_columns_of(table.definition),
        )
        none = arrow_schema(one for one in columns if one.is_stored).empty_table()
        return pa.concat_tables([none, *found])


def _without_defaults(columns: Sequence[Column]) -> list[Column]:
    """The columns without expressions, except that an EPHEMERAL column gets a stored one with its
    values. Each keeps its kind, on which it depends whether a file may have it. One with a DEFAULT
    may be NULL where that is possible: else a file without values for it could not be told from one
    that has zeros.
    """
    plain = [
        one
        if one.default_kind == "ALIAS"
        else replace(one, default="", type=_or_null(one) if one.default else one.type)
        for one in columns
    ]
    copies = [
        Column(f"{one.name} given", one.type, "MATERIALIZED", quote_name(one.name))
        for one in columns
        if one.default_kind == "EPHEMERAL"
    ]
    return [*plain, *copies]


def _or_null(column: Column) -> str:
    if column.default_kind != "DEFAULT":
        return column.type
    try:
        return parse_type(f"Nullable({column.type})").text
    except UserError:  # an array, say
        return column.type
