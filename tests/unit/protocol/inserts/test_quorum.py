"""How many replicas an insert waits for (spec §2.7)."""

from dataclasses import replace

import pytest

from rmt_pipeline.protocol.inserts.quorum import Quorum
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.settings.setting import BadSetting


@pytest.mark.parametrize(
    ("text", "required"),
    [
        ("0", [1, 1, 1, 1]),
        ("1", [1, 1, 1, 1]),
        ("2", [2, 2, 2, 2]),
        ("7", [7, 7, 7, 7]),
        ("auto", [1, 2, 2, 3]),
    ],
)
def test_what_is_asked_for_of_one_to_four_replicas(text: str, required: list[int]) -> None:
    quorum = Quorum.of(replace(QuerySettings(), insert_quorum=text))
    assert [quorum.required(replicas) for replicas in (1, 2, 3, 4)] == required


@pytest.mark.parametrize("text", ["", "-1", "1.5", "Auto", "all", "²", "٣"])
def test_nonsense_is_refused_in_words(text: str) -> None:
    with pytest.raises(BadSetting) as refused:
        Quorum.of(replace(QuerySettings(), insert_quorum=text))
    assert str(refused.value) == (
        f"insert_quorum = {text!r} is neither a number of replicas nor auto"
    )


@pytest.mark.parametrize("is_parallel", [False, True])
def test_how_long_it_waits_and_whether_alone(is_parallel: bool) -> None:
    query = replace(
        QuerySettings(), insert_quorum_parallel=is_parallel, insert_quorum_timeout=1500
    )
    quorum = Quorum.of(query)
    assert (quorum.is_parallel, quorum.timeout_s) == (is_parallel, 1.5)
