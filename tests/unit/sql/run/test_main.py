"""`rmt sql` as far as it goes without ZooKeeper: input, output, exit status, errors."""

import errno
import io
import sys
from pathlib import Path

import pytest

from rmt_pipeline.config import Config, load_config
from rmt_pipeline.sql.client.main import run
from rmt_pipeline.sql.run import show


@pytest.fixture
def config(tmp_path: Path) -> Config:
    file = tmp_path / "rmt.toml"
    file.write_text(
        '[zookeeper]\nhosts = "127.0.0.1:1"\nconnect_timeout_s = 0.1\n'
        '[servers.r1]\ndata = "r1"\nlisten = "127.0.0.1:19009"\n'
        'macros = {shard = "01", replica = "r1"}\n'
    )
    return load_config(file)


class Standard:
    """What one run wrote."""

    def __init__(self, capture: pytest.CaptureFixture[bytes]) -> None:
        self._capture = capture
        self._read: tuple[str, str] | None = None

    def _written(self) -> tuple[str, str]:
        if self._read is None:
            out, error = self._capture.readouterr()
            self._read = out.decode(), error.decode()
        return self._read

    @property
    def answer(self) -> str:
        return self._written()[0]

    @property
    def error(self) -> str:
        return self._written()[1]

    def again(self) -> None:
        self._read = None


@pytest.fixture
def standard(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch) -> Standard:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    return Standard(capsysbinary)


def test_answers_come_as_tsv_one_after_the_other(config, standard):
    assert run(config, "r1", {}, None, False, "SELECT 1, 'a'; SELECT 2; SHOW DATABASES") == 0
    assert standard.answer == "1\ta\n2\ndefault\nsystem\n"
    assert standard.error == ""


def test_a_statements_own_format_comes_before_the_one_that_was_asked_for(config, standard):
    assert run(config, "r1", {}, "CSV", False, "SELECT 'a'; SELECT 'b' FORMAT TSV") == 0
    assert standard.answer == '"a"\nb\n'


def test_statements_are_read_from_standard_input(config, standard, monkeypatch):
    text = b"SELECT 1;\n-- a comment\nSELECT 'it''s; so'\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert run(config, "r1", {}, None, False, None) == 0
    assert standard.answer == "1\nit\\'s; so\n"


def test_an_error_ends_the_run_with_its_code_and_its_statement(config, standard):
    assert run(config, "r1", {}, None, False, "SELECT 1; SELECT nosuch; SELECT 3") == 1
    assert standard.answer == "1\n"
    error = standard.error
    assert error.startswith("Code: UNKNOWN_IDENTIFIER. ")
    assert error.endswith("(in statement 2: SELECT nosuch)\n")


def test_ignoring_errors_goes_on_and_still_fails(config, standard):
    text = "SELECT nosuch; SELECT 2; ALTER TABLE t FREEZE; SELECT 4"
    assert run(config, "r1", {}, None, True, text) == 1
    assert standard.answer == "2\n4\n"
    assert standard.error.count("(in statement ") == 2


def test_text_that_cannot_be_read_fails_after_what_was_before_it(config, standard):
    assert run(config, "r1", {}, None, True, "SELECT 1; SELECT 'open") == 1
    assert standard.answer == "1\n"
    assert "Code: SYNTAX_ERROR. Syntax error at line 1, column 18" in standard.error


def test_a_long_statement_is_cut_in_the_error(config, standard):
    run(config, "r1", {}, None, False, f"SELECT nosuch, {', '.join(['1'] * 1000)}")
    assert len(standard.error.splitlines()[-1]) < 100


@pytest.mark.parametrize(
    ("settings", "server", "code"),
    [
        ({"nosuch": "1"}, "r1", "UNKNOWN_SETTING"),
        ({"alter_sync": "x"}, "r1", "BAD_ARGUMENTS"),
        ({}, "r9", "BAD_ARGUMENTS"),
    ],
)
def test_a_wrong_setting_or_server_fails_before_any_statement(
    config, standard, settings, server, code
):
    assert run(config, server, settings, None, False, "SELECT 1") == 1
    assert standard.answer == ""
    assert standard.error.startswith(f"Code: {code}. ")


def test_settings_last_for_the_session(config, standard):
    query = "SELECT value, changed FROM system.settings WHERE name = 'alter_sync'"
    text = f"{query}; SET alter_sync = 2; {query}; {query} SETTINGS alter_sync = 3"
    assert run(config, "r1", {"alter_sync": "0"}, None, False, text) == 0
    assert standard.answer == "0\t1\n2\t1\n3\t1\n"


def test_a_database_is_used_until_another_one(config, standard):
    text = "CREATE DATABASE d; USE d; EXISTS TABLE one; USE system; EXISTS one;"
    assert run(config, "r1", {}, None, False, f"{text} SHOW TABLES LIKE 'on_'") == 0
    assert standard.answer == "0\n1\none\n"


def test_without_zookeeper_the_error_says_so_and_catalog_statements_go_on(config, standard):
    text = "SELECT * FROM system.zookeeper WHERE path = '/'; SELECT name FROM system.databases"
    assert run(config, "r1", {}, None, True, text) == 1
    assert standard.answer == "default\nsystem\n"
    assert standard.error.startswith("Code: NO_ZOOKEEPER. ")


class Closed(io.BytesIO):
    """A pipe whose reader is gone."""

    def flush(self) -> None:
        raise BrokenPipeError


def test_a_reader_that_has_seen_enough_is_no_traceback(config, standard, monkeypatch, tmp_path):
    with (tmp_path / "out").open("w") as file:
        monkeypatch.setattr(sys, "stdout", _Stdout(file.fileno()))
        assert run(config, "r1", {}, None, False, "SELECT 1") == 1


class _Stdout:
    def __init__(self, descriptor: int) -> None:
        self.buffer = Closed()
        self._descriptor = descriptor

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return self._descriptor


@pytest.mark.parametrize(
    "query",
    [
        "SELECT name FROM system.tables WHERE database = 'system' AND name = 'parts'",
        "SELECT count() > 20 FROM system.columns WHERE table = 'parts'",
        "SELECT substitution FROM system.macros WHERE macro = 'shard'",
        "SELECT value FROM system.merge_tree_settings WHERE name = 'index_granularity'",
        "SELECT is_aggregate FROM system.functions WHERE name = 'sum'",
        "SELECT dummy FROM system.one",
        "SELECT number FROM system.numbers LIMIT 1",
    ],
)
def test_a_system_table_answers_without_zookeeper(config, standard, query):
    assert run(config, "r1", {}, None, False, query) == 0
    assert len(standard.answer.splitlines()) == 1


def test_every_system_table_is_described_with_types_that_exist(config, standard):
    names = "SELECT name FROM system.tables WHERE database = 'system'"
    assert run(config, "r1", {}, None, False, names) == 0
    tables = standard.answer.split()
    standard.again()
    assert len(tables) > 10
    text = ";".join(f"DESCRIBE TABLE system.{name}" for name in tables)
    assert run(config, "r1", {}, None, False, text) == 0


def test_what_a_set_was_to_guard_does_not_run_when_it_fails(config, standard):
    text = "SELECT 1; SET insert_quorum = 2, nosuch = 0; SELECT 2; SELECT 3"
    assert run(config, "r1", {}, None, True, text) == 1
    assert standard.answer == "1\n"
    assert "UNKNOWN_SETTING" in standard.error
    assert "The rest of the script is not carried out" in standard.error


def test_a_script_goes_on_after_other_errors_when_they_are_ignored(config, standard):
    assert run(config, "r1", {}, None, True, "SELECT nosuch; SELECT 2") == 1
    assert standard.answer == "2\n"


def test_a_disk_that_fails_ends_one_statement(config, standard, monkeypatch):
    """It was a traceback, and the end of the prompt."""

    def fails(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error", "/disk/part")

    monkeypatch.setattr(show, "show_databases", fails)
    assert run(config, "r1", {}, None, True, "SHOW DATABASES; SELECT 2") == 1
    assert standard.answer == "2\n"
    assert standard.error == (
        "Code: SYSTEM_ERROR. [Errno 5] Input/output error: '/disk/part'\n"
        "(in statement 1: SHOW DATABASES)\n"
    )
