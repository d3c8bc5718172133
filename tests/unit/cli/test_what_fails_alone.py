"""Commands that look at many tables say what is wrong with one of them, or with its disk, and go on
with the others.
"""

import errno
import os
from contextlib import nullcontext
from dataclasses import replace

import pytest

from rmt_pipeline.cli import inserts, main, merges, mutations, parts, queue, upkeep
from rmt_pipeline.store.disk import LocalDisk
from tests.support.local_session import commands_use, session_with_two_tables

COMMANDS = {
    "merges": lambda config: merges.run_merges(config, None, None, watch=False),
    "mutations": lambda config: mutations.run_mutations(config, None, None, watch=False),
    "inserts": lambda config: inserts.run_inserts(config, None, None, "", ""),
    "insert": lambda config: inserts.run_inserts(config, None, None, "unknown", ""),
    "queue": lambda config: queue.run_queue(config, None, None),
    "detached": lambda config: parts.run_detached(config, None, None),
    "check": lambda config: parts.run_check(config, "r1", None, "", ""),
    "cleanup": lambda config: upkeep.run_cleanup(config, "r1", dry_run=False),
    "restore": lambda config: upkeep.run_restore(config, "r1", None),
}


@pytest.fixture
def server(tmp_path, monkeypatch):
    """With tables `t` and `u`, and a detached part in each."""
    with session_with_two_tables(tmp_path) as session:
        opened = session.context.server
        for name in ("t", "u"):
            session.execute(f"INSERT INTO {name} VALUES (1)")
            directory = opened.catalog.table_directory(opened.table(name).definition)
            (directory / "detached" / "all_7_7_0").mkdir(parents=True)
        commands_use(monkeypatch, opened)
        monkeypatch.setattr(upkeep, "ServerContext", lambda *_, **__: nullcontext(opened))
        yield opened


def newer_version(server, monkeypatch):
    """Table `t` has a setting that only a newer version knows."""
    definition = server.catalog.definition("default", "t")
    newer = (("of_a_newer_version", "1"),)
    server.catalog.update_table(definition, lambda one: replace(one, settings=newer))
    return "there is no table setting of_a_newer_version"


def failing_disk(server, monkeypatch):
    definition = server.catalog.definition("default", "t")
    directory, path_of = str(server.catalog.table_directory(definition)), LocalDisk.local_path

    def refuse(disk, path):
        if disk.root == directory:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return path_of(disk, path)

    monkeypatch.setattr(LocalDisk, "local_path", refuse)
    return "Input/output error"


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("wrong", [newer_version, failing_disk])
def test_a_command_goes_on_behind_a_table_that_fails(
    server, monkeypatch, capsys, command, wrong
):
    words = wrong(server, monkeypatch)
    needs_disk = command not in ("merges", "mutations", "inserts", "insert")
    exit_status = COMMANDS[command](server.config)
    told = capsys.readouterr()
    failing = [line for line in (told.out + told.err).splitlines() if words in line]
    if wrong is newer_version or needs_disk:
        [line] = failing
        assert line.strip().startswith("default.t")
        assert exit_status == (0 if command == "mutations" else 1)
    if command not in ("merges", "insert"):
        assert "default.u" in told.out


def test_an_error_of_the_system_is_one_line(monkeypatch, capsys):
    def fails(**_):
        raise OSError(errno.EIO, os.strerror(errno.EIO), "/data/part")

    monkeypatch.setattr(main.app, "main", fails)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 1
    [line] = capsys.readouterr().err.splitlines()
    assert "/data/part" in line
    monkeypatch.setenv("RMT_DEBUG", "1")
    with pytest.raises(OSError, match="Input/output"):
        main.main()
