"""`rmt sql` at a terminal, without statements: a prompt with history and completion.

This module is imported only when the prompt opens: prompt_toolkit takes as long as a short
statement.
"""

import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from rmt_pipeline import __version__
from rmt_pipeline.config import Config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import RmtError, SyntaxProblem
from rmt_pipeline.protocol.settings.query import QUERY_SETTINGS
from rmt_pipeline.protocol.settings.table import TABLE_SETTINGS
from rmt_pipeline.sql.client.script import report, run_all
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.sql.system.tables import SYSTEM_TABLES
from rmt_pipeline.syntax.statements.nodes import SYSTEM_DATABASE
from rmt_pipeline.syntax.statements.split import STATEMENT_WORDS, insert_data_start, split
from rmt_pipeline.translate.functions.registry import all_names

_ENDINGS = frozenset({"exit", "quit", "logout", "q", r"\q", ":q"})
_WORD = re.compile(r"[A-Za-z0-9_.]+", re.ASCII)
_CLAUSE_WORDS = """
    ADD AFTER ALIAS ALL AND ANTI ANY ARRAY AS ASC ASOF BETWEEN BY CASE CAST CLEAR COLUMN COMMENT
    CROSS DATABASE DATABASES DEDUPLICATE DEFAULT DESC DISTINCT ELSE END ENGINE EXCEPT EXISTS FINAL
    FIRST FORMAT FREEZE FULL GLOBAL GROUP HAVING IF ILIKE IN INFILE INNER INTERVAL INTO IS JOIN LAST
    LEFT LIKE LIMIT MATERIALIZED MODIFY MUTATION NOT NULL OFFSET ON OR ORDER OUTER PART PARTITION
    PREWHERE PRIMARY KEY REPLICA ReplicatedMergeTree RIGHT SAMPLE SEMI SETTINGS SYNC TABLE TABLES
    THEN TO TOTALS TTL UNION USING VALUES WHEN WHERE WINDOW
"""


def converse(
    config: Config, server: str, settings: Mapping[str, str], format_name: str | None
) -> int:
    """Run the prompt until Ctrl-D or `exit`. An error or Ctrl-C ends a statement, but not the
    prompt.

    Raises an error for bad `settings` or a bad server's name.
    """
    session = Session.open(config, server, settings)
    prompt = _prompt()
    sys.stdout.write(
        f"rmt_pipeline {__version__}, server {server}. A statement ends with ; Ctrl-D leaves.\n"
    )
    while True:
        try:
            text = prompt.prompt(
                f"{server} :) ", completer=_completer(session), prompt_continuation=":-] "
            )
        except KeyboardInterrupt:  # discard the typed text
            continue
        except EOFError:
            break
        if _bare(text) in _ENDINGS:
            break
        try:
            run_all(session, text, format_name, ignore_error=False, tells_time=True)
        except KeyboardInterrupt:
            sys.stderr.write("interrupted: the statement was cancelled\n\n")
            session = _anew(session, config, server)
    session.close()
    sys.stdout.write("Bye.\n")
    return 0


def _anew(session: Session, config: Config, server: str) -> Session:
    """A new session after an interrupted statement, whose locks in ZooKeeper end with the old
    session.
    """
    session.close()
    new = Session(ServerContext(config, server), session.context.settings)
    new.context.database = session.context.database
    return new


def is_whole(text: str) -> bool:
    """Whether Enter submits the text: complete statements, or a word that leaves the prompt. The
    rows of INSERT … FORMAT end with an empty line.
    """
    bare = _bare(text)
    if not bare or bare in _ENDINGS:
        return True
    try:
        pieces = list(split(text))
    except SyntaxProblem as problem:
        return "never closed" not in str(problem) and text.rstrip().endswith(";")
    if not pieces:  # there are only comments
        return True
    last = pieces[-1]
    data = insert_data_start(text, last.start, len(text))
    if data is not None and text[data:].strip():
        return text.endswith("\n")
    return text[last.stop :].strip().endswith(";")


def _bare(text: str) -> str:
    return text.strip().rstrip(";").rstrip().lower()


def _prompt() -> "PromptSession[str]":
    keys = KeyBindings()

    def enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None:
            buffer.complete_state = None  # take the choice in the menu
        elif is_whole(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    keys.add("enter")(enter)
    return PromptSession(
        history=_history(),
        multiline=True,
        key_bindings=keys,
        complete_while_typing=False,
        enable_history_search=True,
    )


def history_file() -> Path:
    """The history file, in the user's state directory."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "rmt" / "history"


def _history() -> History:
    """The history, which is only in memory if its file can't be written."""
    file = history_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.touch(mode=0o600)  # statements may hold secrets
    except OSError as error:
        sys.stderr.write(f"history is not kept: {error}\n")
        return InMemoryHistory()
    return FileHistory(str(file))


def _completer(session: Session) -> WordCompleter:
    return WordCompleter(
        sorted({*_words(session)}, key=str.lower), ignore_case=True, pattern=_WORD
    )


def _words(session: Session) -> Iterable[str]:
    """Words to complete: keywords, functions, settings, and what the server has now."""
    yield from STATEMENT_WORDS
    yield from _CLAUSE_WORDS.split()
    yield from all_names()
    yield from QUERY_SETTINGS
    yield from TABLE_SETTINGS
    yield from (f"{SYSTEM_DATABASE}.{name}" for name in SYSTEM_TABLES)
    try:
        yield from session.context.server.catalog.databases()
        for definition in session.context.server.catalog.definitions():
            yield definition.full_name
            if definition.database == session.context.database:
                yield definition.name
            yield from (column.name for column in definition.columns)
    except RmtError as error:  # a broken catalog, which fails statements too
        report(error, None)
