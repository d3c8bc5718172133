"""Commands on partitions of so many blocks that their ids do not fit into one multi (P38 to P40):
what they take can be inserted again as soon as they are answered.
"""

import pytest

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import OutcomeUnknown, Unfinished
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.insert.result import Outcome
from rmt_pipeline.replica.life.drop import drop_dead_replica
from rmt_pipeline.replica.partitions import drop as dropping
from rmt_pipeline.replica.partitions import ids_left, swap
from rmt_pipeline.zookeeper.keeper import SetData
from tests.support.lost_answers import faulty, logs
from tests.support.partitioned import dicts, insert, merge, rows, work
from tests.support.two_tables import NOW

LAST = QuerySettings(
    alter_sync=0, receive_timeout=0, allow_replace_partition_from_empty_source=True
)
BY_ROW = {"max_insert_block_size": 1, "min_insert_block_size_rows": 1}
GONE = ((1, 1), (1, 2))


@pytest.fixture(autouse=True)
def nothing_fits(monkeypatch):
    monkeypatch.setattr(ids_left, "what_to_forget_at_once", lambda *_: None)
    monkeypatch.setattr(ids_left, "fit_together", lambda _: False)


def drop_partition(two):
    two.s.table("r1").drop_partitions(["1"], settings=NOW)


def truncate(two):
    two.s.table("r1").drop_partitions(None, settings=NOW)


def drop_part(two):
    [part] = PartSet(map(PartName.parse, two.s.parts("r1")))
    two.s.table("r1").drop_part(part, settings=NOW)


def detach(two):
    two.s.table("r1").drop_partitions(["1"], detach=True, settings=NOW)


def move(two):
    two.move()


def replace_by_nothing(two):
    two.s.table("r1").replace_partition("1", two.t.table("r1"), settings=LAST)


def overwrite(two):
    two.s.table("r1").replace([], partition="1", settings=LAST)


def overwrite_under_a_token(two):
    two.s.table("r1").replace([], partition="1", token="nothing", settings=LAST)


COMMANDS = (
    drop_partition,
    truncate,
    drop_part,
    detach,
    move,
    replace_by_nothing,
    overwrite,
    overwrite_under_a_token,
)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("token", ["", "mine"])
def test_what_it_took_can_be_inserted_when_it_is_answered(two, command, token):
    """No replica has carried it out, but for the one that replaces something."""
    insert(two.s, *GONE, token=token, settings=BY_ROW)
    work(two.s)
    if command is drop_part:
        merge(two.s)
    command(two)
    again = insert(two.s, *GONE, at="r2", token=token, settings=BY_ROW)
    assert again.outcome is Outcome.INSERTED
    assert insert(two.s, *GONE, token=token).outcome is Outcome.DUPLICATE
    work(two.s)
    assert rows(two.s, "r1") == rows(two.s, "r2") == list(GONE)
    assert insert(two.s, *GONE, token=token, settings=BY_ROW).outcome is Outcome.DUPLICATE


def test_a_replacement_of_nothing_by_nothing_is_known_by_its_token(two):
    """Its record has the number that ends what was there."""
    insert(two.s, (1, 1))
    overwrite_under_a_token(two)
    work(two.s)
    insert(two.s, (1, 2))
    overwrite_under_a_token(two)
    work(two.s)
    assert rows(two.s) == [(1, 2)]


@pytest.mark.parametrize("at", ["r1", "r2"])
def test_rows_that_stay_are_known_by_their_new_names_when_it_is_answered(two, at):
    """Then they are dropped under these, by whichever replica."""
    insert(two.s, *GONE, settings=BY_ROW)
    work(two.s)
    two.s.table("r1").replace(dicts([(1, 9)]), where="n = 9", settings=LAST)
    if at == "r2":
        work(two.s, "r2")
    for part in PartSet(map(PartName.parse, two.s.parts(at))):
        two.s.table(at).drop_part(part, settings=NOW)
    assert insert(two.s, (1, 1)).outcome is Outcome.INSERTED
    work(two.s)
    assert rows(two.s, "r1") == rows(two.s, "r2") == [(1, 1)]


def goes(two):
    """For good."""
    two.s.stop("r1")
    drop_dead_replica(two.s.zookeeper.connect(), two.s["r2"].table, "r1")


def is_lost(two):
    """Its clone takes over that the entry is carried out, and has no such entry."""
    two.s.zookeeper.connect().multi([SetData(two.s["r1"].paths.is_lost, b"1")])


def comes_back(two):
    two.s.stop("r1")
    two.s.come_back("r1")


def stays(two):
    """It has not carried the entry out; another thread of it asked."""


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("then", [goes, is_lost, comes_back, stays])
def test_if_who_asked_dies_it_can_be_inserted_when_it_is_carried_out(
    two, command, then, monkeypatch
):
    """By r2, whatever becomes of r1 (seeds 90001899 and 96000513)."""
    insert(two.s, *GONE, settings=BY_ROW)
    work(two.s)
    if command is drop_part:
        merge(two.s)
    dies_before_ids(monkeypatch, two, command)
    then(two)
    work(two.s, "r2")
    assert rows(two.s, "r2") == []
    assert insert(two.s, *GONE, at="r2", settings=BY_ROW).outcome is Outcome.INSERTED
    work(two.s, "r2")
    assert rows(two.s, "r2") == list(GONE)


@pytest.mark.parametrize("then", [goes, is_lost, comes_back, stays])
@pytest.mark.parametrize("token", ["", "mine"])
def test_so_can_an_insert_of_which_the_last_part_is_dropped_after_the_others(
    two, then, token, monkeypatch
):
    """Its record kept the blocks that were dropped before, which nobody looked for any more."""
    first, last = insert(two.s, *GONE, token=token, settings=BY_ROW).parts
    work(two.s)
    two.s.table("r1").drop_part(first, settings=NOW)
    work(two.s)
    dies_before_ids(monkeypatch, two, lambda of: of.s.table("r1").drop_part(last, settings=NOW))
    then(two)
    work(two.s, "r2")
    assert rows(two.s, "r2") == []
    again = insert(two.s, *GONE, at="r2", token=token, settings=BY_ROW)
    assert again.outcome is Outcome.INSERTED
    work(two.s, "r2")
    assert rows(two.s, "r2") == list(GONE)


def dies_before_ids(monkeypatch, two, command):
    def dies(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        for module in (ids_left, swap):
            patch.setattr(module, "forget", dies)
        with pytest.raises(KeyboardInterrupt):
            command(two)


@pytest.mark.parametrize("command", COMMANDS)
def test_who_asked_and_died_sees_to_it_when_he_comes_back(two, command, monkeypatch):
    insert(two.s, *GONE, settings=BY_ROW)
    work(two.s)
    if command is drop_part:
        merge(two.s)
    dies_before_ids(monkeypatch, two, command)
    assert insert(two.s, *GONE, settings=BY_ROW).outcome is Outcome.DUPLICATE, "not answered"
    comes_back(two)
    work(two.s, "r1")
    assert insert(two.s, *GONE, settings=BY_ROW).outcome is Outcome.INSERTED
    work(two.s)
    assert rows(two.s, "r1") == rows(two.s, "r2") == list(GONE)


@pytest.mark.parametrize("command", [drop_partition, overwrite])
def test_who_could_not_forget_them_is_told_that_it_is_not_finished(two, command, monkeypatch):
    insert(two.s, *GONE)
    work(two.s)

    def fails(*_):
        raise OutcomeUnknown("no answer")

    with monkeypatch.context() as patch:
        for module in (ids_left, swap):
            patch.setattr(module, "forget", fails)
        with pytest.raises(Unfinished, match=r"in the log .* a duplicate of them: no answer"):
            command(two)
    work(two.s)
    assert rows(two.s, "r1") == rows(two.s, "r2") == []
    assert insert(two.s, *GONE).outcome is Outcome.INSERTED


@pytest.mark.parametrize("forgets", [True, False])
def test_a_drop_of_which_some_is_in_the_log_says_so(two, monkeypatch, forgets):
    """TRUNCATE of more partitions than fit into a multi: it said that nothing was changed."""
    insert(two.s, (1, 1), (2, 1))
    work(two.s)
    monkeypatch.setattr(limits, "DROPS_PER_MULTI_MAX", 1)
    drop = dropping._drop
    tries = iter([drop])

    def one_and_no_more(living, partitions, *, detach):
        once = next(tries, None)
        if once is None:
            raise dropping.others_first(living())
        return once(living, partitions, detach=detach)

    def fails(*_):
        raise OutcomeUnknown("nobody there")

    with monkeypatch.context() as patch:
        patch.setattr(dropping, "_drop", one_and_no_more)
        if not forgets:
            patch.setattr(ids_left, "what_to_forget_at_once", lambda *_: None)
            patch.setattr(ids_left, "forget", fails)
        with pytest.raises(
            Unfinished, match=r"of 1 of 2 partitions is in the log .* Of the oth"
        ) as told:
            truncate(two)
    assert ("a duplicate of them: nobody there" in str(told.value)) is not forgets
    if not forgets:
        work(two.s)
    assert insert(two.s, (1, 1)).outcome is Outcome.INSERTED, "what it took is forgotten"
    truncate(two)
    work(two.s)
    assert rows(two.s, "r1") == rows(two.s, "r2") == []


@pytest.mark.parametrize("command", [drop_partition, drop_part, move, overwrite])
def test_what_got_no_answer_and_landed_is_seen_to_as_well(two, command):
    insert(two.s, (1, 1))
    work(two.s)
    replicas = two.t if command is move else two.s
    with faulty(replicas["r1"].keeper, logs, landed=True):
        command(two)
    assert insert(two.s, (1, 1)).outcome is Outcome.INSERTED
    work(two.s)
    assert rows(two.s, "r1") == rows(two.s, "r2") == [(1, 1)]
