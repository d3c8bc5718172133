"""Each decoder under any bytes, a few times. `make fuzz MINUTES=n` asks for longer."""

import pytest

from rmt_pipeline.protocol.errors import Corruption
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
