"""How many slots what is lost or cloned may take."""

import pytest

from rmt_pipeline.protocol.limits import leaving_some


@pytest.mark.parametrize(("slots", "taken"), [(1, 1), (2, 1), (3, 2), (4, 3), (8, 6), (16, 12)])
def test_what_is_lost_leaves_a_quarter_of_the_slots_to_others(slots: int, taken: int) -> None:
    """At least one slot is taken, or what is lost would never come."""
    assert leaving_some(slots) == taken
