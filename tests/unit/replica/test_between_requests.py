"""Something happens between any two requests of an action: another replica is dropped, or does the
same. What the action was told before names what is not there any more then: it ends as one may
end, and said again it does what it is for.

And what it asks, and what comes of it, is as it is recorded in `data/requests`: request by request
when nothing happens, and else how that differs.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from rmt_pipeline.replica.life.drop import drop_replica
from rmt_pipeline.zookeeper.keeper import Keeper
from rmt_pipeline.zookeeper.trees import delete_tree
from tests.support.actions import ACTIONS, Action
from tests.support.asked import Asking, differs, events, must_be_recorded, on_disk, outcome_of
from tests.support.between_requests import BeforeRequest, GoneSince
from tests.support.local_replicas import Replicas
from tests.support.loop_actions import LOOPS
from tests.support.more_actions import MORE, NAMES, WithSource
from tests.support.rare_actions import RARE
from tests.support.refused_actions import REFUSED
from tests.support.work_actions import WORK

RECORDED = Path(__file__).parent / "data" / "requests"
AGAIN = "UPDATE_SNAPSHOTS=1 python -m pytest tests/unit/replica/test_between_requests.py"
REQUESTS_MAX = 150
ALL = [*ACTIONS, *MORE]
ASKED_ALONE = [*RARE, *LOOPS, *WORK, *REFUSED]
ONE_BY_ONE = [action for action in ACTIONS if action.between is BeforeRequest]
"""The others are interrupted between the answers to what is sent together, in no order."""


def recorded(action: Action, what: str) -> Path:
    return RECORDED / what / f"{action.name.replace(' ', '_')}.txt"


def dropped(replicas: Replicas, name: str = "r3") -> None:
    replicas.stop(name)
    drop_replica(replicas.zookeeper.connect(), replicas["r1"].table, name)


def itself_dropped(replicas: Replicas) -> None:
    """By somebody else, who cares nothing for its session."""
    drop_replica(replicas.zookeeper.connect(), replicas["r1"].table, "r1")


def prepared(directory: Path, action: Action) -> Replicas:
    if action.makes is not None:
        replicas = action.makes(directory)
    else:
        replicas = Replicas(directory, NAMES)
        replicas.insert("r1", 1, 2)
        replicas.insert("r1", 3)
        replicas.work_off()
    action.prepared(replicas)
    return replicas


def speaks_through(replicas: Replicas, session: Keeper) -> None:
    """What r1 asks, of its table and of the one beside it."""
    tables = [replicas, replicas.source] if isinstance(replicas, WithSource) else [replicas]
    for table in tables:
        table["r1"].keeper.session = session  # type: ignore[attr-defined]


def act(action: Action, replicas: Replicas, directory: Path) -> list[str]:
    """The answer, and what is on the disk and noted after it."""
    before = len(events(replicas, "r1"))
    answer = outcome_of(lambda: action.does(replicas), directory)
    return [f"answer: {answer}", *on_disk(replicas, "r1"), *events(replicas, "r1")[before:]]


def asked_in_peace(action: Action, directory: Path) -> list[str]:
    with prepared(directory, action) as replicas:
        asking = Asking(replicas["r1"].session)
        speaks_through(replicas, asking)
        came = act(action, replicas, directory)
    return [*asking.asked, *came]


@pytest.mark.parametrize("action", [*ALL, *ASKED_ALONE], ids=lambda action: action.name)
def test_what_is_asked_is_what_is_recorded(tmp_path: Path, action: Action) -> None:
    found = asked_in_peace(action, tmp_path)
    must_be_recorded(recorded(action, "asked"), found, AGAIN)


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.name)
def test_whatever_happens_between_any_two_requests(tmp_path: Path, action: Action) -> None:
    happens = action.meanwhile or dropped
    calm = asked_in_peace(action, tmp_path / "calm")
    found: list[tuple[str, list[str]]] = []
    for number in range(0, REQUESTS_MAX * action.stride, action.stride):
        directory = tmp_path / str(number)
        with prepared(directory, action) as replicas:
            right = replicas["r1"].session
            asking, last = Asking(right), list[str]()
            beside = partial(noting, asking, last, partial(happens, replicas))
            asking.session = between = action.between(right, number, beside)
            speaks_through(replicas, asking)
            came = act(action, replicas, directory)
            if not between.has_come:
                break
            found.append((f"before {number}, {first_line(last)}", [*asking.asked, *came]))
            if action.holds is not None:
                speaks_through(replicas, right)
                action.does(replicas)
                assert action.holds(replicas), f"after what happened before request {number}"
    assert 0 < number < REQUESTS_MAX * action.stride
    assert not between.has_come
    if action in ONE_BY_ONE:
        must_be_recorded(recorded(action, "between"), described(calm, found), AGAIN)


def noting(asking: Asking, last: list[str], happens: Callable[[], object]) -> None:
    """What is asked when it happens."""
    last.extend(asking.asked[-1:])
    happens()


def first_line(asked: Sequence[str]) -> str:
    return asked[0].partition("\n")[0] if asked else "nothing"


def described(calm: Sequence[str], found: Sequence[tuple[str, list[str]]]) -> list[str]:
    """What is different then, said once of those of which it is the same."""
    told: list[str] = []
    before: list[str] | None = None
    for when, asked in reversed(found):
        now = differs(calm, asked)
        told += [*([] if now == before else reversed(now)), when]
        before = now
    return told[::-1]


ITSELF = [action for action in ACTIONS if action.meanwhile is None]


@pytest.mark.parametrize("action", ITSELF, ids=lambda action: action.name)
def test_who_is_dropped_himself_between_two_requests_is_told_so(
    tmp_path: Path, action: Action
) -> None:
    """Or his action ends as if nothing had happened: it is all the same by then."""
    told: list[str] = []
    for number in range(0, REQUESTS_MAX, action.every):
        directory = tmp_path / str(number)
        with prepared(directory, action) as replicas:
            right = replicas["r1"].session
            between = BeforeRequest(right, number, partial(itself_dropped, replicas))
            speaks_through(replicas, between)
            [answer, *_] = act(action, replicas, directory)
            if not between.has_come:
                break
            told.append(f"before {number}, {answer}")
    assert number
    must_be_recorded(recorded(action, "itself_dropped"), told, AGAIN)


@pytest.mark.parametrize("action", ALL, ids=lambda action: action.name)
def test_what_was_listed_may_be_gone_when_it_is_read(tmp_path: Path, action: Action) -> None:
    """Each listing in its turn. The action ends with an answer, or with an error for people."""
    for number in range(REQUESTS_MAX):
        directory = tmp_path / str(number)
        with prepared(directory, action) as replicas:
            session = GoneSince(replicas["r1"].session, number, partial(gone, replicas))
            speaks_through(replicas, session)
            act(action, replicas, directory)
            if not session.has_come:
                break
    assert number < REQUESTS_MAX - 1


def gone(replicas: Replicas, path: str, names: Sequence[str]) -> None:
    """Others remove these nodes: of replicas only r3, which has nothing that the others lack; no
    parts, or rows would be lost; nor partitions, which stay.
    """
    session, table = replicas.zookeeper.connect(), replicas["r1"].table
    if path == table.replicas:
        if "r3" in names:
            dropped(replicas)
    elif path.rpartition("/")[2] not in ("parts", "block_numbers"):
        for name in names:
            delete_tree(session, f"{path}/{name}")


def test_all_that_is_recorded_is_of_an_action() -> None:
    of = {"asked": [*ALL, *ASKED_ALONE], "between": ONE_BY_ONE, "itself_dropped": ITSELF}
    wanted = {recorded(action, what) for what, actions in of.items() for action in actions}
    assert len(wanted) == sum(map(len, of.values()))
    assert {*RECORDED.rglob("*.txt")} == wanted
