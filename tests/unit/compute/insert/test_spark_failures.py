"""What is said when Spark itself fails in an insert. With Spark itself: `tests/spark`."""

from types import SimpleNamespace

import pytest

from rmt_pipeline.compute.insert.spark import stage_dataframe
from rmt_pipeline.protocol.errors import Unavailable


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RuntimeError(""), "Spark: RuntimeError"),
        (RuntimeError("no workers\n\tat org.apache.spark"), "Spark: no workers"),
    ],
)
def test_a_failure_of_spark_is_named_also_if_it_has_no_text(error, words):
    def fails(*_):
        raise error

    schema = SimpleNamespace(fields=())
    frame = SimpleNamespace(inputFiles=list, mapInArrow=fails, schema=schema)
    plan = SimpleNamespace(definition=SimpleNamespace(partition_by=()))
    with pytest.raises(Unavailable, match=f"^{words}$"):
        stage_dataframe(frame, plan)
