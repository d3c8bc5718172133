"""A table that was dropped and created again is another one, also at the same place."""

import pytest

from rmt_pipeline.protocol.errors import UnknownTable
from tests.support.local_session import create, local_session, rows

CREATE = (
    "CREATE TABLE t ({}) ENGINE = ReplicatedMergeTree('/tables/t', '{{replica}}') ORDER BY n"
)


def test_who_opened_the_first_table_does_nothing_to_the_second(tmp_path):
    """Its columns may be others, and what was learnt of the first one's nodes is not true."""
    with local_session(tmp_path) as session:
        server = session.context.server
        create(session, CREATE.format("n UInt8"))
        first = server.table("t")
        first.insert([{"n": 1}])
        session.execute("DROP TABLE t SYNC")
        create(session, CREATE.format("n UInt8, s String"))
        server.table("t").insert([{"n": 2, "s": "b"}])
        with pytest.raises(UnknownTable, match=r"default\.t was dropped and created again"):
            first.insert([{"n": 3}])
        with pytest.raises(UnknownTable, match="open it anew"):
            _ = first.replica
        assert rows(session, "SELECT n, s FROM t") == [(2, "b")]
        assert server.table("t").store.staged() == []
