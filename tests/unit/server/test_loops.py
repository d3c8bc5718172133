"""What is told about the work that was done, and what is counted of it."""

import gc

from rmt_pipeline.catalog.catalog import Catalog
from rmt_pipeline.protocol.events import ProfileEvent
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.work.loop import Flush
from rmt_pipeline.replica.work.step import PartDone, events_of
from rmt_pipeline.server import loops
from rmt_pipeline.server.loops import QueueLoops, log_flush
from rmt_pipeline.store.disk import LocalDisk
from rmt_pipeline.store.part_log import PartLog
from tests.support.serving import config_at, definition_of, forget
from tests.support.waiting import until

PART = PartName.parse("all_0_1_1")
TABLES = (definition_of("/tables/t", name="t"), definition_of("/tables/u", name="u"))


def test_fetches_end_with_their_table_and_with_the_server_and_go_on_when_a_session_is_over(
    tmp_path, monkeypatch
):
    """What they bring is not asked for again in the next session."""
    cancelled = {}

    def run_pool(_context, definition, *_, should_stop, is_cancelled, **__):
        cancelled[definition.name] = is_cancelled
        until(should_stop)

    monkeypatch.setattr(loops, "run_pool", run_pool)
    config = config_at(tmp_path, "127.0.0.1:1")
    catalog = Catalog(config.server("r1").data)
    for table in TABLES:
        catalog.add(table)
    gc.unfreeze()
    worked = QueueLoops(config, "r1", ("fetch",))
    try:
        assert gc.get_freeze_count(), "full collections look at all modules again and again"
        worked.follow(TABLES)
        until(lambda: len(cancelled) == 2)
        forget(catalog, name="u")
        worked.follow([])
        assert (cancelled["t"](), cancelled["u"]()) == (False, True)
    finally:
        worked.stop()
    assert cancelled["t"]()


def test_the_end_of_a_session_reads_the_tables_once_and_not_once_for_each_loop(
    tmp_path, monkeypatch
):
    """The loops of all tables end with it. With a thousand tables the server read two million files
    before it asked for the next session.
    """
    monkeypatch.setattr(loops, "run_pool", lambda *_, should_stop, **__: until(should_stop))
    config = config_at(tmp_path, "127.0.0.1:1")
    catalog = Catalog(config.server("r1").data)
    for table in TABLES:
        catalog.add(table)
    reads: list[None] = []
    definitions = Catalog.definitions
    monkeypatch.setattr(
        Catalog, "definitions", lambda self: reads.append(None) or definitions(self)
    )
    worked = QueueLoops(config, "r1", ("fetch", "merge"))
    try:
        worked.follow(TABLES)
        assert len(reads) == 0
        worked.follow([])
        assert len(reads) == 1
    finally:
        worked.stop()


def test_results_that_differ_are_counted_and_logged_with_both_hashes(tmp_path, capsys, caplog):
    error = "our all_0_1_1 differs from replica r2's in its rows: ours is 1f, theirs 2e"
    differs = PartDone(PART, "MERGE_PARTS", error=error, differs=True)
    other = PartDone(PART, "GET_PART", error="nobody has it")
    log = PartLog(LocalDisk(tmp_path), "")
    for parts in ((differs, other), (other, PartDone(PART, "FETCH", sources=(PART,)))):
        log.note(events_of(parts, 1.0))
        log_flush(Flush("default.t", "r1", parts))
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
