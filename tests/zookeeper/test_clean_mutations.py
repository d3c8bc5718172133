"""Finished mutations go once every replica has finished them, but the newest ones."""

from dataclasses import replace

import pytest

from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.settings.table import TableSettings
from rmt_pipeline.replica.mutations.mutations import (
    create_mutation,
    finalize_mutations,
    load_mutations,
    status_of_mutations,
)
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from tests.support.serving import Served, config_at, create, definition_of

pytestmark = pytest.mark.zookeeper


@pytest.fixture
def replicas(tmp_path, zookeeper_server, chroot):
    """One table on r1 and r2, which keep one finished mutation. Nobody works their queues."""
    config = config_at(tmp_path, zookeeper_server.hosts)
    with ServerContext.open(config, "r1") as one, ServerContext.open(config, "r2") as two:
        found = []
        for server in (one, two):
            name = server.server.name
            create(config, server.keeper(), definition_of(f"{chroot}/t", name), name)
            replica = server.table("t").replica
            keep = TableSettings.of({"finished_mutations_to_keep": "1"})
            found.append(replace(replica, settings=keep))
        with Served(config) as r1, Served(config, "r2") as r2:
            r1.until(r1.is_active)
            r2.until(r2.is_active)
            yield found


def finish(replica) -> None:
    finalize_mutations(replica, load_mutations(replica))


def test_finished_mutations_go_when_every_replica_has_finished_them(replicas):
    one, two = replicas
    ids = [create_mutation(one, "DELETE WHERE 1") for _ in range(3)]
    assert all(status.is_done for status in status_of_mutations(one, load_mutations(one)))
    finish(one)
    assert carry_out(one, plan_clean_up(one)).mutations == 0  # r2 has not finished any
    finish(two)
    cleaned = carry_out(one, plan_clean_up(one))
    assert cleaned.mutations == 2
    assert "2 finished mutations" in cleaned.words()
    assert list(load_mutations(two).entries) == ids[2:]
    assert carry_out(two, plan_clean_up(two)).mutations == 0
