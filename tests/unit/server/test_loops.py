"""What the loops of `serve --work` tell about the work that was done."""

from rmt_pipeline.config import load_config
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.work.step import PartDone
from rmt_pipeline.replica.work.worker import Flush
from rmt_pipeline.server.loops import QueueLoops

PART = PartName.parse("all_0_1_1")


def test_results_that_differ_are_counted_and_logged_with_both_hashes(tmp_path, capsys, caplog):
    file = tmp_path / "rmt.toml"
    file.write_text('[servers.r1]\ndata = "r1"\nlisten = "127.0.0.1:1"\n')
    counted: list[int] = []
    loops = QueueLoops(load_config(file), "r1", ("merge",), counted.append)
    try:
        error = "our all_0_1_1 differs from replica r2's in its rows: ours is 1f, theirs 2e"
        differs = PartDone(PART, "MERGE_PARTS", error=error, differs=True)
        other = PartDone(PART, "FETCH", error="nobody has it")
        loops.flushed(Flush("default.t", "r1", "merge", (differs, other)))
        loops.flushed(Flush("default.t", "r1", "merge", (other, PartDone(PART, "FETCH"))))
    finally:
        loops.stop()
    assert counted == [1]
    # Standard error, unless a server of an earlier test has sent this process's log elsewhere.
    printed = "".join(capsys.readouterr()) + caplog.text
    assert "ours is 1f, theirs 2e" in printed
