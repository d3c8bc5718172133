"""`rmt inserts`."""

from pathlib import Path

import pytest

from rmt_pipeline.cli.inserts import run_inserts
from rmt_pipeline.zookeeper.trees import delete_tree
from tests.support.local_session import commands_use, session_with_two_tables


def test_a_table_whose_replica_is_gone_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with session_with_two_tables(tmp_path) as session:
        server = session.context.server
        commands_use(monkeypatch, server)
        session.execute("INSERT INTO u VALUES (1)")
        delete_tree(server.keeper(), "/tables/t")
        assert run_inserts(server.config, None, None, "", "") == 1
        shown = capsys.readouterr().out
        gone = "default.t on r1: Code: TABLE_IS_DROPPED. /tables/t/replicas/r1 is gone from Zoo"
        assert gone in shown
        assert "default.u on r1: 1 insert is remembered" in shown
        assert run_inserts(server.config, None, None, "", "a token") == 1
        assert "no table knows insert" not in capsys.readouterr().out
