"""CHECK TABLE and the scrub: every byte is read, and what is broken is fetched again."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from time import sleep

import pytest

from rmt_pipeline.protocol.errors import UnknownTable, UserError
from rmt_pipeline.protocol.nodes.formats import PartHeader
from rmt_pipeline.protocol.settings.table import MIB, TableSettings
from rmt_pipeline.replica.upkeep.scrub import check_whole, due_parts
from rmt_pipeline.server.scrub import Scrub
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.store import layout
from rmt_pipeline.store.disk import SETTLED_NS
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.zookeeper.keeper import Delete, SetData
from tests.support.local_replicas import Replicas, two_parts
from tests.support.local_session import create, local_session, rows

WEEK_S = 7 * 86_400.0


@pytest.fixture
def replicas(tmp_path) -> Iterator[Replicas]:
    with two_parts(tmp_path) as opened:
        yield opened


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def flip_part(replicas: Replicas, number: int) -> str:
    store = replicas.stores["r2"]
    part = store.parts()[number]
    flip(Path(store.directory(part)) / layout.data_file(0))
    return str(part)


def test_a_check_names_what_is_broken_and_it_is_healed(replicas):
    table, broken = replicas.table("r2"), flip_part(replicas, 1)
    found = {str(one.part): one.problem for one in table.check()}
    assert found.keys() == {"all_0_0_0", "all_1_1_0"}
    assert found["all_0_0_0"] == ""
    assert "has hash" in found[broken]
    assert broken not in replicas.parts("r2")
    waiting = {str(one.part): one.problem for one in table.check()}
    assert "fetched again" in waiting[broken], "who asks meanwhile is told"
    replicas.step("r2", "fetch")
    assert [one.problem for one in table.check()] == ["", ""]


def test_whole_bytes_of_other_rows_than_those_promised_are_broken_too(replicas):
    """Somebody has put another part's directory in its place, say."""
    replica = replicas["r2"]
    [part, other] = replica.store.parts()
    header = replica.keeper.get(replica.paths.part(other))[0]
    assert PartHeader.decode(header)
    replica.keeper.multi([SetData(replica.paths.part(part), header)])
    assert "is not what is promised" in check_whole(replica, part).problem
    assert str(part) not in replicas.parts("r2")


def test_a_part_that_was_merged_away_meanwhile_is_no_problem(replicas):
    replica = replicas["r2"]
    part = replica.store.parts()[0]
    replica.keeper.multi([Delete(replica.paths.part(part))])
    replica.store.remove(part)
    assert check_whole(replica, part).problem == ""
    assert replica.store.marks.given_up() == []


# --- the scrub ---


def scrub_of(replicas: Replicas, found: list[str]) -> Scrub:
    replica = replicas["r2"]
    return Scrub(lambda: [replica], lambda _, part, __: found.append(str(part)), replicas.clock)


def last_read(replicas: Replicas, number: int, ago_s: float) -> None:
    store = replicas.stores["r2"]
    note = Path(store.directory(store.parts()[number])) / layout.WHOLE
    note.write_bytes(b"noted")
    os.utime(note, (replicas.clock.now_s() - ago_s,) * 2)


def test_a_part_that_the_disk_refuses_does_not_keep_the_next_from_being_read(
    replicas, monkeypatch
):
    """It would be the first one at each look, for ever."""
    last_read(replicas, 0, ago_s=3 * WEEK_S)
    last_read(replicas, 1, ago_s=2 * WEEK_S)
    store, broken = replicas.stores["r2"], flip_part(replicas, 1)
    first, verify_again = store.parts()[0], PartStore.verify_again

    def refuse(of, part, paced=None):
        if part == first:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        return verify_again(of, part, paced)

    monkeypatch.setattr(PartStore, "verify_again", refuse)
    found: list[str] = []
    scrub_of(replicas, found).look()
    assert found == [broken]


def test_it_reads_what_was_not_read_for_the_longest_first(replicas):
    last_read(replicas, 0, ago_s=2 * WEEK_S)
    last_read(replicas, 1, ago_s=3 * WEEK_S)
    broken = [flip_part(replicas, 1), flip_part(replicas, 0)]
    found: list[str] = []
    scrub_of(replicas, found).look()
    assert found == broken
    assert sorted(map(str, replicas.stores["r2"].marks.given_up())) == sorted(broken)


def test_what_it_has_read_is_not_due_until_the_period_is_over(replicas):
    replica = replicas["r2"]
    last_read(replicas, 0, ago_s=2 * WEEK_S)
    last_read(replicas, 1, ago_s=0)
    [due] = due_parts(replica, WEEK_S)
    sleep(2 * SETTLED_NS / 1e9)  # of a file that was written just now nothing is noted
    scrub_of(replicas, []).look()
    replicas.clock.passed_s += replica.store.verified_s(due) - replicas.clock.now_s() + 100
    assert due not in due_parts(replica, 200.0), "it was read now, by the clock of the disk"
    assert due in due_parts(replica, 50.0)


def test_it_reads_no_faster_than_it_may(replicas, monkeypatch):
    """Ten MiB per second, over all it reads."""
    scrub = scrub_of(replicas, [])
    replicas["r2"].settings = TableSettings(scrub_bytes_per_second=10 * MIB, scrub_period=0)

    def wait(seconds: float) -> bool:
        replicas.clock.passed_s += seconds
        return False

    monkeypatch.setattr(scrub._stop, "wait", wait)
    began_s = replicas.clock.monotonic_s()
    scrub.look()
    store = replicas.stores["r2"]
    size = sum(store.manifest(part).bytes_on_disk for part in store.parts())
    assert replicas.clock.monotonic_s() - began_s == pytest.approx(size / (10 * MIB))


def test_at_0_bytes_a_second_it_reads_nothing(replicas):
    flip_part(replicas, 0)
    replicas["r2"].settings = TableSettings(scrub_bytes_per_second=0, scrub_period=0)
    found: list[str] = []
    scrub = scrub_of(replicas, found)
    scrub.look()
    assert found == []
    replicas["r2"].settings = TableSettings(scrub_bytes_per_second=MIB, scrub_period=0)
    scrub.look()
    assert len(found) == 1


# --- SQL ---


@pytest.fixture
def session(tmp_path) -> Iterator[Session]:
    with local_session(tmp_path) as opened:
        create(
            opened,
            "CREATE TABLE t (p UInt8, n UInt64) ENGINE = ReplicatedMergeTree('/tables/t', 'r1') "
            "PARTITION BY p ORDER BY n",
        )
        for partition in (1, 2):
            opened.execute(f"INSERT INTO t VALUES ({partition}, 7)")
        yield opened


def test_check_table_answers_1_while_all_is_well(session):
    assert rows(session, "CHECK TABLE t") == [(1,)]
    assert rows(session, "CHECK TABLE t PARTITION 1") == [(1,)]
    assert rows(
        session, "CHECK TABLE t PART '2_0_0_0' SETTINGS check_query_single_value_result = 0"
    ) == [("2_0_0_0", 1, "")]


def test_check_table_finds_what_is_broken_where_it_is(session):
    store = session.context.server.table("t").store
    [part] = [part for part in store.parts() if part.partition == "2"]
    flip(Path(store.directory(part)) / layout.data_file(0))
    assert rows(session, "CHECK TABLE t PARTITION 1") == [(1,)]
    assert rows(session, "CHECK TABLE t PARTITION ID '2'") == [(0,)]
    session.execute("SET check_query_single_value_result = 0")
    found = {name: (passed, text) for name, passed, text in rows(session, "CHECK TABLE t")}
    assert found["1_0_0_0"] == (1, "")
    assert found["2_0_0_0"][0] == 0
    assert "fetched again" in found["2_0_0_0"][1]


def test_what_is_no_part_of_the_table_is_told(session):
    with pytest.raises(UserError, match="no active part '3_0_0_0'"):
        session.execute("CHECK TABLE t PART '3_0_0_0'")
    with pytest.raises(UnknownTable):
        session.execute("CHECK TABLE u")
