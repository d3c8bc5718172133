"""Statements about tables of a Replicated database: what is refused before it is in the log, and
tables that are moved aside.
"""

from dataclasses import replace

import pytest

from rmt_pipeline.protocol.errors import Timeout, UserError
from rmt_pipeline.protocol.settings.setting import BadSetting
from rmt_pipeline.zookeeper.keeper import SetData
from tests.support.databases import PATHS, TABLE, part, started


def test_a_bad_output_mode_is_refused_before_the_statement_is_in_the_log(site):
    """Else it was carried out, and who had said it was told that nothing was."""
    started(site, "r1")
    with pytest.raises(BadSetting, match="'bad' is no distributed_ddl_output_mode"):
        site.say(TABLE, distributed_ddl_output_mode="bad")
    site.look()
    assert site.nodes["r1"].tables() == []
    assert site.below(PATHS.table("t")) == []


@pytest.mark.parametrize("times", [1, 2])
def test_a_statement_that_does_not_fit_into_a_packet_is_refused(site, times):
    """It is written twice: into the log, and as the record of its table. Whether it was there could
    not be found out, and the session was lost.
    """
    started(site, "r1")
    comment = "x" * (900_000 // times)
    with pytest.raises(UserError, match="at most 900000 are possible: make it shorter"):
        site.say(f"{TABLE} COMMENT '{comment}'")
    assert site.below(PATHS.table("t")) == []
    site.say(f"{TABLE} COMMENT '{comment[:400_000]}'")
    assert site.nodes["r1"].tables() == ["t"]


def test_a_table_is_moved_aside_beside_one_that_is_detached_there(site):
    """Its name is taken: the database waited for ever."""
    started(site, "r1")
    site.say(TABLE)
    part(site, "r1")
    catalog, loop = site.nodes["r1"].catalog, site.nodes["r1"].loop
    catalog.create_database("d_broken_tables")
    earlier = replace(catalog.definition("d", "t"), database="d_broken_tables", name="t_0")
    catalog.add(replace(earlier, uuid="another"))
    catalog.detach("d_broken_tables", "t_0", permanently=True)
    loop._compare_with()._let_go("t")
    assert catalog.tables("d_broken_tables") == ["t_1"]


def test_who_waits_for_a_database_that_has_never_caught_up_is_told_so(site):
    started(site, "r1")
    site.say(TABLE)
    site.stop("r1")
    keeper = site.servers.zookeeper.connect()
    keeper.multi([SetData(PATHS.log_ptr("1|r1"), b"")])
    with pytest.raises(Timeout, match="it is new"):
        site.say("SYSTEM SYNC DATABASE REPLICA d", receive_timeout="1")
