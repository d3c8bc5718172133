"""What is told about the work that was done, and what is counted of it."""

from rmt_pipeline.protocol.events import ProfileEvent
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.work.step import PartDone, events_of
from rmt_pipeline.replica.work.worker import Flush
from rmt_pipeline.server.loops import log_flush
from rmt_pipeline.store.disk import LocalDisk
from rmt_pipeline.store.part_log import PartLog

PART = PartName.parse("all_0_1_1")


def test_results_that_differ_are_counted_and_logged_with_both_hashes(tmp_path, capsys, caplog):
    error = "our all_0_1_1 differs from replica r2's in its rows: ours is 1f, theirs 2e"
    differs = PartDone(PART, "MERGE_PARTS", error=error, differs=True)
    other = PartDone(PART, "GET_PART", error="nobody has it")
    log = PartLog(LocalDisk(tmp_path), "")
    for parts in ((differs, other), (other, PartDone(PART, "FETCH", sources=(PART,)))):
        log.note(events_of(parts, 1.0))
        log_flush(Flush("default.t", "r1", "merge", parts))
    assert {event: n for event, n in log.counts.read().items() if n} == {
        ProfileEvent.MERGES_DIFFER: 1,
        ProfileEvent.MERGES_FAILED: 1,
        ProfileEvent.FETCHES: 1,
        ProfileEvent.FETCHES_FAILED: 2,
        ProfileEvent.FETCHES_OF_MERGED: 1,
    }
    # Standard error, unless a server of an earlier test has sent this process's log elsewhere.
    printed = "".join(capsys.readouterr()) + caplog.text
    assert "ours is 1f, theirs 2e" in printed
