"""One of three ZooKeeper servers is killed, and one frozen: who works with them goes on."""

import os
import signal

import pytest

from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import RmtError
from tests.support.ensemble import MEMBERS, Ensemble
from tests.support.serving import SHORT_S, Served, config_at, create, definition_of, insert
from tests.support.waiting import freeze, until

pytestmark = pytest.mark.zookeeper


def test_whichever_of_three_is_lost_inserts_go_on(tmp_path) -> None:
    with Ensemble(tmp_path, force_sync=False) as ensemble:
        config = config_at(tmp_path, ensemble.hosts, session_timeout_s=SHORT_S)
        with ServerContext.open(config, "r1") as context:
            create(config, context.keeper(), definition_of("/t"))
            with Served(config) as served:
                served.until(served.is_active)
                for number in range(MEMBERS):
                    member = ensemble.kill(number)
                    served.until(served.is_active)
                    until_inserted(context, b"killed %d" % number)
                    member.start()
                pid = ensemble.members[0].pid
                assert pid is not None
                freeze(pid)
                try:
                    until_inserted(context, b"frozen")
                finally:
                    os.kill(pid, signal.SIGCONT)
                assert len(context.table("t").parts()) == MEMBERS + 1


def until_inserted(context: ServerContext, row: bytes) -> None:
    """Said again until there is an answer, as every client does."""

    def inserts() -> bool:
        try:
            insert(context.table("t"), row)
        except RmtError:
            return False
        return True

    until(inserts)
