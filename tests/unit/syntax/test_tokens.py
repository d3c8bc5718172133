"""Tokens: what quoted text means, and where things are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmt_pipeline.protocol.errors import SyntaxProblem
from rmt_pipeline.protocol.text import quote
from rmt_pipeline.syntax.cursor import Cursor
from rmt_pipeline.syntax.lexer import Token, place


def tokens(source: str) -> list[Token]:
    cursor = Cursor(source)
    found = []
    while not cursor.at_end:
        found.append(cursor.advance())
    return found


def test_words_literals_and_marks_are_told_apart():
    source = "a `b c` 'd' 0x1F 1.5e-3 .5 :: -> != ("
    kinds = [token.kind for token in tokens(source)]
    assert kinds == ["word", "name", "string", *["number"] * 3, *["mark"] * 4]
    assert " ".join(token.text for token in tokens(source)) == source


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("'a'", "a"),
        ("''", ""),
        ("'it''s'", "it's"),
        (r"'it\'s\\'", "it's\\"),
        (r"'\''''", "'" + "'"),
        (r"'\n\t\0\\n'", "\n\t\0\\n"),
        (r"'\d\%'", r"\d\%"),
        (r"'\x41\xc3\xa9'", "Aé"),
        ("`a``b`", "a`b"),
        ('"a""b"', 'a"b'),
        ("bare", "bare"),
    ],
)
def test_quoted_text_means_what_the_original_means(text, meaning):
    (token,) = tokens(text)
    assert token.value == meaning


def test_a_quote_that_is_never_closed_is_not_closed_at_a_doubled_one():
    with pytest.raises(SyntaxProblem, match="column 1: a quote"):
        tokens("'it''s; it''s")


@given(st.text())
def test_every_text_survives_quoting(text):
    (token,) = tokens(quote(text))
    assert token.value == text


def test_places_count_lines_and_columns_from_one():
    assert place("ab\ncd", 0) == "line 1, column 1"
    assert place("ab\ncd", 4) == "line 2, column 2"


@pytest.mark.parametrize("source", ["'abc", "a § b", "`x"])
def test_what_cannot_start_a_token_is_named_with_its_place(source):
    with pytest.raises(SyntaxProblem, match=r"line 1, column [13]:"):
        tokens(source)
