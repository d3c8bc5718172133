"""What the loops of one process share must be safe to share: at every line another one may run."""

from pathlib import Path

import pytest

from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica import fetch, publish, pull_log
from rmt_pipeline.replica.assign import merges as assign
from rmt_pipeline.replica.mutations import mutations
from rmt_pipeline.replica.work import carry, execute
from rmt_pipeline.zookeeper import snapshot
from rmt_pipeline.zookeeper.keeper import Delete, SetData
from tests.support.interleave import interleave
from tests.support.local_replicas import Replicas

SEEDS = 20


@pytest.mark.parametrize("seed", range(SEEDS))
def test_who_loads_the_mutations_has_all_that_were_there(tmp_path: Path, seed: int) -> None:
    """Whoever listed them before the newest one was there may end last."""
    with Replicas(tmp_path) as two:
        created: list[str] = []

        def load() -> None:
            for _ in range(20):
                there = set(created)
                found = set(mutations.load_mutations(two["r1"]).entries)
                assert there <= found

        def create() -> None:
            for number in range(10):
                command = f"DELETE WHERE n = {number}"
                created.append(mutations.create_mutation(two["r2"], command))

        interleave(seed, (mutations,), load, load, create)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_who_looks_what_may_be_merged_sees_all_that_was_there(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts go from the log to the queue and from there to the parts, carried by another thread,
    which forgets entries as soon as they are finished.
    """
    monkeypatch.setattr(snapshot, "FINISHED_KNOWN_MAX", 0)
    with Replicas(tmp_path) as two:
        inserted: list[PartName] = []

        def follow() -> None:
            while len(two.parts("r1")) < 4:
                two.step("r1", "fetch")

        def insert() -> None:
            inserted.extend(two.insert("r2", number) for number in range(4))

        def look() -> None:
            for _ in range(6):
                there = list(inserted)
                virtual = assign.merge_view(two["r1"]).predicate.virtual
                assert [part for part in there if virtual.containing(part) is None] == []

        modules = (assign, carry, execute, fetch, publish, pull_log, snapshot)
        interleave(seed, modules, follow, insert, look, switch=0.1)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_pointer_from_before_a_clone_does_not_end_a_look_too_early(
    tmp_path: Path, seed: int
) -> None:
    """A clone moved the pointer back, and took from the queue what has to be pulled again. Another
    thread still knows the old pointer, and notes it down whenever it finds nothing new.
    """
    with Replicas(tmp_path) as two:
        replica = two["r1"]
        parts = [two.insert("r2", number) for number in range(2)]
        pull_log.pull_log(replica)
        queue = replica.keeper.children(replica.paths.queue)
        replica.keeper.multi(
            [
                *(Delete(replica.paths.queue_entry(node)) for node in queue),
                SetData(replica.paths.log_pointer, b"0"),
            ]
        )

        def look() -> None:
            virtual = assign.merge_view(replica).predicate.virtual
            assert [part for part in parts if virtual.containing(part) is None] == []

        def pull() -> None:
            pull_log.pull_log(replica)

        interleave(seed, (assign, pull_log), look, pull)
