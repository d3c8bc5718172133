"""Dying at every effect, of the process or of the whole host (style rule 11).

After each: every directory with a part's name is a whole part, what was acknowledged is there,
and what was acknowledged as gone stays gone.
"""

import random
from collections.abc import Iterator

import pytest

from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.store.part_store import PartStore
from tests.support.fake_disk import FakeDisk
from tests.support.mortal_disk import Died, MortalDisk
from tests.support.parts import CountedIds, clone, stage_bytes

ONE, TWO, THREE, FOUR = (PartName("all", number, number, 0) for number in range(1, 5))
CRASH_SEEDS = 6
Acknowledged = dict[PartName, bool]
"""Parts that must be there, and parts that must not."""


def scenario(store: PartStore) -> Iterator[tuple[Acknowledged, PartName | None]]:
    """Yields what a step made certain, and which part the next step makes uncertain."""
    first, second = stage_bytes(store), stage_bytes(store, b"other rows")
    store.publish(first, ONE)
    yield {ONE: True}, None
    store.publish(second, TWO)
    yield {TWO: True}, TWO
    store.withdraw(TWO, second)
    yield {TWO: False}, None
    store.publish_all([(second, THREE), (stage_bytes(store), FOUR)])
    yield {THREE: True, FOUR: True}, None
    clone(store, THREE, "mutate", "all_3_3_0_7")
    store.detach_copy(FOUR, "")
    yield {}, ONE
    store.remove(ONE)
    yield {ONE: False}, FOUR
    store.detach(FOUR, "broken")
    yield {FOUR: False}, None


def run_until_death(disk: FakeDisk, at: int, when: str) -> tuple[Acknowledged, int]:
    """What is certain when the process dies, and how many effects there were."""
    mortal = MortalDisk(disk, at, when)
    certain: Acknowledged = {}
    try:
        store = PartStore(mortal, "db/t", ids=CountedIds())  # type: ignore[arg-type]
        for news, uncertain in scenario(store):
            certain |= news
            if uncertain is not None:
                del certain[uncertain]
    except Died:
        pass
    return certain, mortal.effects


EFFECTS_IN_SCENARIO = run_until_death(FakeDisk(lambda: 0.0), -1, "never")[1]


def check(disk: FakeDisk, certain: Acknowledged) -> None:
    store = PartStore(disk, "db/t", ids=CountedIds())
    for part in store.parts():
        store.verify(part)
    for part, there in certain.items():
        assert store.has(part) == there, part
    for name in store.detached():
        assert disk.read(f"db/t/detached/{name}/part.json"), name
    store.sweep((), older_than_s=0, now_s=1.0)
    assert store.staged() == []


def test_the_scenario_has_effects_to_die_at() -> None:
    assert EFFECTS_IN_SCENARIO > 30


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_a_process_may_die_at_every_effect(when: str) -> None:
    for at in range(EFFECTS_IN_SCENARIO):
        disk = FakeDisk(lambda: 0.0)
        certain, _ = run_until_death(disk, at, when)
        check(disk, certain)


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_the_host_may_crash_at_every_effect(when: str) -> None:
    for at in range(EFFECTS_IN_SCENARIO + 1):
        for seed in range(CRASH_SEEDS):
            disk = FakeDisk(lambda: 0.0)
            certain, _ = run_until_death(disk, at, when)
            disk.crash(random.Random(seed))
            check(disk, certain)


def test_without_syncing_a_crash_may_break_parts() -> None:
    """The canary: `durable=False` must be noticed, or the tests above prove nothing."""
    broken = 0
    for seed in range(20):
        disk = FakeDisk(lambda: 0.0)
        store = PartStore(disk, "db/t", ids=CountedIds(), durable=False)
        store.publish(stage_bytes(store), ONE)
        disk.crash(random.Random(seed))
        try:
            check(disk, {ONE: True})
        except (AssertionError, Exception):  # noqa: BLE001  whatever it is that breaks
            broken += 1
    assert broken > 10
