"""The model of what partitions hold, on made histories: each fault is found where one is."""

from dataclasses import replace

import pytest

from tests.soak.partitions import Act, Look, judge

A, B, C, D = (frozenset(range(first, first + 2)) for first in (10, 20, 30, 40))
INSERT = Act("insert", "1", 0.0, 1.0, "r1", (A,))
PUT = Act("put", "1", 2.0, 3.0, "r1", (B,))
BESIDE = Act("insert", "1", 2.5, 3.5, "r2", (C,))
DROP = Act("drop", "1", 2.0, 3.0, "r1")
MOVE = Act("move", "1", 2.0, 3.0, "r1")
REPLACE = Act("replace", "1", 2.0, 3.0, "r1", (B, D))
END_S = 9.0


def look(*units: frozenset[int], at_s: float = END_S, server: str = "r1") -> Look:
    return Look(server, tuple(key for unit in units for key in unit), at_s, at_s)


def quiet(*units: frozenset[int], moved: tuple[frozenset[int], ...] = ()) -> Look:
    return replace(look(*units), moved=tuple(key for unit in moved for key in unit))


@pytest.mark.parametrize(
    ("acts", "looks"),
    [
        ([INSERT], [look(A), quiet(A)]),
        ([INSERT, PUT], [look(A, at_s=2.5), look(B, at_s=2.5), look(B), quiet(B)]),
        ([INSERT, PUT], [look(A, server="r2")]),  # it has yet to hear of it
        ([INSERT, PUT, BESIDE], [quiet(B, C), quiet(B), look(C, A, at_s=2.9)]),
        ([INSERT, DROP, BESIDE], [quiet(C), quiet()]),
        ([INSERT, REPLACE], [quiet(B), quiet(D)]),
        ([INSERT, MOVE, BESIDE], [quiet(C, moved=(A,)), quiet(moved=(A, C))]),
        ([replace(INSERT, done=False)], [quiet(), quiet(A)]),
        ([INSERT, replace(DROP, done=False)], [quiet(), quiet(A), look(A)]),
        ([INSERT, replace(DROP, partition="2")], [quiet(A)]),
        ([INSERT, replace(DROP, server="")], [look(A), quiet()]),
    ],
)
def test_what_some_order_explains_is_right(acts, looks):
    assert judge(acts, looks).faults == {}


@pytest.mark.parametrize(
    ("acts", "shown", "faults"),
    [
        ([INSERT], quiet(), {"lost"}),
        ([INSERT], look(), {"lost"}),
        ([INSERT, replace(DROP, begin_s=0.0, end_s=0.5)], look(), set()),
        ([replace(INSERT, begin_s=4.0, end_s=5.0), DROP], look(), {"lost"}),
        ([INSERT, DROP], look(A), {"back"}),
        ([INSERT, DROP], quiet(A), {"back"}),
        ([INSERT, replace(PUT, server="r2")], quiet(A, B), {"back", "mixed"}),
        ([INSERT, replace(PUT, server="r2")], look(A, B), {"mixed"}),
        ([INSERT, REPLACE], look(A, server="r2"), set()),
        ([INSERT, REPLACE], look(A, D, server="r2"), {"mixed"}),
        ([INSERT, REPLACE], quiet(B, D), {"mixed"}),
        ([INSERT, REPLACE], quiet(), {"lost"}),
        ([PUT, replace(PUT, brings=(D,))], quiet(B, D), {"mixed"}),
        ([INSERT], Look("r1", (10,), END_S, END_S), {"partial"}),
        ([INSERT], Look("r1", (10, 10, 11), END_S, END_S), {"doubled"}),
        ([INSERT], look(A, D), {"unexpected"}),
        ([BESIDE], look(C, at_s=0.5), {"unexpected"}),
        ([INSERT, MOVE], quiet(), {"lost"}),
        ([INSERT, MOVE], quiet(A, moved=(A,)), {"back", "doubled"}),
        ([INSERT, MOVE, BESIDE], quiet(C, moved=(A, C)), {"doubled"}),
        ([INSERT, DROP], quiet(moved=(A,)), {"unexpected"}),
        ([INSERT, MOVE], replace(quiet(), moved=(10,)), {"partial"}),
    ],
)
def test_what_no_order_explains_is_found(acts, shown, faults):
    assert set(judge(acts, [shown]).faults) == faults


def test_it_is_told_how_much_had_to_be():
    verdict = judge(
        [INSERT, DROP, replace(INSERT, begin_s=4.0, end_s=5.0, brings=(B,))], [quiet(B)]
    )
    assert (verdict.must_be_there, verdict.must_be_gone) == (2, 1)
