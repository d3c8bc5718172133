"""What is taken from the log: entries of others are queued, what was inserted here is here."""

from rmt_pipeline.protocol.log.codec import encode
from rmt_pipeline.protocol.log.entry import GetPart
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.pull_log import Pulled, pull_log
from rmt_pipeline.zookeeper.keeper import Create, Delete
from tests.support.local_replicas import Replicas


def queued(replicas: Replicas, name: str) -> list[str]:
    return replicas[name].keeper.children(replicas[name].paths.queue)


def counts(pulled: Pulled) -> tuple[int, int]:
    return pulled.entries, pulled.queued


def test_what_was_inserted_here_is_not_queued_here(replicas: Replicas) -> None:
    replicas.insert("r1", 1)
    replicas.insert("r1", 2)
    assert counts(pull_log(replicas["r1"])) == (2, 0)
    assert queued(replicas, "r1") == []
    assert counts(pull_log(replicas["r2"])) == (2, 2)
    assert counts(pull_log(replicas["r1"], afresh=True)) == (0, 0)


def test_between_others_entries_too(replicas: Replicas) -> None:
    replicas["r1"].memory.pull_batch = 10
    theirs = [replicas.insert("r2", 1)]
    replicas.insert("r1", 2)
    theirs.append(replicas.insert("r2", 3))
    assert counts(pull_log(replicas["r1"])) == (3, 2)
    replicas.work_off("r1")
    assert set(map(str, theirs)) < set(replicas.parts("r1"))


def test_a_part_that_is_gone_again_is_queued_with_all_that_were_read_with_it(
    replicas: Replicas,
) -> None:
    """As after a refetch, or when it was merged and removed before the log was read."""
    replica = replicas["r1"]
    replica.memory.pull_batch = 10
    replicas.insert("r1", 1)
    gone = replicas.insert("r1", 2)
    replicas.step("r2", "fetch")
    replicas.step("r2", "fetch")
    replica.store.remove(gone)
    replica.keeper.multi([Delete(replica.paths.part(gone))])
    assert counts(pull_log(replica)) == (2, 2)
    replicas.work_off("r1")
    assert queued(replicas, "r1") == []
    assert str(gone) in replicas.parts("r1")
    assert replica.store.has(gone)


def test_who_waits_for_a_quorum_finds_the_entry_in_the_queue(replicas: Replicas) -> None:
    replica = replicas["r1"]
    part = PartName.parse("all_0_0_0")
    entry = GetPart(create_time=0, source_replica="r1", part=part, quorum=2)
    replica.keeper.multi(
        [
            Create(replica.paths.part(part)),
            Create(replica.table.log_entry("log-"), encode(entry), sequence=True),
        ]
    )
    assert counts(pull_log(replica)) == (1, 1)


def test_an_entry_that_cannot_be_read_is_queued_and_stops_no_pull(replicas: Replicas) -> None:
    replica = replicas["r1"]
    replica.keeper.multi([Create(replica.table.log_entry("log-"), b"junk", sequence=True)])
    assert counts(pull_log(replica)) == (1, 1)
