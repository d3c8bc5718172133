"""Answers as RowBinary: rows of the original's own binary values, one after the other."""

from collections.abc import Iterable
from typing import BinaryIO

from rmt_pipeline.protocol.nodes.formats import varint
from rmt_pipeline.sql.formats.rows import Rows, small_batches
from rmt_pipeline.types.binary import binary_encoder, text_bytes
from rmt_pipeline.types.to_text import plain_values


def write_row_binary(rows: Rows, out: BinaryIO, *, names: bool, types: bool) -> None:
    """With a head of names, and of types, where asked for. Raises NoBinaryForm before anything is
    written.
    """
    encoders = [binary_encoder(column.type) for column in rows.columns]
    head = bytearray()
    if names:
        head += varint(len(rows.columns))
        head += b"".join(text_bytes(column.name) for column in rows.columns)
    if types:
        head += b"".join(text_bytes(column.type.text) for column in rows.columns)
    out.write(head)
    for batch in small_batches(rows.batches):
        piece = bytearray()
        columns: list[Iterable[object]] = [plain_values(array) for array in batch.columns]
        for row in zip(*columns, strict=True):
            for encode, value in zip(encoders, row, strict=True):
                encode(value, piece)
        out.write(piece)
