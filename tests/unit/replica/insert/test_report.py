"""What became of inserts, as their records tell it."""

from pathlib import Path

import pytest

from rmt_pipeline.cli.inserts import insert_lines, insert_words
from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.insert.report import InsertState, Origin, Origins
from rmt_pipeline.replica.insert.result import QuorumNotReached
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.zookeeper.keeper import Delete, SetData
from tests.support.local_replicas import Replicas, partitioned
from tests.support.local_session import create, local_session, rows
from tests.support.lost_answers import logs

ONE = PartName("all", 0, 0, 0)


def test_an_insert_is_done_in_these_parts(replicas: Replicas) -> None:
    table = replicas.table("r1")
    result = table.insert([{"n": 1}, {"n": 2}], run_id="a run")
    [report] = table.inserts([result.insert_id])
    assert (report.state, report.parts) == (InsertState.DONE, (ONE,))
    assert (report.record.rows, report.record.run_id) == (2, "a run")
    assert "done, 2 rows on r1 by run a run at 2023-" in insert_words(report)
    assert insert_words(report).endswith("in all_0_0_0")


def test_an_insert_says_how_many_rows_it_has_inserted(replicas: Replicas) -> None:
    table = replicas.table("r1")
    assert table.insert([]).words() == "nothing to insert"
    assert table.insert([{"n": 1}]).words() == "inserted 1 row as 1 part"
    assert table.insert([{"n": 2}, {"n": 3}]).words() == "inserted 2 rows as 1 part"


def test_one_that_never_was_has_no_report(replicas: Replicas) -> None:
    assert replicas.table("r1").inserts(["token-0"]) == []


def test_one_that_waits_for_its_quorum_says_so(replicas: Replicas) -> None:
    table = replicas.table("r1")
    with pytest.raises(QuorumNotReached):
        table.insert([{"n": 1}], quorum=2, settings={"insert_quorum_timeout": 0})
    [report] = table.inserts()
    assert (report.state, report.awaiting) == (InsertState.AWAITS_QUORUM, (ONE,))
    replicas.step("r2", "fetch")
    [report] = replicas.table("r2").inserts()
    assert (report.state, report.parts) == (InsertState.DONE, (ONE,))


def test_what_was_dropped_is_in_no_part(replicas: Replicas) -> None:
    table = replicas.table("r1")
    result = table.insert([{"n": 1}])
    table.truncate(settings={"alter_sync": 0})
    replicas.step("r1", "fetch")
    assert table.inserts([result.insert_id]) == []


def test_what_a_replica_has_yet_to_fetch_was_not_dropped(replicas: Replicas) -> None:
    """It is in the log, then in its queue, then here."""
    replicas.table("r1").insert([{"n": 1}])
    for step in (lambda: None, lambda: pull_log(replicas["r2"])):
        step()
        [report] = replicas.table("r2").inserts()
        assert insert_words(report).endswith("; not here yet: all_0_0_0")
    replicas.step("r2", "fetch")
    [report] = replicas.table("r2").inserts()
    assert insert_words(report).endswith("; in all_0_0_0")


def test_a_lost_replica_does_not_say_that_rows_were_dropped(replicas: Replicas) -> None:
    """The entries that it has not seen have left the log; a clone will bring their parts."""
    replicas.table("r1").insert([{"n": 1}])
    keeper, table = replicas["r1"].keeper, replicas["r1"].table
    log = [Delete(table.log_entry(name)) for name in keeper.children(table.log)]
    keeper.multi([*log, SetData(replicas["r2"].paths.is_lost, b"1")])
    [report] = replicas.table("r2").inserts()
    assert (report.parts, report.coming, report.is_lost) == ((), (), True)
    assert "dropped" not in insert_words(report)
    assert "this replica is lost, and has yet to clone" in insert_words(report)


def test_the_latest_are_told_first(replicas: Replicas) -> None:
    table = replicas.table("r1")
    for value in range(3):
        replicas.clock.sleep_s(10.0)
        table.insert([{"n": value}])
    reports = table.inserts()
    times = [report.record.created_s for report in reports]
    assert times == sorted(times, reverse=True)
    lines = list(insert_lines(table, "r1", reports, is_one=False))
    assert lines[0] == "default.t on r1: 3 inserts are remembered"
    assert len(lines) == 4


@pytest.mark.parametrize("text", [b"", b"insert format version: 999\n"])
def test_a_record_that_can_not_be_read_does_not_hide_the_others(
    replicas: Replicas, text: bytes
) -> None:
    """One that a newer version of this product wrote, for example."""
    replicas.clock.sleep_s(10.0)
    replica, table = replicas["r1"], replicas.table("r1")
    made = [table.insert([{"n": n}], run_id=f"run {n}") for n in range(2)]
    odd = made[0].insert_id
    replica.keeper.multi([SetData(replica.table.insert(odd), text)])
    told = {one.insert_id: one for one in table.inserts()}
    assert {name: one.state for name, one in told.items()} == {
        odd: InsertState.UNREADABLE,
        made[1].insert_id: InsertState.DONE,
    }
    assert insert_words(told[odd]).startswith(f"{odd}: unreadable: ")
    with pytest.raises(Corruption):
        table.inserts([odd])
    of_parts = Origins().of(replica, [*made[0].parts, *made[1].parts])
    assert list(of_parts.values()) == [[], [Origin(made[1].insert_id, "run 1")]]


def test_nor_does_what_one_commit_of_it_has_in_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "INSERT_BYTES_MAX", 2800)  # two partitions in a commit
    with Replicas(tmp_path, define=partitioned) as replicas:
        replica, table = replicas["r1"], replicas.table("r1")
        odd = table.insert([{"p": p, "n": p} for p in range(6)])
        good = table.insert([{"p": 0, "n": 7}], run_id="good")
        replica.keeper.multi([SetData(replica.table.insert_batch(odd.insert_id, 1), b"")])
        told = {one.insert_id: one.state for one in table.inserts()}
        assert told == {
            odd.insert_id: InsertState.UNREADABLE,
            good.insert_id: InsertState.DONE,
        }
        with pytest.raises(Corruption, match="with all below it"):
            table.inserts([odd.insert_id])
        of_parts = Origins().of(replica, [*odd.parts, *good.parts])
        assert [*filter(None, of_parts.values())] == [[Origin(good.insert_id, "good")]]


def test_system_inserts_shows_them(tmp_path: Path) -> None:
    with local_session(tmp_path) as session:
        create(
            session,
            "CREATE TABLE t (n UInt8) ENGINE = ReplicatedMergeTree('/t', '{replica}') ORDER BY n",
        )
        session.execute(
            "INSERT INTO t SETTINGS insert_deduplication_token = 'a' VALUES (1), (2)"
        )
        query = "SELECT state, rows, rows_in, partition_ids, parts FROM system.inserts"
        assert rows(session, query) == [("done", 2, 2, ["all"], ["all_0_0_0"])]


def merge_all(replicas: Replicas) -> PartName:
    optimize_partition(replicas["r1"], "all", final=True, skip_merged=False)
    replicas.work_off()
    [part] = replicas.table("r1").parts()
    return part.name


def test_a_part_tells_its_inserts_however_often_it_was_merged(replicas: Replicas) -> None:
    origins, table = Origins(), replicas.table("r1")
    made = [table.insert([{"n": n}], run_id=f"run {n}") for n in range(3)]
    expected = [Origin(one.insert_id, f"run {n}") for n, one in enumerate(made)]
    first = merge_all(replicas)
    assert origins.of(replicas["r1"], [first, ONE]) == {first: expected, ONE: expected[:1]}
    last = table.insert([{"n": 3}])
    second = merge_all(replicas)
    found = origins.of(replicas["r2"], [second, first])
    assert found == {second: [*expected, Origin(last.insert_id, "")], first: expected}


def test_rows_that_another_insert_had_are_told_of_that_one(replicas: Replicas) -> None:
    by_row = {"max_insert_block_size": 1, "min_insert_block_size_rows": 1}
    table = replicas.table("r1")
    first = table.insert([{"n": 1}], settings=by_row)
    table.insert([{"n": 2}], settings={"insert_deduplicate": False})
    both = table.insert([{"n": 1}, {"n": 3}], settings=by_row)
    found = Origins().of(replicas["r1"], [PartName("all", n, n, 0) for n in range(3)])
    assert [[one.insert_id for one in origins] for origins in found.values()] == [
        [first.insert_id],
        [],
        [both.insert_id],
    ]


def test_each_record_is_read_once_and_forgotten_with_the_insert(replicas: Replicas) -> None:
    origins, table, replica = Origins(), replicas.table("r1"), replicas["r1"]
    result = table.insert([{"n": 1}], run_id="a run")
    keeper, asked = replica.keeper, list[str]()
    get_many = keeper.get_many

    def counting(paths):  # type: ignore[no-untyped-def]
        asked.extend(paths)
        return get_many(paths)

    keeper.get_many = counting  # type: ignore[method-assign]
    for _ in range(3):
        assert origins.of(replica, [ONE]) == {ONE: [Origin(result.insert_id, "a run")]}
    assert asked == [replica.table.insert(result.insert_id)]
    table.truncate(settings={"alter_sync": 0})
    assert origins.of(replica, [ONE]) == {ONE: []}


def test_what_an_insert_has_committed_in_part_is_told_too_and_more_when_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "INSERT_BYTES_MAX", 2800)  # two partitions in a commit
    with Replicas(tmp_path, define=partitioned) as replicas:
        table, replica, origins = replicas.table("r1"), replicas["r1"], Origins()
        values = [{"p": n % 6, "n": n} for n in range(12)]
        places = [PartName(str(p), 0, 0, 0) for p in range(6)]
        counts, told = list[int](), list[int]()

        def count() -> None:
            told.append(sum(len(one.parts) for one in table.inserts()))
            counts.append(sum(len(found) for found in origins.of(replica, places).values()))

        multi = replica.keeper.multi

        def counting(ops):  # type: ignore[no-untyped-def]
            if any(map(logs, ops)):
                count()
            return multi(ops)

        replica.keeper.multi = counting  # type: ignore[method-assign]
        table.insert(values)
        count()
        assert counts == told == [0, 2, 4, 6]


def test_an_insert_that_is_forgotten_while_it_is_looked_for_has_made_nothing(
    replicas: Replicas,
) -> None:
    """Also when that happens between two answers, and to one of two."""
    table, replica, other = replicas.table("r1"), replicas["r1"], replicas.zookeeper.connect()
    first = table.insert([{"n": 1}], run_id="a run")
    kept = table.insert([{"n": 2}])
    keeper = replica.keeper
    children = keeper.children

    def then_forgotten(path, watch=None):  # type: ignore[no-untyped-def]
        found = children(path, watch)
        other.multi([Delete(replica.table.insert(first.insert_id))])
        return found

    keeper.children = then_forgotten  # type: ignore[method-assign]
    second = PartName("all", 1, 1, 0)
    assert Origins().of(replica, [ONE, second]) == {
        ONE: [],
        second: [Origin(kept.insert_id, "")],
    }
