"""Makes a table's next definition from the texts of `metadata` and `columns` (spec §8.2)."""

from dataclasses import replace

from rmt_pipeline.protocol.errors import Corruption, MetadataMismatch
from rmt_pipeline.protocol.nodes.columns import columns_text, parse_columns
from rmt_pipeline.protocol.nodes.metadata import (
    Metadata,
    metadata_differences,
    metadata_of,
    parse_metadata,
)
from rmt_pipeline.protocol.table import Column, ColumnChange, TableDefinition

_OPENING, _CLOSING = "([{", ")]}"
_QUOTES = "'\"`"


def definition_of_texts(
    definition: TableDefinition,
    metadata_text: str,
    columns_text: str,
    version: int,
    history: tuple[ColumnChange, ...],
) -> TableDefinition:
    """The definition after the ALTER that makes metadata `version` with these texts.

    Raises MetadataMismatch if the texts change what can't be altered, Corruption.
    """
    metadata = parse_metadata(metadata_text)
    for difference in metadata_differences(metadata_of(definition), metadata):
        if difference.immutable:
            raise MetadataMismatch(
                f"ALTER {version} of {definition.full_name} can't be applied: {difference}"
            )
    order_by, primary_key = _keys(metadata)
    return replace(
        definition,
        columns=parse_columns(columns_text),
        order_by=order_by,
        primary_key=primary_key,
        sample_by=metadata.sampling_expression,
        ttl=metadata.ttl,
        indices=split_key(metadata.indices),
        projections=split_key(metadata.projections),
        constraints=split_key(metadata.constraints),
        metadata_version=version,
        history=tuple(change for change in history if change.version <= version),
    )


def _keys(metadata: Metadata) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """The sorting key, and the primary key, or None if it was not given explicitly."""
    if not metadata.sorting_key:
        return split_key(metadata.primary_key), None
    return split_key(metadata.sorting_key), split_key(metadata.primary_key)


def split_key(text: str) -> tuple[str, ...]:
    """The expressions of a key's text, which commas separate. Raises Corruption."""
    if not text:
        return ()
    pieces: list[str] = []
    depth, start, quote, at = 0, 0, "", 0
    while at < len(text):
        char = text[at]
        if quote:
            at += char == "\\"  # skip the escaped character too
            quote = "" if char == quote else quote
        elif char in _QUOTES:
            quote = char
        elif char in _OPENING:
            depth += 1
        elif char in _CLOSING:
            depth -= 1
        elif char == "," and depth == 0:
            pieces.append(text[start:at].strip())
            start = at + 1
        at += 1
    pieces.append(text[start:].strip())
    if depth or quote or not all(pieces):
        raise Corruption(f"{text!r} is not a key: expressions with commas between")
    return tuple(pieces)


def same_columns(one: tuple[Column, ...], other: tuple[Column, ...]) -> bool:
    """Whether the columns are the same but for their comments, which each replica has for itself
    (spec §8.1).
    """
    return columns_text(without_comments(one)) == columns_text(without_comments(other))


def without_comments(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """The columns without their comments, as two replicas compare them."""
    return tuple(replace(column, comment="") for column in columns)
