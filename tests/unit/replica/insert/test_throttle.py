"""Back-pressure by active and outdated parts."""

from threading import get_ident

import pytest

from rmt_pipeline.protocol.errors import Corruption, MissingPart, TooManyParts
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.insert import throttle as throttle_module
from rmt_pipeline.replica.insert.result import InsertResult
from rmt_pipeline.replica.insert.throttle import throttle_insert
from rmt_pipeline.replica.partitions.overwrite import ReplaceResult
from rmt_pipeline.store.manifest import Manifest
from tests.support.interleave import interleave
from tests.support.local_replicas import Replicas


@pytest.fixture
def replicas(tmp_path):
    """One replica with three active parts."""
    with Replicas(tmp_path, ["r1"]) as opened:
        for value in range(3):
            opened.insert("r1", value)
        opened.clock.slept.clear()
        yield opened


def throttle(replicas: Replicas, **query: int) -> list[float]:
    """How long an insert was slowed down."""
    replicas.clock.passed_s += 10  # what was counted before is old
    replicas.clock.slept.clear()
    throttle_insert(replicas["r1"], QuerySettings.of(query))
    return replicas.clock.slept


def merge(replicas: Replicas) -> None:
    """The parts become outdated, three of them."""
    optimize_partition(replicas["r1"], "all", final=True, skip_merged=False)
    [done] = replicas.step("r1").done
    assert done.error == ""


def test_few_parts_slow_nobody_down(replicas):
    assert throttle(replicas) == []


@pytest.mark.parametrize(
    ("delay", "throw", "seconds"), [(3, 13, 0.1), (3, 4, 1.0), (2, 6, 0.5), (3, 1000, 0.01)]
)
def test_from_the_limit_on_inserts_are_slower_and_slower(replicas, delay, throw, seconds):
    replicas.set(parts_to_delay_insert=delay, parts_to_throw_insert=throw)
    assert throttle(replicas) == [pytest.approx(seconds)]


def of_rows(replicas: Replicas) -> InsertResult | ReplaceResult:
    return replicas.table("r1").insert([{"n": int(replicas.clock.passed_s)}])


def of_a_replacement(replicas: Replicas) -> InsertResult | ReplaceResult:
    return replicas.table("r1").replace([{"n": 8}], whole=True)


@pytest.mark.parametrize("insert", [of_rows, of_a_replacement])
def test_who_was_slowed_down_is_told(replicas, insert):
    assert "waited" not in insert(replicas).words()
    for value in (10, 11, 12):
        replicas.insert("r1", value)
    replicas.set(parts_to_delay_insert=3, parts_to_throw_insert=14)
    replicas.clock.passed_s += 10
    result = insert(replicas)
    assert result.slowed.seconds == replicas.clock.slept[-1] > 0
    waited = f"; it waited {result.slowed.seconds:.2f} s first, because merges do not keep up"
    assert waited in result.words()


def test_who_was_slowed_down_by_outdated_parts_is_told_that_it_is_clean_up(replicas):
    """Larger blocks would not help."""
    merge(replicas)
    replicas.set(inactive_parts_to_throw_insert=4, inactive_parts_to_delay_insert=2)
    replicas.clock.passed_s += 10
    words = of_rows(replicas).words()
    assert "it waited 1.00 s first, because clean-up is behind" in words
    assert "merges" not in words


def test_then_they_fail_and_the_error_says_what_to_do(replicas):
    replicas.set(parts_to_throw_insert=3)
    with pytest.raises(
        TooManyParts, match=r"partition all .* has 3 active parts, parts_to_throw"
    ) as raised:
        throttle(replicas)
    said = "Most of them came from: inserts outside of Dagster (3). "
    assert said in str(raised.value)
    assert throttle(replicas, parts_to_throw_insert=4) == []


def test_of_many_runs_the_three_that_made_most_parts_are_named(tmp_path):
    with Replicas(tmp_path, ["r1"]) as opened:
        for number, run in enumerate("aabbbccd"):
            opened.table("r1").insert([{"n": number}], run_id=f"run-{run}")
        opened.set(parts_to_throw_insert=3)
        with pytest.raises(TooManyParts) as raised:
            throttle(opened)
    assert "came from: run-b (3), run-a (2), run-c (2). " in str(raised.value)


def test_of_parts_that_have_all_gone_since_they_were_counted_nobody_is_named(
    replicas, monkeypatch
):
    replicas.set(parts_to_throw_insert=3)
    right, store = throttle_module._producers, replicas["r1"].store

    def when_they_are_gone(*arguments):
        monkeypatch.setattr(store, "parts", list)
        return right(*arguments)

    monkeypatch.setattr(throttle_module, "_producers", when_they_are_gone)
    with pytest.raises(TooManyParts, match=r"merges are behind\. Insert fewer, larger blocks"):
        throttle(replicas)


def test_a_limit_holds_for_inserts_that_come_at_once(replicas):
    replicas.set(parts_to_throw_insert=5)
    for value in (3, 4):
        throttle_insert(replicas["r1"], QuerySettings())
        replicas.insert("r1", value)
    with pytest.raises(TooManyParts, match="has 5 active parts"):
        throttle_insert(replicas["r1"], QuerySettings())


def test_far_from_every_limit_parts_are_counted_when_one_may_have_been_reached(
    replicas, monkeypatch
):
    """Others may have brought a hundred a second, and this process has what it has inserted."""
    counted = []
    right = replicas["r1"].store.parts
    monkeypatch.setattr(replicas["r1"].store, "parts", lambda: counted.append(1) or right())

    def again(passed_s: float, limit: int) -> bool:
        del counted[:]
        replicas.clock.passed_s += passed_s
        throttle_insert(replicas["r1"], QuerySettings.of({"parts_to_delay_insert": limit}))
        return bool(counted)

    assert again(100, 1000)
    assert not again(0.5, 1000)
    assert not again(8, 1000)
    assert again(2, 1000)
    assert not again(0.5, 105)
    for value in (3, 4):
        replicas.insert("r1", value)
    assert not again(0.1, 106)
    assert again(0.1, 105)
    assert not again(20, 10**6)
    assert again(20, 10**6)


def is_counted_again(replicas: Replicas, monkeypatch, limit: int) -> bool:
    """By an insert that comes at once, with this limit; others may have brought a hundred parts."""
    counted = []
    right = replicas["r1"].store.parts
    with monkeypatch.context() as patch:
        patch.setattr(replicas["r1"].store, "parts", lambda: counted.append(1) or right())
        throttle_insert(replicas["r1"], QuerySettings.of({"parts_to_delay_insert": limit}))
    return bool(counted)


@pytest.mark.parametrize("seed", range(10))
def test_what_several_threads_insert_is_counted(replicas, monkeypatch, seed):
    assert is_counted_again(replicas, monkeypatch, 100)

    def insert() -> None:
        for value in range(3):
            replicas.table("r1").insert([{"n": value}], token=f"{get_ident()} {value}")

    interleave(seed, (throttle_module,), insert, insert, switch=0.5)
    assert is_counted_again(replicas, monkeypatch, 3 + 6 + 100)


def test_what_is_inserted_while_parts_are_counted_is_counted(replicas, monkeypatch):
    right = replicas["r1"].store.parts

    def while_it_is_inserted():
        found = right()
        monkeypatch.setattr(replicas["r1"].store, "parts", right)
        replicas.insert("r1", 3)
        return found

    assert is_counted_again(replicas, monkeypatch, 100)
    replicas.clock.passed_s += 100
    monkeypatch.setattr(replicas["r1"].store, "parts", while_it_is_inserted)
    throttle_insert(replicas["r1"], QuerySettings())
    assert is_counted_again(replicas, monkeypatch, 3 + 1 + 100)


def test_large_parts_may_be_any_number(replicas):
    size = replicas["r1"].store.manifest(replicas["r1"].store.parts()[0]).bytes_on_disk
    replicas.set(parts_to_throw_insert=3, max_avg_part_size_for_too_many_parts=size - 1)
    assert throttle(replicas) == []
    for limit in (size, 0):
        replicas.set(parts_to_throw_insert=3, max_avg_part_size_for_too_many_parts=limit)
        with pytest.raises(TooManyParts):
            throttle(replicas)


@pytest.mark.parametrize("error", [MissingPart, Corruption])
def test_of_a_part_that_goes_or_breaks_while_it_is_measured_nothing_is_said(
    replicas, monkeypatch, error
):
    store = replicas["r1"].store
    manifest, (gone, *_) = store.manifest, store.parts()
    size = manifest(gone).bytes_on_disk

    def read(part: PartName) -> Manifest:
        if part == gone:
            raise error(f"{part} was merged away, or is broken")
        return manifest(part)

    monkeypatch.setattr(store, "manifest", read)
    replicas.set(parts_to_throw_insert=3, max_avg_part_size_for_too_many_parts=size - 1)
    assert throttle(replicas) == []
    replicas.set(parts_to_throw_insert=3, max_avg_part_size_for_too_many_parts=size)
    with pytest.raises(TooManyParts, match=r"came from: inserts outside of Dagster \(2\)"):
        throttle(replicas)


def test_the_whole_table_has_a_limit_of_its_own(replicas):
    replicas.set(max_parts_in_total=3, max_avg_part_size_for_too_many_parts=1)
    with pytest.raises(TooManyParts, match="max_parts_in_total is 3"):
        throttle(replicas)


def test_outdated_parts_count_by_themselves(replicas):
    replicas.set(inactive_parts_to_throw_insert=3, inactive_parts_to_delay_insert=3)
    assert throttle(replicas) == []
    merge(replicas)
    with pytest.raises(
        TooManyParts, match="has 3 outdated parts, inactive_parts_to_throw_insert"
    ):
        throttle(replicas)
    replicas.set(inactive_parts_to_throw_insert=4, inactive_parts_to_delay_insert=2)
    assert throttle(replicas) == [pytest.approx(1.0)]
    replicas.set(inactive_parts_to_delay_insert=3)
    assert throttle(replicas) == [pytest.approx(1.0)]
    replicas.set()
    assert throttle(replicas) == []
