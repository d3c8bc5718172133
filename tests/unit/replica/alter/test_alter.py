"""ALTER on replicas in this process, step by step (spec §8)."""

import contextlib
import datetime as dt
import errno
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from rmt_pipeline.protocol.alter.commands import (
    AddColumn,
    AlterCommand,
    ClearColumn,
    DropColumn,
    ModifyColumn,
    ModifySettings,
    RenameColumn,
)
from rmt_pipeline.protocol.alter.definition import ColumnNotFound
from rmt_pipeline.protocol.errors import (
    BadTtl,
    DiskFull,
    MetadataMismatch,
    TableIsReadOnly,
    TooManyColumns,
    Unfinished,
    UnknownColumn,
    UserError,
)
from rmt_pipeline.protocol.limits import NODE_BYTES_MAX
from rmt_pipeline.protocol.nodes.formats import ReplicaAddress
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import Column, ColumnChange, TableDefinition
from rmt_pipeline.replica.alter.apply import apply_alter_metadata
from rmt_pipeline.replica.alter.request import CannotAssignAlter, request_alter
from rmt_pipeline.replica.assign.merges import Assigned, optimize_partition
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.life.drop import drop_replica
from rmt_pipeline.replica.life.start import start
from rmt_pipeline.replica.mutations.mutations import create_mutation
from rmt_pipeline.replica.mutations.request import request_mutation
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.syntax.mutation import parse_commands
from rmt_pipeline.translate.base.typed import TypeProblem
from rmt_pipeline.translate.compiler import NotDeterministic
from rmt_pipeline.zookeeper.keeper import Create, Delete, Op
from rmt_pipeline.zookeeper.snapshot import queued_entries
from tests.support.local_replicas import Replicas, in_memory
from tests.support.lost_answers import before

NO_WAIT = QuerySettings(alter_sync=0)
ADDED = AddColumn(Column("x", "Int64", "DEFAULT", "n * 2"))


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    with Replicas(tmp_path) as made:
        for name in ("r1", "r2"):
            made[name].update_definition = in_memory(made[name])
        yield made


class Waiting:
    """A waker: while somebody waits, time passes and `work` is done."""

    def __init__(self, replicas: Replicas, work: Callable[[], object] = lambda: None) -> None:
        self._clock = replicas.clock
        self._work = work

    def wake(self) -> None:
        raise AssertionError("nobody watches here")

    def wait_s(self, timeout_s: float) -> bool:
        self._clock.sleep_s(timeout_s)
        self._work()
        return False


def alter(
    replicas: Replicas,
    name: str,
    *commands: AlterCommand,
    work: Callable[[], object] = lambda: None,
) -> None:
    request_alter(
        lambda: replicas[name], lambda _: commands, NO_WAIT, lambda: Waiting(replicas, work)
    )


def take_up(replicas: Replicas, *names: str) -> None:
    for name in names:
        replicas.step(name, "fetch")


def rows(replicas: Replicas, name: str) -> list[tuple[int, ...]]:
    found = replicas.table(name).dataset().to_table().to_pylist()
    return sorted(tuple(row.values()) for row in found)


def begin(replica: Replica) -> None:
    """The server starts over: its `is_active` is gone."""
    replica.keeper.multi([Delete(replica.paths.is_active)])
    address = ReplicaAddress("host", 9009, 9000, "default", "t")
    start(replica, identity=replica.name, incarnation="2", address=address)


def test_a_replica_reads_as_before_until_it_takes_the_alter_up(replicas):
    """P34."""
    replicas.insert("r1", 1, 2)
    take_up(replicas, "r2")
    alter(replicas, "r1", ADDED)
    take_up(replicas, "r1")
    assert rows(replicas, "r1") == [(1, 2), (2, 4)]
    assert rows(replicas, "r2") == [(1,), (2,)]
    take_up(replicas, "r2")
    assert rows(replicas, "r2") == [(1, 2), (2, 4)]
    assert replicas["r2"].definition == replace(
        replicas["r1"].definition,
        engine=replicas["r2"].definition.engine,
        uuid=replicas["r2"].definition.uuid,
    )


def test_a_worker_with_an_old_definition_waits_with_parts_of_a_newer_one(replicas):
    """Spec §16.8 U9: what it would make of them would lack a column."""
    replicas.insert("r1", 1)
    old = replace(replicas["r1"])
    alter(replicas, "r1", ADDED)
    take_up(replicas, "r1")
    replicas.insert("r1", 2)
    assigned = optimize_partition(replicas["r1"], "all", final=True, skip_merged=False)
    assert isinstance(assigned, Assigned)
    new, replicas._replicas["r1"] = replicas["r1"], old  # another process of the same host
    step = replicas.step("r1")
    assert step.done == ()
    [(_, reason)] = step.waiting
    assert reason == (
        "a source was written with ALTER 1, and this worker knows the table as of 0"
    )
    replicas._replicas["r1"] = new
    [done] = replicas.step("r1").done
    assert done.rows == 2
    assert rows(replicas, "r1") == [(1, 2), (2, 4)]


def test_of_two_alters_at_once_the_second_is_decided_on_what_the_first_made(replicas):
    """P34, spec §16.8 U8."""
    asked: list[TableDefinition] = []

    def commands(definition: TableDefinition) -> list[AlterCommand]:
        asked.append(definition)
        if len(asked) == 1:  # another replica's comes in between
            alter(replicas, "r2", AddColumn(Column("x", "Int8")))
        return [AddColumn(Column("y", "Int8"))]

    request_alter(
        lambda: replicas["r1"],
        commands,
        NO_WAIT,
        lambda: Waiting(replicas, lambda: take_up(replicas, "r1")),
    )
    take_up(replicas, "r1", "r2", "r2")
    assert asked[0].metadata_version == 0
    assert asked[-1].metadata_version == 1
    for name in ("r1", "r2"):
        definition = replicas[name].definition
        assert [column.name for column in definition.columns] == ["n", "x", "y"]
        assert definition.metadata_version == 2


def test_what_another_alter_made_impossible_is_refused(replicas):
    """P35."""
    alter(replicas, "r1", ADDED)
    take_up(replicas, "r1", "r2")
    alter(replicas, "r2", DropColumn("x"))
    with pytest.raises(ColumnNotFound, match="no column x"):
        alter(replicas, "r1", DropColumn("x"), work=lambda: take_up(replicas, "r1"))


def test_columns_that_are_too_much_for_one_transaction_are_refused(replicas):
    """ZooKeeper would drop the connection, at each try."""
    size = NODE_BYTES_MAX // 2
    with pytest.raises(TooManyColumns, match=rf"^2 columns, .* which takes {NODE_BYTES_MAX}\."):
        alter(replicas, "r1", AddColumn(Column("x", "Int8", comment="c" * size)))
    alter(replicas, "r1", ADDED)
    take_up(replicas, "r1")
    assert [one.name for one in replicas["r1"].definition.columns] == ["n", "x"]


def test_a_replica_that_is_behind_says_so_and_changes_nothing(replicas):
    """P34."""
    alter(replicas, "r2", ADDED)
    with pytest.raises(CannotAssignAlter, match="has applied ALTER 0 of 1"):
        alter(replicas, "r1", AddColumn(Column("y", "Int8")))
    keeper, table = replicas["r1"].keeper, replicas["r1"].table
    assert keeper.exists(table.metadata).version == 1
    assert keeper.children(table.alters) == ["0000000001"]


def test_a_replica_that_is_not_active_takes_no_alter(replicas):
    replica = replicas["r1"]
    replica.keeper.multi([Delete(replica.paths.is_active)])
    with pytest.raises(TableIsReadOnly, match="takes no ALTER"):
        alter(replicas, "r1", ADDED)


NEVER = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def made_now(name: str) -> tuple[AddColumn, ModifyColumn]:
    """A column that rows which are there have without a value of `now()`."""
    return (
        AddColumn(Column(name, "DateTime")),
        ModifyColumn(name, default_kind="DEFAULT", default="now()"),
    )


def test_a_default_like_now_counts_for_rows_to_come_alike_on_every_replica(replicas):
    """P35."""
    replicas.insert("r1", 1)
    with pytest.raises(
        NotDeterministic, match=r"Add it without, .* ADD COLUMN c DateTime, MODIFY"
    ):
        alter(replicas, "r1", AddColumn(Column("c", "DateTime", "DEFAULT", "now()")))
    alter(replicas, "r1", *made_now("c"))
    take_up(replicas, "r1", "r2")
    replicas.insert("r1", 2)
    take_up(replicas, "r1", "r2")
    before, (_, time) = rows(replicas, "r1")
    assert before == (1, NEVER)
    assert abs(time.timestamp() - replicas.clock.now_s()) < 1000
    replicas.clock.sleep_s(5000)
    assert rows(replicas, "r2") == rows(replicas, "r1") == [(1, NEVER), (2, time)]
    assigned = optimize_partition(replicas["r1"], "all", final=True, skip_merged=False)
    assert isinstance(assigned, Assigned)
    take_up(replicas, "r1", "r2")
    assert [done.rows for done in replicas.step("r1").done] == [2]
    take_up(replicas, "r2")
    assert rows(replicas, "r2") == rows(replicas, "r1") == [(1, NEVER), (2, time)]


def test_a_column_that_is_cleared_or_expires_gets_no_default_like_now(replicas):
    """P35."""
    alter(replicas, "r1", *made_now("c"))
    take_up(replicas, "r1", "r2")
    with pytest.raises(NotDeterministic, match=r"CLEAR COLUMN c: it is DEFAULT now\(\)"):
        alter(replicas, "r1", ClearColumn("c"))
    constant = ModifyColumn("c", default_kind="DEFAULT", default="toDateTime(5)")
    again = ModifyColumn("c", default_kind="DEFAULT", default="now()")
    with pytest.raises(NotDeterministic, match="CLEAR COLUMN c"):
        alter(replicas, "r1", constant, ClearColumn("c"), again)
    with pytest.raises(BadTtl, match="column c has a TTL"):
        alter(replicas, "r1", ModifyColumn("c", ttl="c + toIntervalDay(1)"))
    assert keeper_version(replicas) == 1


def keeper_version(replicas: Replicas) -> int:
    """How many ALTERs the table has seen."""
    return replicas["r1"].keeper.exists(replicas["r1"].table.metadata).version


def test_a_column_keeps_a_type_of_which_the_default_of_another_can_be_made(replicas):
    """Else no row could be inserted any more."""
    made = Column("x", "Decimal(9, 2)", "DEFAULT", "y")
    alter(replicas, "r1", AddColumn(Column("y", "UInt8")), AddColumn(made))
    take_up(replicas, "r1")
    with pytest.raises(TypeProblem, match="type Date cannot become Decimal"):
        alter(replicas, "r1", ModifyColumn("y", type="Date"))
    alter(replicas, "r1", ModifyColumn("y", type="UInt16"))
    assert keeper_version(replicas) == 2


def test_defaults_that_would_use_each_other_are_refused(replicas):
    """No row could be inserted, or read from an older part, any more."""
    alter(replicas, "r1", AddColumn(Column("y", "Int64")))
    take_up(replicas, "r1")
    alter(replicas, "r1", AddColumn(Column("x", "Int64", "DEFAULT", "y")))
    take_up(replicas, "r1")
    with pytest.raises(UserError, match="use each other"):
        alter(replicas, "r1", ModifyColumn("y", default_kind="DEFAULT", default="x"))
    assert keeper_version(replicas) == 2


def test_a_constant_default_of_rows_that_are_there_stays_what_they_have(replicas):
    """P35."""
    replicas.insert("r1", 1)
    alter(replicas, "r1", ADDED)
    take_up(replicas, "r1", "r2")
    random = ModifyColumn("x", default_kind="DEFAULT", default="rand64() % 1000 + 1000000")
    named = replace(random, column="y")
    with pytest.raises(
        NotDeterministic, match=r"all_0_0_0 has no values of it, .* read with n \* 2"
    ):
        alter(replicas, "r1", random)
    with pytest.raises(NotDeterministic, match="no part has values of it"):
        alter(replicas, "r1", AddColumn(replace(ADDED.column, name="y")), named)
    assigned = optimize_partition(replicas["r1"], "all", final=True, skip_merged=False)
    assert isinstance(assigned, Assigned)
    take_up(replicas, "r1")
    assert [done.rows for done in replicas.step("r1").done] == [1]
    with pytest.raises(NotDeterministic, match="have not the same parts: all_0_0_"):
        alter(replicas, "r1", random)
    take_up(replicas, "r2")
    replicas.step("r2")
    alter(replicas, "r1", random)
    take_up(replicas, "r1", "r2")
    replicas.insert("r1", 2)
    take_up(replicas, "r1", "r2")
    (_, old), (_, new) = rows(replicas, "r1")
    assert old == 2
    assert new >= 1_000_000
    assert rows(replicas, "r2") == [(1, 2), (2, new)]


def test_a_default_is_not_taken_for_written_in_a_part_that_is_not_here_just_now(replicas):
    """P35. It is broken, and to be fetched again."""
    part = replicas.insert("r1", 1)
    alter(replicas, "r1", ADDED)
    take_up(replicas, "r1", "r2")
    shutil.rmtree(replicas.stores["r1"].directory(part))
    now = ModifyColumn("x", default_kind="DEFAULT", default="rand64()")
    with pytest.raises(NotDeterministic, match="part all_0_0_0 is not here just now"):
        alter(replicas, "r1", now)


def test_the_next_alter_waits_for_the_data_of_the_one_before(replicas):
    """P17, spec §8.3."""
    replicas.insert("r1", 1)
    alter(replicas, "r1", ADDED)
    take_up(replicas, "r1", "r2")
    alter(replicas, "r1", RenameColumn("x", "y"))
    take_up(replicas, "r1")
    alter(replicas, "r1", AddColumn(Column("z", "Int8")))
    step = replicas.step("r1", "fetch")
    assert step.finished_without_work == 0
    [(_, reason)] = step.waiting
    assert reason == "the mutation of ALTER 2 is not finished on this replica"


def test_a_replica_whose_definition_is_of_an_older_day_takes_up_the_newer_one(replicas):
    """A catalog from a backup: ZooKeeper knows what the replica has applied."""
    before = replicas["r1"].definition
    alter(replicas, "r1", ADDED)
    take_up(replicas, "r1")
    alter(replicas, "r1", RenameColumn("x", "y"))
    take_up(replicas, "r1")
    after = replicas["r1"].definition
    assert after.history == (ColumnChange(2, "x", "y"),)
    replicas["r1"].definition = before
    begin(replicas["r1"])
    assert replicas["r1"].definition == after


def test_an_alter_that_another_process_took_up_meanwhile_is_taken_up(replicas):
    alter(replicas, "r1", ADDED)
    r2 = replicas["r2"]
    pull_log(r2)
    [(node, entry)] = queued_entries(r2.keeper, r2.paths, r2.memory.queue).items()
    apply = partial(apply_alter_metadata, r2, node, entry)
    with before(r2.keeper, lambda op: isinstance(op, Delete) and node in op.path, apply):
        apply()
    assert r2.keeper.get(r2.paths.metadata_version)[0] == b"1"
    assert r2.keeper.children(r2.paths.queue) == []


def test_whoever_died_between_the_disk_and_zookeeper_is_repeated(replicas):
    """P34."""
    alter(replicas, "r2", ADDED)
    take_up(replicas, "r2")
    mine = replicas["r1"].definition
    replicas["r1"].definition = replace(
        replicas["r2"].definition, engine=mine.engine, uuid=mine.uuid
    )
    begin(replicas["r1"])
    take_up(replicas, "r1")
    [read] = replicas["r1"].keeper.get_many([replicas["r1"].paths.metadata_version])
    assert read[0] == b"1"


@pytest.mark.parametrize(
    "error", [DiskFull("no space"), OSError(errno.EIO, "it fails"), KeyboardInterrupt()]
)
def test_an_alter_is_not_applied_before_it_is_on_the_disk(replicas, error):
    """P34. Whoever dies or fails at the disk leaves the entry behind: without it nobody would
    take the new definition up, and every part that was written with it would wait for ever.
    """
    alter(replicas, "r1", ADDED)
    one = replicas["r1"]
    right = one.update_definition

    def fails(change: Callable[[TableDefinition], TableDefinition]) -> TableDefinition:
        raise error

    one.update_definition = fails
    with contextlib.suppress(KeyboardInterrupt):
        take_up(replicas, "r1")
    assert one.definition.metadata_version == 0
    [read] = one.keeper.get_many([one.paths.metadata_version])
    assert read[0] == b"0"
    one.update_definition = right
    replicas.clock.passed_s += 60.0  # longer than it is left alone after a failure
    take_up(replicas, "r1")
    assert one.definition.metadata_version == 1


def test_a_definition_that_no_alter_made_does_not_start(replicas):
    """P27."""
    columns = (*replicas["r1"].definition.columns, Column("x", "Int8"))
    known = replace(replicas["r1"].definition, columns=columns, metadata_version=1)
    replicas["r1"].definition = known
    with pytest.raises(MetadataMismatch, match="2 columns here, 1 there"):
        begin(replicas["r1"])


def test_a_comment_alone_is_written_nowhere_but_here(replicas):
    alter(replicas, "r1", ModifyColumn("n", comment="the number"))
    assert replicas["r1"].definition.columns[0].comment == "the number"
    assert replicas["r1"].keeper.children(replicas["r1"].table.log) == []
    begin(replicas["r1"])


def test_a_comment_is_removed_everywhere(replicas):
    """And what one replica was told of its columns comes to all of them with an ALTER of all."""
    alter(replicas, "r1", ModifyColumn("n", comment="the number"))
    alter(replicas, "r1", ADDED)
    take_up(replicas, "r1", "r2")
    assert replicas["r2"].definition.columns[0].comment == "the number"
    alter(replicas, "r2", ModifyColumn("n", remove="COMMENT"))
    take_up(replicas, "r1", "r2")
    for name in ("r1", "r2"):
        assert replicas[name].definition.columns[0].comment == ""


def test_columns_of_an_unfinished_mutation_keep_their_names(replicas):
    """P35: other types are fine, when the mutation can be carried out with them."""
    alter(replicas, "r1", ADDED)
    take_up(replicas, "r1", "r2")
    replicas.insert("r1", 1)
    create_mutation(replicas["r1"], "UPDATE x = 5 WHERE x * n = 2")
    for command in (DropColumn("x"), RenameColumn("x", "y"), ModifyColumn("x", type="Date")):
        with pytest.raises(UserError, match="x is used by the mutation 0000000000"):
            alter(replicas, "r1", command)
    alter(replicas, "r1", ModifyColumn("x", type="Int32"))
    alter(replicas, "r1", AddColumn(Column("y", "Int8")), work=lambda: take_up(replicas, "r1"))


@pytest.mark.parametrize("text", ["UPDATE x = 5 WHERE n = 1", "DELETE WHERE x = 7"])
def test_a_replica_takes_mutations_behind_one_that_needs_an_alter_it_lacks(replicas, text):
    """Both were taken by r1, which has the column: what they do to rows can't be tried on r2."""
    replicas.insert("r1", 1)
    take_up(replicas, "r2")
    alter(replicas, "r1", ADDED)
    take_up(replicas, "r1")
    create_mutation(replicas["r1"], text)
    later = parse_commands("DELETE WHERE n = 7")
    assert request_mutation(lambda: replicas["r2"], later, NO_WAIT) == "0000000001"
    with pytest.raises(UnknownColumn):
        request_mutation(lambda: replicas["r2"], parse_commands(text), NO_WAIT)


def test_an_alter_waits_a_little_for_a_mutation_to_end(replicas):
    alter(replicas, "r1", ADDED)
    take_up(replicas, "r1", "r2")
    replicas.insert("r1", 1)
    create_mutation(replicas["r1"], "UPDATE x = 5 WHERE n = 1")

    def work() -> None:
        assign_mutations(replicas["r1"])
        replicas.step("r1")

    alter(replicas, "r1", RenameColumn("x", "y"), work=work)
    take_up(replicas, "r1")
    assert rows(replicas, "r1") == [(1, 5)]
    assert replicas["r1"].definition.columns[-1].name == "y"


def test_what_is_a_replicas_own_may_stand_beside_what_is_not(replicas):
    own = ModifySettings((("old_parts_lifetime", "7"),))
    alter(replicas, "r1", own, ADDED)
    take_up(replicas, "r1", "r2")
    assert replicas["r1"].definition.settings == (("old_parts_lifetime", "7"),)
    assert replicas["r2"].definition.settings == ()
    for name in ("r1", "r2"):
        assert replicas[name].definition.metadata_version == 1


def test_who_can_not_note_what_is_his_own_is_told_that_the_rest_is_in_the_log(replicas):
    """Told that nothing was changed, he would say it again, and there is such a column already."""
    one = replicas["r1"]
    right = one.update_definition

    def fails(change: Callable[[TableDefinition], TableDefinition]) -> TableDefinition:
        raise DiskFull("no space")

    one.update_definition = fails
    own = ModifySettings((("old_parts_lifetime", "7"),))
    with pytest.raises(Unfinished, match=r"is in the log .*; but MODIFY SETTING .*: no space"):
        alter(replicas, "r1", own, ADDED)
    one.update_definition = right
    take_up(replicas, "r1")
    assert one.definition.metadata_version == 1
    alter(replicas, "r1", own)
    assert one.definition.settings == (("old_parts_lifetime", "7"),)


def test_a_table_of_before_there_was_alter_gets_a_place_for_its_records(replicas):
    replica = replicas["r1"]
    replica.keeper.multi([Delete(replica.table.alters)])
    alter(replicas, "r1", ADDED)
    take_up(replicas, "r1", "r2")
    assert replica.keeper.children(replica.table.alters) == ["0000000001"]
    assert replicas["r2"].definition.metadata_version == 1


def test_two_make_the_place_for_the_records_at_once(replicas):
    replica = replicas["r1"]
    replica.keeper.multi([Delete(replica.table.alters)])
    made = [Create(replica.table.alters)]
    with before(replica.keeper, makes_place, lambda: replicas["r2"].keeper.multi(made)):
        alter(replicas, "r1", ADDED)
    assert replica.keeper.children(replica.table.alters) == ["0000000001"]


def makes_place(op: Op) -> bool:
    return isinstance(op, Create) and op.path.endswith("/alters")


def test_a_table_with_records_of_alters_can_be_dropped(replicas):
    alter(replicas, "r1", ADDED)
    for name in ("r1", "r2"):
        replica = replicas[name]
        drop_replica(replica.session, replica.table, name)
    assert replicas["r1"].keeper.exists(replicas["r1"].table.root) is None


def test_who_does_not_wait_is_told_nothing_of_what_happens_later(replicas: Replicas) -> None:
    """The ALTER is in the log; that its replica is read-only from then on changes nothing."""

    def living() -> Replica:
        replica = replicas["r1"]
        if replica.keeper.children(replica.table.log):
            raise TableIsReadOnly("the session ended just after the ALTER")
        return replica

    submitted = request_alter(living, lambda _: [ADDED], NO_WAIT, lambda: Waiting(replicas))
    assert submitted is not None
    assert replicas["r2"].keeper.exists(submitted.log_entry) is not None


class Watching(Waiting):
    """One that may be told of something before it waits."""

    def wake(self) -> None: ...


@pytest.mark.parametrize(("alter_sync", "names"), [(1, ["r1"]), (2, ["r1", "r2"])])
def test_who_waits_returns_when_it_is_applied(
    replicas: Replicas, alter_sync: int, names: list[str]
) -> None:
    """Here, or on all replicas; they take it up while somebody waits."""
    before = replicas["r2"].definition
    query = QuerySettings(alter_sync=alter_sync)
    waker = Watching(replicas, lambda: take_up(replicas, *names))
    assert request_alter(lambda: replicas["r1"], lambda _: [ADDED], query, lambda: waker)
    for name in names:
        assert replicas[name].definition.columns[-1].name == "x"
    assert (replicas["r2"].definition == before) == ("r2" not in names)
