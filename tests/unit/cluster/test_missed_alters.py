"""ALTERs of a Replicated database that a server has missed: it catches up, or says so."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rmt_pipeline.cluster.database import skip_to
from rmt_pipeline.protocol.errors import Conflict
from rmt_pipeline.protocol.log.codec import decode
from rmt_pipeline.protocol.log.entry import AlterMetadata
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.alter.apply import apply_alter_metadata
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.sql.define.show_create import create_query
from rmt_pipeline.zookeeper.keeper import Create
from tests.support.databases import DATABASE, LATER, PATHS, TABLE, Site, part, started

MANY_COLUMNS = TABLE.replace("n UInt64", "n UInt64, m UInt64, k UInt64 DEFAULT n")


@contextmanager
def cut_off(site: Site, name: str, monkeypatch) -> Iterator[None]:
    """The server makes the database with its tables, and is cut off before it notes that; it comes
    back behind the block.
    """

    def cut(*_: object) -> None:
        raise Conflict("cut off")

    site.start(name)
    with monkeypatch.context() as patch:
        patch.setattr("rmt_pipeline.server.tasks.skip_to", cut)
        with pytest.raises(Conflict, match="cut off"):
            site.say(DATABASE, name)
    late = site.running.pop()
    yield
    late.loop = late.worker = None
    site.running.append(late)
    late.look()


def takes_up(site: Site, name: str) -> TableDefinition:
    """The table on the server once it has worked off the ALTERs of its queue."""
    context = site.servers.session(name).context.server
    replica = context.replica(context.catalog.definition("d", "t"))
    pull_log(replica)
    for node in sorted(replica.keeper.children(replica.paths.queue)):
        entry = decode(replica.keeper.get(replica.paths.queue_entry(node))[0])
        if isinstance(entry, AlterMetadata):
            apply_alter_metadata(replica, node, entry)
    return context.catalog.definition("d", "t")


@pytest.mark.parametrize(
    "change",
    [
        "ADD COLUMN s String, MODIFY ORDER BY (n, s), ADD INDEX i m TYPE minmax GRANULARITY 1",
        "MODIFY COLUMN k REMOVE DEFAULT, MODIFY COLUMN m String FIRST, RENAME COLUMN k TO o",
        "MODIFY TTL toDateTime(n) + INTERVAL 1 DAY",
        "MODIFY SETTING parts_to_throw_insert = 8",
    ],
)
def test_a_new_server_that_was_cut_off_has_what_was_altered_meanwhile(
    site, monkeypatch, change
):
    """It is alone in its shard, where nobody else carries the ALTER out."""
    started(site, "r1")
    site.say(MANY_COLUMNS)
    with cut_off(site, "r3", monkeypatch):
        site.say(f"ALTER TABLE d.t {change}", alter_sync="0", **LATER)
        site.look()
        takes_up(site, "r1")
        site.say("ALTER TABLE d.t MODIFY SETTING parts_to_throw_insert = 9", **LATER)
        site.look()  # tells the record what the table has become
    assert create_query(takes_up(site, "r3")) == create_query(takes_up(site, "r1"))


def test_what_was_altered_is_there_when_the_table_is_detached_at_once(site, monkeypatch):
    started(site, "r1")
    site.say(TABLE)
    with cut_off(site, "r3", monkeypatch):
        site.say("ALTER TABLE d.t MODIFY SETTING parts_to_throw_insert = 9", **LATER)
        site.look()
        site.say("DETACH TABLE d.t PERMANENTLY", **LATER)
        site.look()
    [one] = site.nodes["r3"].catalog.detached("d")
    assert ("parts_to_throw_insert", "9") in one.definition.settings


def test_rows_are_not_touched_by_what_a_server_has_missed(site, monkeypatch):
    """It says what it has missed: which ALTERs that were is not known any more."""
    started(site, "r1")
    site.say(MANY_COLUMNS)
    with cut_off(site, "r3", monkeypatch):
        part(site, "r3")
        site.say("ALTER TABLE d.t RENAME COLUMN m TO o", alter_sync="0", **LATER)
        site.look()
        takes_up(site, "r1")
        site.say("ALTER TABLE d.t MODIFY SETTING parts_to_throw_insert = 9", **LATER)
        site.look()  # tells the record what the table has become
    assert [column.name for column in takes_up(site, "r3").columns] == ["n", "m", "k"]
    loop = site.nodes["r3"].loop
    assert "Say each of them again with IF EXISTS or IF NOT EXISTS" in loop._said
    site.say("ALTER TABLE d.t RENAME COLUMN IF EXISTS m TO o", alter_sync="0", **LATER)
    site.look()
    assert [column.name for column in takes_up(site, "r3").columns] == ["n", "o", "k"]


def test_who_skips_a_statement_is_not_at_it_any_more(site):
    """1. r3 is at an ALTER, and its request to note it as done is lost. 2. The ALTER is in the
    table's record: r3 skips it. 3. While r3 were at it, the log could not be cleaned.
    """
    started(site, "r1", "r3")
    site.say(TABLE)
    task = PATHS.queue.task("query-0000000000")
    mine, another = site.servers.zookeeper.connect(), site.servers.zookeeper.connect()
    mine.multi([Create(task.active_on("2|r3"), ephemeral=True)])
    skip_to(another, PATHS, "2|r3", 0)  # a process before this one may be at it still
    assert mine.children(task.active) == ["2|r3"]
    skip_to(mine, PATHS, "2|r3", 0)
    assert mine.children(task.active) == []
