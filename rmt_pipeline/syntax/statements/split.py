"""Cuts a text into statements, as the original's client does.

A statement ends at a `;` outside quotes and comments. INSERT … FORMAT with its rows in the text is
different: the rows are not SQL and may contain any `;`, so they end at the next empty line or at
the end of the text. JSON also ends at a `;` after a closing bracket at the end of a line, which
valid JSON can't contain. INSERT … VALUES ends at its `;` like every other statement.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rmt_pipeline.syntax.cursor import Cursor
from rmt_pipeline.syntax.lexer import (
    COMMENT,
    QUOTED_NAME,
    QUOTED_STRING,
    place,
    problem,
    skip_space,
)

_UNTIL_SEMICOLON = re.compile(
    rf"(?:[^;'\"`\-/#]++|{QUOTED_STRING}|{QUOTED_NAME}|{COMMENT}|[-/#])*+", re.DOTALL
)
_EMPTY_LINE = re.compile(r"\n\r?\n")  # a line of tabs is a TSV row of empty strings
_WORD = re.compile(r"[A-Za-z]+")
_BINARY = re.compile(r"\b(?:Parquet|Arrow|RowBinary)\w*\s*\Z", re.IGNORECASE)
_JSON = re.compile(r"\b(?:JSON\w*|NDJSON)\s*\Z", re.IGNORECASE)
_END_OF_JSON = re.compile(r"(?<=[}\]])[ \t]*;[ \t\r]*(?=\n|\Z)")
STATEMENT_WORDS = frozenset(
    (
        "ALTER", "ATTACH", "BACKUP", "CHECK", "CREATE", "DELETE", "DESC", "DESCRIBE", "DETACH",
        "DROP", "EXCHANGE", "EXISTS", "EXPLAIN", "FROM", "GRANT", "INSERT", "KILL", "MOVE",
        "OPTIMIZE", "RENAME", "REPLACE", "RESTORE", "REVOKE", "SELECT", "SET", "SHOW", "SYSTEM",
        "TRUNCATE", "UNDROP", "UPDATE", "USE", "WATCH", "WITH",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Piece:
    """One statement, `source[start:stop]`, without its `;`. Positions are those in all of `source`.

    `number` counts statements from 1.
    """

    source: str
    start: int
    stop: int
    number: int

    @property
    def text(self) -> str:
        return self.source[self.start : self.stop].rstrip()


def split(source: str) -> Iterator[Piece]:
    """Yield the statements of `source`, one after the other, without empty ones.

    Raises SyntaxProblem only when it reaches a place that can't be read (a quote never closed). By
    then the caller may have carried out the statements before it, as the original's client does.
    """
    at, number = 0, 0
    while True:
        at = skip_space(source, at, len(source))
        if at == len(source):
            return
        if source[at] == ";":
            at += 1
            continue
        number += 1
        stop = _statement_end(source, at)
        yield Piece(source, at, stop, number)
        at = stop


def _statement_end(source: str, start: int) -> int:
    data = insert_data_start(source, start, len(source))
    if data is None:
        return _semicolon(source, start)
    if source[data : data + 1] == ";":  # no rows in the text: they come from standard input
        return data
    if _BINARY.search(source, start, data):
        return len(source)  # in binary rows the bytes of an empty line mean nothing
    empty_line = _EMPTY_LINE.search(source, max(data - 1, 0))
    if _JSON.search(source, start, data):
        last = len(source) if empty_line is None else empty_line.start() + 1
        end_of_json = _END_OF_JSON.search(source, data, last)
        if end_of_json is not None:
            return end_of_json.start()
    if empty_line is None:
        return len(source)
    _refuse_cut_rows(source, empty_line.end())
    return empty_line.start() + 1  # the last row keeps its end of line


def _refuse_cut_rows(source: str, at: int) -> None:
    """Raise SyntaxProblem, before anything is inserted, if rows seem to go on after an
    empty line.
    """
    at = skip_space(source, at, len(source))
    word = _WORD.match(source, at)
    if at == len(source) or source[at] in "(;":
        return
    if word is not None and word.group().upper() in STATEMENT_WORDS:
        return
    raise problem(
        source,
        at,
        "the rows of INSERT … FORMAT end at an empty line, and what follows is no statement"
        " (remove the empty line, or give the rows with FROM INFILE)",
    )


def _semicolon(source: str, start: int) -> int:
    match = _UNTIL_SEMICOLON.match(source, start)
    stop = match.end() if match else start
    if stop < len(source) and source[stop] != ";":
        what = f"a quote {source[stop]} that is opened here and never closed"
        raise problem(source, stop, f"{what} (the statement begins at {place(source, start)})")
    return stop


def insert_data_start(source: str, start: int, stop: int) -> int | None:
    """Return the offset at which the rows of an INSERT … FORMAT begin; None for other
    statements.
    """
    cursor = Cursor(source, start, stop)
    if not cursor.take_words("INSERT"):
        return None
    depth = 0
    while True:
        token = cursor.advance()
        if token.kind == "end" or token.text == ";":
            return None
        if token.text in ("(", "["):
            depth += 1
        elif token.text in (")", "]"):
            depth -= 1
        elif depth == 0 and token.upper in ("SELECT", "WITH", "VALUES", "INFILE"):
            return None
        elif depth == 0 and token.upper == "FORMAT":
            name = cursor.current
            is_format = name.kind == "word" and name.upper != "VALUES"
            return rows_start(source, name.end, stop) if is_format else None


def rows_start(source: str, at: int, stop: int) -> int:
    """Return the offset at which rows start: after the first line end if only blanks come before
    it, else at the first character that is no blank.
    """
    while at < stop and source[at] in " \t\f\r":
        at += 1
    return at + 1 if at < stop and source[at] == "\n" else at
