"""The reader of texts of nodes says what is wrong and where, whatever the bytes are."""

import pytest

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.reader import TextReader


def test_a_line_without_an_end_is_not_taken_for_a_whole_one() -> None:
    """Half a text was written: `ab` may have been going to be `abc`."""
    with pytest.raises(Corruption, match="note, line 3: the text ends in the middle of a line"):
        TextReader(b"names: 2\nx\nab", "note").listed("names: ", str)


def test_what_a_value_has_against_its_text_is_said_with_its_line() -> None:
    reader = TextReader(b"names: 2\nrows: many\n", "note")
    reader.field("names: ")
    with pytest.raises(Corruption, match=r"^note, line 2: .*many"):
        reader.number("rows: ")


def test_an_empty_first_line_counts() -> None:
    reader = TextReader(b"\nrows: many\n", "note")
    assert reader.line() == ""
    with pytest.raises(Corruption, match=r"^note, line 2: .*many"):
        reader.number("rows: ")


@pytest.mark.parametrize(
    ("count", "why"),
    [(2**31 - 1, "the text ends in the middle of a line"), (2**31, "2147483648")],
)
def test_a_list_is_no_longer_than_a_node_may_have_items(count: int, why: str) -> None:
    """A count beyond that is damaged itself."""
    with pytest.raises(Corruption, match=f"^note, line .*: .*{why}.*; the node was"):
        TextReader(f"names: {count}\n".encode(), "note").listed("names: ", str)
