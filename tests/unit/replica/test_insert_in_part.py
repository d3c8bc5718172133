"""Inserts that are too large for one commit, and end before they are whole (P37).

Each has twelve rows in six partitions here, and two partitions fit into a commit.
"""

import pytest

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import OutcomeUnknown
from rmt_pipeline.protocol.inserts.ids import insert_id_of_token
from rmt_pipeline.protocol.inserts.rows import InsertRows
from rmt_pipeline.protocol.nodes.records import InsertBatch, InsertRecord
from rmt_pipeline.protocol.parts.name import PartName, drop_range
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.insert.quorum import QuorumFailed
from rmt_pipeline.replica.insert.result import InsertCancelled, InsertInPart, OtherRows, Outcome
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.quorum import has_failed
from rmt_pipeline.replica.upkeep.clean_up import CleanedUp, carry_out, plan_clean_up
from rmt_pipeline.zookeeper.keeper import Delete, Refused, SetData
from tests.support.local_replicas import Replicas, partitioned
from tests.support.lost_answers import before, faulty, logs
from tests.support.mortal_disk import Died

ROWS = [{"p": n % 6, "n": n} for n in range(12)]
BYTES_OF_TWO = 2800
ONCE = QuerySettings(insert_keeper_max_retries=0)
OTHER_CUT = QuerySettings(max_insert_block_size=5, min_insert_block_size_rows=1)


@pytest.fixture
def replicas(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "INSERT_BYTES_MAX", BYTES_OF_TWO)
    with Replicas(tmp_path, define=partitioned) as opened:
        yield opened


def rows_in(replicas):
    """What all replicas together have: nobody fetches here."""
    tables = [replicas.table(name) for name in ("r1", "r2")]
    return sorted(
        row["n"] for table in tables for row in table.dataset().to_table().to_pylist()
    )


def commits_of(replicas, action):
    """How many partitions each commit of the action has."""
    keeper = replicas["r1"].keeper
    multi, sizes = keeper.multi, []

    def counting(ops):
        if any(map(logs, ops)):
            sizes.append(sum(map(logs, ops)))
        return multi(ops)

    keeper.multi = counting
    action()
    keeper.multi = multi
    return sizes


def begin_and_die(replicas, *, commits=1, token="", landed=False):
    """An insert through r1 whose client dies at its commit after `commits` others."""
    died = faulty(replicas["r1"].keeper, logs, landed=landed, error=Died(), after=commits)
    with died, pytest.raises(Died):
        replicas.table("r1").insert(ROWS, token=token)


def forget_what_can_be(replicas):
    """Clean-up with windows of nothing but the newest id."""
    replicas.clock.passed_s += 10_000
    replicas.set(replicated_deduplication_window="1")
    done = carry_out(replicas["r2"], plan_clean_up(replicas["r2"]))
    replicas.set(replicated_deduplication_window="1000")
    return done


def record_of(replicas):
    replica = replicas["r2"]
    [name] = replica.keeper.children(replica.table.inserts)
    return InsertRecord.decode(replica.keeper.get(replica.table.insert(name))[0])


def test_an_insert_that_fits_into_a_commit_has_one_and_its_partitions_in_the_record(replicas):
    sizes = commits_of(replicas, lambda: replicas.table("r1").insert(ROWS[:2]))
    assert sizes == [2]
    record = record_of(replicas)
    assert (record.is_whole, record.batches, record.partition_ids()) == (True, 0, ("0", "1"))


def test_a_larger_one_is_committed_some_partitions_at_a_time(replicas):
    sizes = commits_of(replicas, lambda: replicas.table("r1").insert(ROWS))
    assert sizes == [2, 2, 2]
    record = record_of(replicas)
    assert (record.is_whole, record.batches, record.partition_ids()) == (True, 3, ())
    assert (record.rows, record.rows_in, record.blocks) == (12, 12, 6)
    again = replicas.table("r2").insert(ROWS, settings=OTHER_CUT)
    assert (again.outcome, again.rows_duplicate) == (Outcome.DUPLICATE, 12)
    assert "inserted on r1" in again.words()


@pytest.mark.parametrize("token", ["", "a token"])
@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("commits", [0, 1, 2])
def test_a_retry_that_is_cut_otherwise_on_the_other_replica_completes_it(
    replicas, token, landed, commits
):
    """P37. Although the ids of its blocks are forgotten meanwhile."""
    begin_and_die(replicas, commits=commits, token=token, landed=landed)
    forget_what_can_be(replicas)
    assert replicas["r1"].keeper.children(replicas["r1"].table.blocks)[1:] == []
    result = replicas.table("r2").insert(ROWS, token=token, settings=OTHER_CUT)
    there = 4 * (commits + landed)
    assert (result.rows, result.rows_duplicate) == (12 - there, there)
    assert rows_in(replicas) == list(range(12))
    assert record_of(replicas).is_whole
    again = replicas.table("r1").insert(ROWS, token=token)
    assert again.outcome is Outcome.DUPLICATE


@pytest.mark.parametrize("deduplicates", [True, False])
def test_whatever_ends_it_the_error_says_what_is_in(replicas, monkeypatch, deduplicates):
    """Also a disk that fails: who is told of that alone inserts all of it again."""
    store = replicas["r1"].store
    right, left = store.publish_all, [1]

    def fails(pairs):
        if not left:
            raise OSError(5, "Input/output error")
        left.pop()
        return right(pairs)

    monkeypatch.setattr(store, "publish_all", fails)
    settings = QuerySettings(insert_deduplicate=deduplicates)
    with pytest.raises(InsertInPart, match=r"of 12 rows.* are in.*Input/output error") as told:
        replicas.table("r1").insert(ROWS, settings=settings)
    assert ("would be there twice" in str(told.value)) is not deduplicates
    monkeypatch.undo()
    there = rows_in(replicas)
    assert str(told.value).partition(" of 12 rows")[0].endswith(f" {len(there)}")
    assert 0 < len(there) < 12
    assert store.staged() == []


@pytest.mark.parametrize(("there", "more"), [(3, ""), (5, "; 2 more inserts are in part")])
def test_clean_up_names_three_inserts_in_part_and_counts_the_others(replicas, there, more):
    begin_and_die(replicas, token="a token")
    [(name, record)] = forget_what_can_be(replicas).inserts_in_part
    words = CleanedUp(inserts_in_part=((name, record),) * there).words()
    assert words.count(f"insert {name}, begun on") == 3
    assert words.rpartition("insert the same rows again")[2] == more


def test_the_record_of_an_insert_in_part_is_not_forgotten_and_clean_up_says_so(replicas):
    begin_and_die(replicas, token="a token")
    for n in range(20, 23):
        replicas.clock.passed_s += 1
        replicas.table("r2").insert([{"p": 1, "n": n}])
    done = forget_what_can_be(replicas)
    assert done.insert_ids == 2, "the window counts whole ones only"
    assert "is in part: 4 of 12 rows: insert the same rows again" in done.words()
    replicas.table("r2").insert(ROWS, token="a token")
    assert rows_in(replicas) == [*range(12), 20, 21, 22]
    assert "in part" not in forget_what_can_be(replicas).words()


def test_the_window_of_an_insert_begins_when_it_is_whole(replicas):
    """1. It is in part for longer than the window. 2. A retry completes it, and gets no answer.
    3. Clean-up. 4. It is said once more: that is in the window.
    """
    begin_and_die(replicas, token="T")
    replicas.clock.passed_s += 1_000_000
    replicas.table("r1").insert(ROWS[:1], token="another")
    assert replicas.table("r2").insert(ROWS, token="T").outcome is Outcome.RESUMED
    replicas.table("r1").insert(ROWS[1:2], token="one more")
    carry_out(replicas["r2"], plan_clean_up(replicas["r2"]))
    again = replicas.table("r1").insert(ROWS, token="T", settings=OTHER_CUT)
    assert again.outcome is Outcome.DUPLICATE
    assert rows_in(replicas) == sorted([*range(12), 0, 1])


def test_a_large_insert_is_forgotten_as_a_whole(replicas):
    replicas.table("r1").insert(ROWS)
    for n in range(20, 22):
        replicas.clock.passed_s += 1
        replicas.table("r2").insert([{"p": 1, "n": n}])
    assert forget_what_can_be(replicas).insert_ids == 2
    assert replicas.table("r1").insert(ROWS).outcome is Outcome.INSERTED


def test_who_gives_up_says_how_much_is_in_and_what_to_do(replicas):
    keeper = replicas["r1"].keeper
    gone = Delete(replicas["r1"].paths.is_active)
    seen = []

    def second(op):
        seen.extend([op] if logs(op) else [])
        return len(seen) > 2

    with (
        before(keeper, second, lambda: keeper.multi([gone])),
        pytest.raises(
            InsertInPart, match="4 of 12 rows, those of 2 partitions, are in"
        ) as told,
    ):
        replicas.table("r1").insert(ROWS, token="a token", settings=ONCE)
    assert "Insert the same rows again (with the same token" in str(told.value)
    assert "token-" in str(told.value)
    assert "is not active" in str(told.value)


def test_other_rows_under_the_token_of_an_insert_in_part_are_refused(replicas):
    begin_and_die(replicas, token="a token")
    with pytest.raises(OtherRows, match="4 of its 12 rows, and the 11 rows"):
        replicas.table("r2").insert(ROWS[:11], token="a token")
    assert len(rows_in(replicas)) == 4
    assert replicas.stores["r2"].staged() == []


def test_two_clients_that_insert_it_at_once_insert_it_once(replicas):
    """One goes on while the other stands before each of its commits in turn."""
    for commit in range(3):
        token = f"token {commit}"
        keeper, seen = replicas["r1"].keeper, []

        def at(op, seen=seen, commit=commit):
            seen.extend([op] if logs(op) else [])
            return len(seen) > 2 * commit

        def other(token=token):
            replicas.table("r2").insert(ROWS, token=token, settings=OTHER_CUT)

        with before(keeper, at, other):
            result = replicas.table("r1").insert(ROWS, token=token)
        assert (result.rows, result.rows_duplicate) == (4 * commit, 12 - 4 * commit)
        assert len(rows_in(replicas)) == 12 * (commit + 1)


def test_a_commit_that_arrives_late_does_not_double(replicas):
    """Its client was taken for dead, and somebody else has completed the insert."""
    keeper = replicas["r1"].keeper
    multi, sent = keeper.multi, []

    def holding(ops):
        if any(map(logs, ops)):
            sent.append(ops)
            if len(sent) == 2:
                raise OutcomeUnknown("no answer")
        if len(sent) >= 2:
            raise OutcomeUnknown("no answer")
        return multi(ops)

    keeper.multi = holding
    with pytest.raises(InsertInPart):
        replicas.table("r1").insert(ROWS, token="a token", settings=ONCE)
    keeper.multi = multi
    replicas.table("r2").insert(ROWS, token="a token", settings=OTHER_CUT)
    with pytest.raises(Refused):
        replicas.zookeeper.commit(keeper.session_id, sent[1])
    assert rows_in(replicas) == list(range(12))


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("commit", [0, 1, 2])
def test_a_commit_without_answer_is_settled_and_the_insert_goes_on(replicas, commit, landed):
    seen = []

    def this_one(op):
        seen.extend([op] if logs(op) else [])
        return len(seen) > 2 * commit

    with faulty(replicas["r1"].keeper, logs, this_one, landed=landed):
        result = replicas.table("r1").insert(ROWS)
    assert (result.outcome, result.rows) == (Outcome.INSERTED, 12)
    assert rows_in(replicas) == list(range(12))


def take_out(replicas, partition, token, where=""):
    """What a DROP of the partition does to an insert, in its record or the batch that has it, and
    to ids.
    """
    table, keeper = replicas["r1"].table, replicas["r1"].keeper
    record_path = table.insert(insert_id_of_token(token))
    record = InsertRecord.decode(keeper.get(record_path)[0])
    batches = [
        InsertBatch.decode(keeper.get(table.insert_batch(insert_id_of_token(token), n))[0])
        for n in range(record.batches)
    ]
    rows = InsertRows(record, tuple(batches)).after_drop([drop_range(partition, 99)], "rows-")
    left = (rows.batches[0] if where else rows.record).encode()
    bumped = SetData(record_path, keeper.get(record_path)[0])
    ids = [name for name in keeper.children(table.blocks) if name.startswith(f"{partition}_")]
    gone = [Delete(table.block(name)) for name in ids]
    keeper.multi([bumped, SetData(record_path + where, left), *gone])


@pytest.mark.parametrize(("rows", "where"), [(ROWS[:2], ""), (ROWS, "/0000000000")])
def test_a_retry_brings_back_what_was_dropped_and_nothing_else(replicas, rows, where):
    replicas.table("r1").insert(rows, token="a token")
    take_out(replicas, "1", "a token", where)
    result = replicas.table("r2").insert(rows, token="a token")
    dropped = len([row for row in rows if row["p"] == 1])
    assert (result.rows, result.rows_duplicate) == (dropped, len(rows) - dropped)
    assert result.outcome is Outcome.RESUMED
    again = replicas.table("r2").insert(rows, token="a token")
    assert again.outcome is Outcome.DUPLICATE


def test_what_is_dropped_while_a_retry_goes_on_stays_out_of_the_record(replicas):
    """The retry brings one partition back, and another one goes before its commit: what that
    writes of the insert is not from before.
    """
    replicas.table("r1").insert(ROWS[:2], token="a token")
    take_out(replicas, "0", "a token")
    with before(replicas["r2"].keeper, logs, lambda: take_out(replicas, "1", "a token")):
        assert replicas.table("r2").insert(ROWS[:2], token="a token").rows == 1
    again = replicas.table("r1").insert(ROWS[:2], token="a token")
    assert [part.partition for part in again.parts] == ["1"]


def test_who_completes_it_is_told_what_failed_meanwhile(tmp_path, monkeypatch):
    """1. r1 commits the first of two partitions, and dies. 2. r2, which is asked for the same
    insert, finds it there. 3. Before it commits the other one, the first one's quorum fails.
    """
    monkeypatch.setattr(limits, "INSERT_BYTES_MAX", 1)
    rows, first = [{"p": 0, "n": 1}, {"p": 1, "n": 11}], PartName("0", 0, 0, 0)
    with Replicas(tmp_path, define=partitioned) as replicas:

        def is_second(op):
            return logs(op) and b"\n1_" in op.data

        died = faulty(replicas["r1"].keeper, is_second, landed=False, error=Died())
        with died, pytest.raises(Died):
            replicas.table("r1").insert(rows, settings={"insert_quorum": "2"})

        def fails():
            replicas.stop("r1")
            pull_log(replicas["r2"])
            assert has_failed(replicas["r2"], first)

        told = pytest.raises(QuorumFailed, match=f"{first} failed")
        with before(replicas["r2"].keeper, is_second, fails), told:
            replicas.table("r2").insert(rows)
        assert replicas.parts("r2") == ["1_2_2_0"]


def test_a_record_that_is_removed_meanwhile_ends_the_insert(replicas):
    """Whoever removes it means the insert: it must not begin anew beside what is in."""
    replica = replicas["r1"]
    seen = []

    def second(op):
        seen.extend([op] if logs(op) else [])
        return len(seen) > 2

    def remove():
        [name] = replica.keeper.children(replica.table.inserts)
        path = replica.table.insert(name)
        replica.keeper.multi([Delete(f"{path}/0000000000"), Delete(path)])

    with (
        before(replica.keeper, second, remove),
        pytest.raises(InsertCancelled, match="4 of 12 rows are in, and the others were not"),
    ):
        replicas.table("r1").insert(ROWS)
    assert len(rows_in(replicas)) == 4


def test_without_deduplication_it_says_that_a_retry_would_double(replicas):
    plain = QuerySettings(insert_deduplicate=False, insert_keeper_max_retries=0)
    keeper = replicas["r1"].keeper
    seen = []

    def second(op):
        seen.extend([op] if logs(op) else [])
        return len(seen) > 4

    gone = Delete(replicas["r1"].paths.is_active)
    with (
        before(keeper, second, lambda: keeper.multi([gone])),
        pytest.raises(InsertInPart, match="6 of 12 rows are in"),
    ):
        replicas.table("r1").insert(ROWS, settings=plain)


def test_what_a_replica_promises_meanwhile_are_whole_partitions(replicas):
    begin_and_die(replicas)
    assert rows_in(replicas) == [0, 1, 6, 7]
