"""Each decoder under any bytes, a few times. `make fuzz MINUTES=n` asks for longer."""

import pytest

from rmt_pipeline.protocol.errors import Corruption
from tests.property import fuzz
from tests.property.fuzz import TARGETS, Target, as_text, ask

EXAMPLES = 60


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_any_bytes_are_a_value_or_the_error_of_the_layer(target: Target) -> None:
    """P4."""
    ask(target, examples=EXAMPLES)


def test_a_decoder_that_breaks_is_heard_of() -> None:
    broken = Target("broken", TARGETS[0].given, as_text(int), (Corruption,))
    with pytest.raises(ValueError, match="invalid literal"):
        ask(broken, examples=EXAMPLES)


def test_each_decoder_has_its_round_when_the_time_is_over_before_it_began(monkeypatch) -> None:
    monkeypatch.setattr(fuzz, "TARGETS", TARGETS[:3])
    monkeypatch.setattr(fuzz, "EXAMPLES_PER_ROUND", 2)
    asked, failed = fuzz.fuzz(1, until_s=0.0)
    assert asked == {target.name: 1 for target in TARGETS[:3]}
    assert failed == set()
