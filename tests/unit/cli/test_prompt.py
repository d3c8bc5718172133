"""`rmt sql` as somebody at a terminal sees it: a real process on a pseudo-terminal."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmt_pipeline.sql.run.progress import StatementProgress, quantity
from tests.support.terminal import FIRST, SAYS, Terminal

LONG = "SELECT sum(a.number * b.number % 7) FROM numbers(1000000) a, numbers(1000000) b"


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "rmt.toml"
    file.write_text(f'[servers.r1]\ndata = "{tmp_path}/r1"\nlisten = "127.0.0.1:1"\n')
    return str(file)


@pytest.fixture
def prompt(tmp_path: Path, config: str) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path, "--config", config, "sql")
    try:
        terminal.until("r1 :)")
        yield terminal
    finally:
        terminal.kill()


def test_statements_go_on_to_their_semicolon_and_errors_do_not_end_it(prompt) -> None:
    prompt.types("SELECT 1 + 1 AS two\r")
    prompt.until(":-]")
    prompt.types(", 'a;b' AS text;\r")
    shown = prompt.until("1 row in set. Elapsed: ")
    assert "│   2 │ a;b  │" in shown
    prompt.until("r1 :)")
    prompt.types("SELECT nosuch;\r")
    prompt.until("Code: UNKNOWN_IDENTIFIER. there is no column 'nosuch'")
    prompt.until("r1 :)")
    prompt.types("SET max_threads = 1; SELECT number FROM numbers(3) FORMAT TSV;\r")
    shown = prompt.until("3 rows in set. Elapsed: ")
    assert "0 rows in set. Elapsed: " in shown  # SET's
    prompt.until("r1 :)")
    prompt.types("\x04")
    prompt.until("Bye.")
    assert prompt.ends() == 0


def test_ctrl_c_cancels_what_runs_or_is_typed_and_keeps_the_session(prompt) -> None:
    prompt.types("USE system;\r")
    prompt.until("r1 :)")
    prompt.types(f"{FIRST}\r")
    prompt.until(SAYS)
    prompt.until("r1 :)")
    prompt.types(f"{LONG};\r")
    prompt.until("Progress: ")
    prompt.interrupt()
    prompt.until("interrupted: the statement was cancelled")
    prompt.until("r1 :)")
    prompt.types("SELECT 'not to be run'\x03")
    prompt.until("r1 :)")
    prompt.until("r1 :)")
    prompt.types("SELECT currentDatabase() FORMAT TSV;\r")
    shown = prompt.until("1 row in set")
    assert "system" in shown.splitlines()[-3]
    prompt.until("r1 :)")
    prompt.types("exit\r")
    assert prompt.ends() == 0


def test_it_completes_words_and_remembers_what_was_typed(prompt, tmp_path, config) -> None:
    prompt.types("SELECT formatReadableSi\t")
    prompt.until("formatReadableSize")
    prompt.types("(1024) FORMAT TSV;\r")
    prompt.until("1.00 KiB")
    prompt.until("r1 :)")
    prompt.types("SELECT input_format_null_as_d\t")
    prompt.until("input_format_null_as_default")
    prompt.types("\x03")
    prompt.until("r1 :)")
    prompt.types("exit\r")
    assert prompt.ends() == 0
    history = tmp_path / "rmt" / "history"
    assert "+SELECT formatReadableSize(1024) FORMAT TSV;" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0

    again = Terminal(tmp_path, "--config", config, "sql")
    again.until("r1 :)")
    again.types("\x1b[A\x1b[A\r")  # up: over `exit` to the SELECT
    again.until("1.00 KiB")
    again.until("r1 :)")
    again.types("\x04")
    assert again.ends() == 0


def test_rows_of_a_format_end_with_an_empty_line() -> None:
    from rmt_pipeline.sql.client.prompt import is_whole  # noqa: PLC0415  where it is installed

    assert is_whole("SELECT 1;")
    assert is_whole("SELECT 1; SELECT ';' ; ")
    assert is_whole("exit")
    assert is_whole(" -- nothing")
    assert not is_whole("SELECT 1")
    assert not is_whole("SELECT 'a;")
    assert not is_whole("SELECT 1; SELECT 2 -- ;")
    assert not is_whole("INSERT INTO t FORMAT CSV\n1,';'")
    assert is_whole("INSERT INTO t FORMAT CSV\n1,';'\n")
    assert is_whole("INSERT INTO t VALUES (1);")
    assert is_whole("SELECT \x01;")  # the statement's error says what is wrong


def test_ctrl_c_ends_a_command_with_one_line(tmp_path, config) -> None:
    """Also while rows come, when DuckDB looks at no signal."""
    streamed = (
        "SELECT a.number FROM numbers(1000000) a, numbers(1000000) b "
        "WHERE (a.number * b.number) % 1000003 = 1000004"
    )
    for statement in (LONG, streamed):
        terminal = Terminal(tmp_path, "--config", config, "sql", f"{FIRST} {statement}")
        terminal.until(SAYS)
        terminal.until("Progress: ")
        terminal.interrupt()
        shown = terminal.until("interrupted\r\n")
        assert "Traceback" not in shown
        assert terminal.ends() == 130


def test_a_pipe_gets_the_answer_alone(config) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "rmt_pipeline.cli", "--config", config, "sql"),
            "SELECT max(sleepEachRow(0.4)) FROM numbers(3); SET max_threads = 1",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_progress_says_rows_bytes_and_pace() -> None:
    progress = StatementProgress()
    progress.add(2_500_000, 40_000_000)
    words = progress.words()
    assert words.startswith("Progress: 2.50 million rows, 40.00 MB (")
    assert words.endswith("B/s.)")
    progress.follow(lambda: 0.42)
    assert ", 42%" not in words
    assert "Progress: 42%, 2.50 million rows" in progress.words()
    progress.follow(lambda: -1.0)  # DuckDB does not know
    assert "%" not in progress.words()


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1.00 thousand"),
        (1_234_567, "1.23 million"),
        (0.5, "0.50"),
    ],
)
def test_a_number_of_rows_is_told_as_the_original_s_client_does(number, words) -> None:
    assert quantity(number) == words
