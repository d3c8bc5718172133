"""What we rely on ZooKeeper for. The fake must agree with the real server, or it is wrong, and
with it every simulation that used it.
"""

import threading
from collections.abc import Callable

import pytest

from rmt_pipeline.protocol.errors import ReplicaRetired
from rmt_pipeline.zookeeper.keeper import (
    Check,
    Create,
    Delete,
    Keeper,
    Op,
    RefusalKind,
    Refused,
    SetData,
    absent,
)
from tests.conftest import Sessions
from tests.support.waiting import LIMIT_S


def refusal(keeper: Keeper, *ops: Op) -> tuple[RefusalKind, str, int]:
    with pytest.raises(Refused) as caught:
        keeper.multi(ops)
    return caught.value.kind, caught.value.path, caught.value.index


class Fired(threading.Event):
    """A watch that remembers how often it fired. Real ones come from another thread."""

    count = 0

    def __call__(self) -> None:
        self.count += 1
        self.set()

    def came(self) -> bool:
        return self.wait(LIMIT_S)


# Multis


def test_a_multi_returns_created_paths_and_nothing_for_other_operations(keeper: Keeper) -> None:
    result = keeper.multi(
        [
            Create("/a", b"x"),
            SetData("/a", b"y"),
            Check("/a", 1),
            Create("/a/b"),
            Delete("/a/b"),
        ]
    )
    assert result == ["/a", "", "", "/a/b", ""]
    assert keeper.get("/a")[0] == b"y"


def test_a_refused_multi_names_the_culprit_and_leaves_no_trace(keeper: Keeper) -> None:
    keeper.multi([Create("/a", b"old")])
    ops: list[Op] = [Create("/b"), SetData("/a", b"new"), Delete("/missing"), Create("/c")]
    assert refusal(keeper, *ops) == (RefusalKind.NO_NODE, "/missing", 2)
    assert keeper.exists("/b") is None
    assert keeper.exists("/c") is None
    assert keeper.get("/a")[0] == b"old"
    assert keeper.get("/a")[1].version == 0


def test_a_multi_sees_its_own_earlier_operations(keeper: Keeper) -> None:
    keeper.multi([Create("/a"), Create("/a/b"), SetData("/a/b", b"1", 0), Delete("/a/b", 1)])
    assert keeper.children("/a") == []
    assert refusal(keeper, Delete("/a"), Create("/a/b")) == (RefusalKind.NO_NODE, "/a/b", 1)


def test_absent_refuses_what_exists_and_leaves_nothing_behind(keeper: Keeper) -> None:
    keeper.multi([Create("/a"), *absent("/a/b")])
    assert keeper.exists("/a/b") is None
    keeper.multi([Create("/a/b")])
    assert refusal(keeper, Check("/a"), *absent("/a/b")) == (RefusalKind.NODE_EXISTS, "/a/b", 1)


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        (Create("/a"), RefusalKind.NODE_EXISTS),
        (Create("/no/b"), RefusalKind.NO_NODE),
        (Create("/no/b-", sequence=True), RefusalKind.NO_NODE),
        (Create("/e/b"), RefusalKind.NO_CHILDREN_FOR_EPHEMERALS),
        (Delete("/no"), RefusalKind.NO_NODE),
        (Delete("/a", 7), RefusalKind.BAD_VERSION),
        (Delete("/a"), RefusalKind.NOT_EMPTY),
        (SetData("/no"), RefusalKind.NO_NODE),
        (SetData("/a", b"", 7), RefusalKind.BAD_VERSION),
        (Check("/no"), RefusalKind.NO_NODE),
        (Check("/a", 7), RefusalKind.BAD_VERSION),
    ],
)
def test_each_refusal_has_its_kind(keeper: Keeper, op: Op, kind: RefusalKind) -> None:
    keeper.multi([Create("/a"), Create("/a/child"), Create("/e", ephemeral=True)])
    assert refusal(keeper, op) == (kind, op.path, 0)
    assert refusal(keeper, Check("/"), op, Check("/")) == (kind, op.path, 1)


def test_a_wrong_version_is_reported_before_children_that_are_in_the_way(
    keeper: Keeper,
) -> None:
    keeper.multi([Create("/a"), Create("/a/child")])
    assert refusal(keeper, Delete("/a", 3)) == (RefusalKind.BAD_VERSION, "/a", 0)


def test_of_two_culprits_the_first_is_named(keeper: Keeper) -> None:
    assert refusal(keeper, Delete("/x"), Check("/y")) == (RefusalKind.NO_NODE, "/x", 0)


def test_pipelined_multis_are_independent(keeper: Keeper) -> None:
    keeper.multi([Create("/a")])
    results = keeper.multi_many(
        [[Create("/a/1")], [Create("/a/1"), Create("/a/2")], [Create("/a/3")]]
    )
    assert results[0] == ["/a/1"]
    assert isinstance(results[1], Refused)
    assert (results[1].kind, results[1].path, results[1].index) == (
        RefusalKind.NODE_EXISTS,
        "/a/1",
        0,
    )
    assert results[2] == ["/a/3"]
    assert keeper.children("/a") == ["1", "3"]


def test_a_thousand_pipelined_requests_are_answered_in_order(keeper: Keeper) -> None:
    keeper.multi([Create("/a")])
    results = keeper.multi_many([[Create(f"/a/{n}", str(n).encode())] for n in range(1000)])
    assert results == [[f"/a/{n}"] for n in range(1000)]
    paths = [f"/a/{n}" for n in range(1100)]
    found = [read[0] if read else None for read in keeper.get_many(paths)]
    assert found == [str(n).encode() if n < 1000 else None for n in range(1100)]


# Versions, sequence numbers, stats


def test_versions_count_changes_of_data_only(keeper: Keeper) -> None:
    keeper.multi([Create("/a"), SetData("/a"), SetData("/a"), Create("/a/b")])
    assert keeper.get("/a")[1].version == 2
    keeper.multi([SetData("/a", b"", 2)])
    assert keeper.get("/a")[1].version == 3


def test_a_recreated_node_starts_again_at_version_0_but_not_at_its_zxid(keeper: Keeper) -> None:
    """Trap: a version check alone does not identify a node."""
    keeper.multi([Create("/a"), SetData("/a")])
    before = keeper.get("/a")[1]
    keeper.multi([Delete("/a"), Create("/a")])
    after = keeper.get("/a")[1]
    assert (before.version, after.version) == (1, 0)
    assert after.created_zxid > before.created_zxid


def test_a_node_tells_the_transactions_that_made_and_changed_it(keeper: Keeper) -> None:
    keeper.multi([Create("/a")])
    made = keeper.get("/a")[1]
    assert made.created_zxid == made.modified_zxid == made.children_zxid
    keeper.multi([SetData("/a", b"new")])
    changed = keeper.get("/a")[1]
    assert changed.modified_zxid > made.created_zxid == changed.children_zxid
    keeper.multi([Create("/a/b")])
    parent, child = keeper.get("/a")[1], keeper.get("/a/b")[1]
    assert parent.children_zxid == child.created_zxid > parent.modified_zxid
    keeper.multi([Delete("/a/b")])
    assert keeper.get("/a")[1].children_zxid > child.created_zxid


def test_sequence_numbers_count_creations_of_any_kind(keeper: Keeper) -> None:
    """Trap: not the children that are there, nor only the sequential ones."""
    keeper.multi([Create("/a"), Create("/a/plain"), Delete("/a/plain"), *absent("/a/x")])
    assert keeper.multi([Create("/a/n-", sequence=True)]) == ["/a/n-0000000002"]
    assert keeper.multi([Create("/a/other-", sequence=True)]) == ["/a/other-0000000003"]
    assert keeper.get("/a")[1].children_version == 2 * 4 - 2


def test_a_refused_multi_uses_up_no_number(keeper: Keeper) -> None:
    keeper.multi([Create("/a"), Create("/a/n-", sequence=True)])
    refusal(keeper, Create("/a/n-", sequence=True), Delete("/missing"))
    assert keeper.multi([Create("/a/n-", sequence=True)]) == ["/a/n-0000000001"]


def test_numbers_within_one_multi_follow_one_another(keeper: Keeper) -> None:
    result = keeper.multi([Create("/a"), *[Create("/a/n-", sequence=True)] * 3])
    assert result[1:] == ["/a/n-0000000000", "/a/n-0000000001", "/a/n-0000000002"]


def test_a_sequence_may_have_nothing_before_its_digits(keeper: Keeper) -> None:
    keeper.multi([Create("/a")])
    created = keeper.multi([Create("/a/", b"x", sequence=True), Create("/a/", sequence=True)])
    assert created == ["/a/0000000000", "/a/0000000001"]
    assert keeper.children("/a") == ["0000000000", "0000000001"]


def test_numbers_start_again_in_a_recreated_parent(keeper: Keeper) -> None:
    keeper.multi([Create("/a"), Create("/a/n-", sequence=True), Delete("/a/n-0000000000")])
    keeper.multi([Delete("/a"), Create("/a")])
    assert keeper.multi([Create("/a/n-", sequence=True)]) == ["/a/n-0000000000"]


def test_a_stat_tells_sizes_owner_and_times(keeper: Keeper) -> None:
    keeper.multi([Create("/a", b"1234"), Create("/a/b"), Create("/e", ephemeral=True)])
    stat = keeper.exists("/a")
    assert stat is not None
    assert (stat.data_length, stat.children_count, stat.ephemeral_owner) == (4, 1, 0)
    assert stat.created_ms == stat.modified_ms > 1_500_000_000_000
    owner = keeper.exists("/e")
    assert owner is not None
    assert owner.ephemeral_owner == keeper.session_id


# Reads


def test_reading_what_is_not_there(keeper: Keeper) -> None:
    for read in (keeper.get, keeper.children, keeper.children_stat):
        with pytest.raises(Refused) as caught:
            read("/missing")
        assert (caught.value.kind, caught.value.path) == (RefusalKind.NO_NODE, "/missing")
    assert keeper.exists("/missing") is None
    assert keeper.get_many(["/missing"]) == [None]
    assert keeper.exists_many(["/missing"]) == [None]
    assert keeper.children_many(["/missing"]) == [None]
    assert keeper.get_many([]) == []


def test_reading_many_keeps_the_order(keeper: Keeper) -> None:
    keeper.multi([Create("/a", b"A"), Create("/a/x"), Create("/b", b"B")])
    reads = keeper.get_many(["/b", "/no", "/a"])
    assert [read and read[0] for read in reads] == [b"B", None, b"A"]
    assert keeper.children_many(["/b", "/no", "/a"]) == [[], None, ["x"]]
    assert [stat is not None for stat in keeper.exists_many(["/b", "/no", "/a"])] == [
        True,
        False,
        True,
    ]


def test_children_are_sorted_and_come_with_a_stat_of_the_same_moment(keeper: Keeper) -> None:
    keeper.multi([Create("/a"), Create("/a/c"), Create("/a/b"), SetData("/a")])
    assert keeper.children("/a") == ["b", "c"]
    names, stat = keeper.children_stat("/a")
    assert names == ["b", "c"]
    assert (stat.version, stat.children_count) == (1, 2)


def test_after_a_sync_another_sessions_writes_are_seen(sessions: Sessions) -> None:
    one, other = sessions.connect(), sessions.connect()
    one.multi([Create("/a")])
    other.sync("/")
    assert other.exists("/a") is not None


# Ephemeral nodes and sessions


def test_ephemeral_nodes_go_with_their_session(sessions: Sessions) -> None:
    one, other = sessions.connect(), sessions.connect()
    one.multi([Create("/a"), Create("/a/e", ephemeral=True)])
    one.multi([Create("/a/n-", ephemeral=True, sequence=True)])
    assert other.children("/a") == ["e", "n-0000000001"]
    one.close()
    other.sync("/a")
    assert other.children("/a") == []


def test_sessions_have_names_of_their_own(sessions: Sessions) -> None:
    assert len({sessions.connect().session_id for _ in range(3)}) == 3


def test_a_closed_keeper_refuses_everything(keeper: Keeper) -> None:
    keeper.multi([Create("/a")])
    keeper.close()
    keeper.close()
    calls: list[Callable[[], object]] = [
        lambda: keeper.get("/a"),
        lambda: keeper.exists("/a"),
        lambda: keeper.children("/a"),
        lambda: keeper.children_stat("/a"),
        lambda: keeper.get_many(["/a"]),
        lambda: keeper.exists_many(["/a"]),
        lambda: keeper.children_many(["/a"]),
        lambda: keeper.multi([Check("/a")]),
        lambda: keeper.sync("/a"),
    ]
    for call in calls:
        with pytest.raises(ReplicaRetired):
            call()
    assert isinstance(keeper.multi_many([[Check("/a")]])[0], ReplicaRetired)


def test_an_expired_session_stays_expired(sessions: Sessions) -> None:
    """Trap: the client library would go on under a new session, without the ephemeral nodes."""
    victim, witness = sessions.connect(), sessions.connect()
    victim.multi([Create("/a"), Create("/a/e", ephemeral=True)])
    sessions.expire(victim)
    with pytest.raises(ReplicaRetired):
        victim.multi([Create("/late")])
    with pytest.raises(ReplicaRetired):
        victim.get("/a")
    witness.sync("/")
    assert witness.children("/a") == []
    assert witness.exists("/late") is None


# Watches


@pytest.mark.parametrize(
    "change",
    [SetData("/a", b"new"), Delete("/a")],
    ids=["changed", "deleted"],
)
def test_a_data_watch_fires_once(keeper: Keeper, change: Op) -> None:
    keeper.multi([Create("/a")])
    fired, also = Fired(), Fired()
    keeper.get("/a", fired)
    keeper.exists("/a", also)
    keeper.multi([change])
    assert fired.came()
    assert also.came()
    keeper.multi(
        [Create("/b"), Delete("/b")] if keeper.exists("/a") is None else [SetData("/a")]
    )
    keeper.sync("/")
    assert (fired.count, also.count) == (1, 1)


def test_an_exists_watch_fires_when_the_node_appears(keeper: Keeper) -> None:
    fired = Fired()
    assert keeper.exists("/a", fired) is None
    keeper.multi([Create("/other")])
    assert fired.count == 0
    keeper.multi([Create("/a")])
    assert fired.came()


@pytest.mark.parametrize(
    "change",
    [Create("/a/c"), Delete("/a/b")],
    ids=["added", "removed"],
)
def test_a_child_watch_fires_when_the_children_change(keeper: Keeper, change: Op) -> None:
    keeper.multi([Create("/a"), Create("/a/b")])
    fired, also = Fired(), Fired()
    keeper.children("/a", fired)
    keeper.children_stat("/a", also)
    keeper.multi([SetData("/a"), SetData("/a/b")])
    keeper.sync("/")
    assert (fired.count, also.count) == (0, 0)
    keeper.multi([change])
    assert fired.came()
    assert also.came()


def test_a_child_watch_fires_when_its_node_goes(keeper: Keeper) -> None:
    keeper.multi([Create("/a")])
    fired = Fired()
    keeper.children("/a", fired)
    keeper.multi([Delete("/a")])
    assert fired.came()


def test_absent_in_a_multi_wakes_who_waits_for_the_node(keeper: Keeper) -> None:
    """It is created and deleted in one transaction, and the server tells of both."""
    fired, children = Fired(), Fired()
    keeper.multi([Create("/a")])
    keeper.exists("/a/b", fired)
    keeper.children("/a", children)
    keeper.multi(absent("/a/b"))
    assert fired.came()
    assert children.came()


def test_watches_of_another_session_fire_too(sessions: Sessions) -> None:
    one, other = sessions.connect(), sessions.connect()
    one.multi([Create("/a")])
    other.sync("/")
    fired = Fired()
    other.children("/a", fired)
    one.multi([Create("/a/b")])
    assert fired.came()


def test_who_asks_for_one_watch_many_times_is_called_once(keeper: Keeper) -> None:
    keeper.multi([Create("/a")])
    watch = Fired()
    for _ in range(50):
        keeper.children("/a", watch)
    keeper.multi([Create("/a/b")])
    assert watch.came()
    keeper.multi([Create("/a/c")])
    keeper.sync("/a")
    assert watch.count == 1


def test_a_refused_read_leaves_no_watch(keeper: Keeper) -> None:
    fired = Fired()
    with pytest.raises(Refused):
        keeper.get("/a", fired)
    with pytest.raises(Refused):
        keeper.children("/a", fired)
    keeper.multi([Create("/a"), Create("/a/b"), SetData("/a")])
    keeper.sync("/")
    assert fired.count == 0


def test_every_watch_fires_when_the_session_ends(sessions: Sessions) -> None:
    for end in (lambda keeper: keeper.close(), sessions.expire):
        keeper = sessions.connect()
        fired = Fired()
        keeper.exists("/never", fired)
        end(keeper)
        assert fired.came()
        assert fired.count == 1


def test_who_awaits_children_is_called_at_the_next_change_each_time(sessions: Sessions) -> None:
    one, other = sessions.connect(), sessions.connect()
    one.multi([Create("/a")])
    other.sync("/")
    for number in range(5):
        fired = Fired()
        assert other.await_children("/a", fired)
        one.multi([Create(f"/a/{number}")])
        assert fired.came()
        one.multi([Delete(f"/a/{number}")])
        other.sync("/")
        assert fired.count == 1, "who does not ask again is not called again"


def test_children_that_are_awaited_are_listed_with_a_watch_too(sessions: Sessions) -> None:
    """The watch that fires once does not take the place of the one that stays."""
    one, other = sessions.connect(), sessions.connect()
    one.multi([Create("/a")])
    other.sync("/")
    first, listed, again = Fired(), Fired(), Fired()
    other.children("/a", listed)
    assert other.await_children("/a", first)
    one.multi([Create("/a/b")])
    assert first.came()
    assert listed.came()
    assert other.children("/a", again) == ["b"]
    one.multi([Create("/a/c")])
    assert again.came()
    last = Fired()
    assert other.await_children("/a", last)
    one.multi([Create("/a/d")])
    assert last.came()
    assert (first.count, listed.count, again.count) == (1, 1, 1)


def test_who_awaits_children_hears_that_their_node_goes(keeper: Keeper) -> None:
    keeper.multi([Create("/a")])
    fired = Fired()
    assert keeper.await_children("/a", fired)
    keeper.multi([Delete("/a")])
    assert fired.came()


def test_who_awaits_children_hears_that_the_session_ends(sessions: Sessions) -> None:
    for end in (lambda keeper: keeper.close(), sessions.expire):
        keeper = sessions.connect()
        keeper.multi([Check("/")])
        fired = Fired()
        assert keeper.await_children("/", fired)
        end(keeper)
        assert fired.came()
        with pytest.raises(ReplicaRetired):
            keeper.await_children("/", Fired())
