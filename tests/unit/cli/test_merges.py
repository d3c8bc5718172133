"""`rmt merges`."""

from contextlib import nullcontext

import pytest

from rmt_pipeline.cli import merges
from rmt_pipeline.protocol.errors import UnknownTable
from tests.support.servers import Servers


def test_a_table_may_be_on_one_of_the_servers_only(tmp_path, monkeypatch, capsys):
    servers = Servers(tmp_path)
    running = [servers.start(name) for name in ("r1", "r2")]
    monkeypatch.setattr("rmt_pipeline.sql.run.tables.ACTIVE_WAIT_S", 0.0)
    with servers.session("r1") as session:
        session.execute(
            "CREATE TABLE t (n UInt64) ENGINE = ReplicatedMergeTree('/t', 'r1') ORDER BY n"
        )
    contexts = [server.context for server in running]
    for server in running:
        server.context.bind(server.keeper, "")
    monkeypatch.setattr(merges, "opened_servers", lambda *_: nullcontext(contexts))
    assert merges.run_merges(servers.config, None, "t", watch=False) == 0
    assert capsys.readouterr().out.splitlines() == [
        "server r1: nothing is being merged",
        "server r2: nothing is being merged",
    ]
    with pytest.raises(UnknownTable, match="nowhere on r1, r2"):
        merges.run_merges(servers.config, None, "nowhere", watch=False)
