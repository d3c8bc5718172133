"""Log entries to text and back, byte for byte as the original writes them (spec §0.4.1)."""

from dataclasses import replace
from typing import TypedDict, assert_never

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.log.entry import (
    MERGE_REGULAR,
    MERGE_TTL_DELETE,
    MERGE_TTL_RECOMPRESS,
    AlterMetadata,
    AttachPart,
    DropPart,
    DropRange,
    GetPart,
    LogEntry,
    MergeParts,
    MergeType,
    MutatePart,
    ReplaceRange,
)
from rmt_pipeline.protocol.log.rules import (
    columns_defect,
    header_defect,
    merge_defect,
    mutation_defect,
    replacement_defect,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.reader import TextReader
from rmt_pipeline.protocol.text import (
    escape,
    format_time,
    parse_decimal,
    parse_time,
    quote_all,
    unescape,
    unquote_all,
)

FORMAT_MIN, FORMAT_MAX = 1, 7  # those we read; we write the smallest that can hold the entry
FORMAT_PLAIN, FORMAT_DEDUPLICATE_BY, FORMAT_ENTRY_ID = 4, 6, 7

ALTER_VERSION_MAX = 2**31 - 1  # a ZooKeeper data version
ALTER_BYTES_MAX = 2**20  # a larger text does not fit into a node
REPLICAS_MAX = 2**31 - 1


def encode(entry: LogEntry) -> bytes:
    """The text of the entry. `decode` is its inverse."""
    lines = [
        f"format version: {_format_of(entry)}",
        f"create_time: {format_time(entry.create_time)}",
        f"source replica: {entry.source_replica}",
        f"block_id: {escape(entry.block_id)}",
    ]
    if entry.entry_id:
        lines.append(f"log_entry_id: {escape(entry.entry_id)}")
    lines += _body(entry)
    if entry.quorum:
        lines.append(f"quorum: {entry.quorum}")
    return ("\n".join(lines) + "\n").encode()


def _format_of(entry: LogEntry) -> int:
    if entry.entry_id:
        return FORMAT_ENTRY_ID
    if isinstance(entry, MergeParts) and entry.deduplicate_by:
        return FORMAT_DEDUPLICATE_BY
    return FORMAT_PLAIN


def _body(entry: LogEntry) -> list[str]:
    match entry:
        case GetPart():
            return ["get", str(entry.part)]
        case AttachPart():
            return ["attach", str(entry.part), f"part_checksum: {entry.checksum}"]
        case MergeParts():
            return _merge_body(entry)
        case MutatePart():
            lines = ["mutate", str(entry.source), "to", str(entry.result)]
            alter = ["alter_version", str(entry.alter_version)]
            return lines if entry.alter_version == -1 else lines + alter
        case DropRange():
            return ["detach" if entry.detach else "drop", str(entry.range)]
        case DropPart():
            return ["detach" if entry.detach else "drop", str(entry.part)]
        case ReplaceRange():
            return _replacement_body(entry)
        case AlterMetadata():
            return _alter_body(entry)
        case _:
            assert_never(entry)


def _merge_body(entry: MergeParts) -> list[str]:
    lines = ["merge", *map(str, entry.sources), "into", str(entry.result)]
    lines.append(f"deduplicate: {entry.deduplicate:d}")
    if entry.merge_type != MERGE_REGULAR:
        lines.append(f"merge_type: {entry.merge_type}")
    if entry.deduplicate_by:
        lines.append(f"deduplicate_by_columns: {quote_all(entry.deduplicate_by)}")
    if entry.cleanup:
        lines.append("cleanup: 1")
    return lines


def _replacement_body(entry: ReplaceRange) -> list[str]:
    return [
        "REPLACE_RANGE",
        f"drop_range_name: {entry.range}",
        f"from_database: {escape(entry.from_database)}",
        f"from_table: {escape(entry.from_table)}",
        f"source_parts: [{quote_all(entry.source_parts)}]",
        f"new_parts: [{quote_all(tuple(map(str, entry.new_parts)))}]",
        f"part_checksums: [{quote_all(entry.part_checksums)}]",
        f"columns_version: {entry.columns_version}",
    ]


def _alter_body(entry: AlterMetadata) -> list[str]:
    return [
        "alter",
        "alter_version",
        str(entry.alter_version),
        "have_mutation",
        f"{entry.have_mutation:d}",
        "columns_str_size:",
        str(len(entry.columns_text.encode())),
        entry.columns_text,
        "metadata_str_size:",
        str(len(entry.metadata_text.encode())),
        entry.metadata_text,
    ]


def decode(data: bytes, *, ctime_s: int = 0) -> LogEntry:
    """The entry that `encode` wrote as this text.

    `ctime_s` is when its node was created, in seconds since the epoch, for old texts without a
    create_time. Lines about properties that our parts do not have (uuid, part_type,
    storage_type) are skipped. Raises Corruption if any byte is not understood, and for kinds of
    entries that are deprecated.
    """
    reader = TextReader(data, "log entry")
    number = reader.number("format version: ", low=FORMAT_MIN, high=FORMAT_MAX)
    created_s = reader.field_as("create_time: ", parse_time) if number >= 2 else 0
    header = _HeaderFields(
        create_time=created_s or ctime_s,
        source_replica=reader.field("source replica: "),
        block_id=reader.field_as("block_id: ", unescape) if number >= 3 else "",
        entry_id=reader.field_as("log_entry_id: ", unescape)
        if number >= FORMAT_ENTRY_ID
        else "",
    )
    reader.refuse(header_defect(header["create_time"], header["source_replica"], quorum=0))
    entry = _read_body(reader, number, header)
    reader.optional_field("part_type: ")
    reader.optional_field("storage_type: ")
    quorum_text = reader.optional_field("quorum: ")
    reader.end()
    if quorum_text is None:
        return entry
    return replace(entry, quorum=reader.parse(quorum_text, _parse_quorum))


class _HeaderFields(TypedDict):
    create_time: int
    source_replica: str
    block_id: str
    entry_id: str


def _parse_quorum(text: str) -> int:
    return parse_decimal(text, high=REPLICAS_MAX)


def _read_body(reader: TextReader, number: int, header: _HeaderFields) -> LogEntry:
    match reader.line():
        case "get":
            return GetPart(_part(reader), **header)
        case "attach":
            return AttachPart(_part(reader), reader.field("part_checksum: "), **header)
        case "merge":
            return _read_merge(reader, number, header)
        case "mutate":
            return _read_mutation(reader, header)
        case "drop" | "detach" as verb:
            part = _part(reader)
            kind = DropRange if part.is_drop_range else DropPart
            return kind(part, detach=verb == "detach", **header)
        case "REPLACE_RANGE":
            return _read_replacement(reader, header)
        case "alter":
            return _read_alter(reader, header)
        case kind_text:
            raise reader.corruption(f"entries of the kind {kind_text!r} are not known here")


def _part(reader: TextReader) -> PartName:
    return reader.parse(reader.line(), PartName.parse)


def _read_merge(reader: TextReader, number: int, header: _HeaderFields) -> MergeParts:
    sources: list[PartName] = []
    while (line := reader.line()) != "into":
        sources.append(reader.parse(line, PartName.parse))
    result = _part(reader)
    reader.refuse(merge_defect(tuple(sources), result))
    deduplicate = reader.flag("deduplicate: ") if number >= FORMAT_PLAIN else False
    merge_type: MergeType = MERGE_REGULAR
    columns: tuple[str, ...] = ()
    cleanup = False
    # Like the original, accept these lines in any order and more than once.
    while not reader.at_end:
        if (text := reader.optional_field("merge_type: ")) is not None:
            merge_type = reader.parse(text, _parse_merge_type)
        elif (text := reader.optional_field("deduplicate_by_columns: ")) is not None:
            columns = reader.parse(text, unquote_all)
        elif (text := reader.optional_field("cleanup: ")) is not None:
            cleanup = reader.parse(text, _parse_flag)
        elif reader.optional_field("into_uuid: ") is None:
            break
    reader.refuse(columns_defect(deduplicate=deduplicate, deduplicate_by=columns))
    return MergeParts(
        tuple(sources), result, deduplicate, columns, merge_type, cleanup, **header
    )


def _parse_merge_type(text: str) -> MergeType:
    for merge_type in (MERGE_REGULAR, MERGE_TTL_DELETE, MERGE_TTL_RECOMPRESS):
        if text == str(merge_type):
            return merge_type
    raise Corruption(f"{text!r} is not a type of merge (1, 2 or 3)")


def _parse_flag(text: str) -> bool:
    return parse_decimal(text, high=1) == 1


def _read_mutation(reader: TextReader, header: _HeaderFields) -> MutatePart:
    source = _part(reader)
    reader.refuse(None if reader.line() == "to" else "expected 'to' after the source part")
    result = _part(reader)
    reader.refuse(mutation_defect(source, result))
    alter_version = -1
    while (
        not reader.at_end
    ):  # in any order, as for merges, but keyword and value are on two lines
        if (text := reader.optional_field("alter_version\n")) is not None:
            alter_version = reader.parse(text, _parse_alter_version)
        elif reader.optional_field("to_uuid\n") is None:
            break
    return MutatePart(source, result, alter_version, **header)


def _parse_alter_version(text: str) -> int:
    return parse_decimal(text, low=-1, high=ALTER_VERSION_MAX)


def _read_replacement(reader: TextReader, header: _HeaderFields) -> ReplaceRange:
    part_range = reader.field_as("drop_range_name: ", PartName.parse)
    database = reader.field_as("from_database: ", unescape)
    table = reader.field_as("from_table: ", unescape)
    sources = reader.field_as("source_parts: ", _parse_array)
    names = reader.field_as("new_parts: ", _parse_array)
    checksums = reader.field_as("part_checksums: ", _parse_array)
    reader.refuse(replacement_defect(part_range, (len(sources), len(names), len(checksums))))
    parts = tuple(reader.parse(name, PartName.parse) for name in names)
    columns_version = reader.number("columns_version: ", low=-1)
    return ReplaceRange(
        part_range, database, table, sources, parts, checksums, columns_version, **header
    )


def _parse_array(text: str) -> tuple[str, ...]:
    if not (text.startswith("[") and text.endswith("]")):
        raise Corruption(f"{text!r} is not an array of strings in brackets")
    return unquote_all(text[1:-1])


def _read_alter(reader: TextReader, header: _HeaderFields) -> AlterMetadata:
    version = reader.number("alter_version\n", high=ALTER_VERSION_MAX)
    have_mutation = reader.flag("have_mutation\n")
    columns = _read_sized(reader, "columns_str_size:\n")
    metadata = _read_sized(reader, "metadata_str_size:\n")
    return AlterMetadata(version, have_mutation, columns, metadata, **header)


def _read_sized(reader: TextReader, keyword: str) -> str:
    """Read a line with a number of bytes, and the text of so many bytes; it may have newlines."""
    text = reader.take_text(reader.number(keyword, high=ALTER_BYTES_MAX))
    reader.refuse(None if reader.line() == "" else "a text is longer than its size says")
    return text
