"""TSV escaping, quoting, times."""

import pytest

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.text import (
    TIME_MAX,
    escape,
    format_time,
    parse_decimal,
    parse_time,
    quote,
    quote_all,
    unescape,
    unquote,
    unquote_all,
)


def test_escaping_leaves_no_separator_in_a_text() -> None:
    assert escape("a\tb\nc'd\\e\b\f\r\0") == r"a\tb\nc\'d\\e\b\f\r\0"


def test_escapes_that_only_the_original_writes_are_read() -> None:
    assert unescape(r"\a\e\v\"\`\/\=\x41") == '\a\x1b\v"`/=A'
    assert unescape(r"\x7f") == "\x7f"


def test_an_escape_that_nobody_knows_stays_as_it_is() -> None:
    assert unescape(r"\d+\.") == r"\d+\."


@pytest.mark.parametrize("text", ["ends\\", r"\xff", r"\x80", "\\"])
def test_half_an_escape_and_half_a_character_are_corrupt(text: str) -> None:
    with pytest.raises(Corruption):
        unescape(text)


def test_a_quoted_string_is_one_token() -> None:
    assert quote("it's") == r"'it\'s'"
    assert unquote(r"'it\'s'") == "it's"


@pytest.mark.parametrize("text", ["", "'", "a", "'a", "a'", "'a'b'", "'a\\'"])
def test_what_is_not_one_quoted_string_is_corrupt(text: str) -> None:
    with pytest.raises(Corruption):
        unquote(text)


def test_a_list_of_strings_may_have_commas_in_them() -> None:
    assert quote_all(("a,b", "c'")) == r"'a,b','c\''"
    assert unquote_all(r"'a,b','c\''") == ("a,b", "c'")
    assert unquote_all("") == ()


@pytest.mark.parametrize("text", ["'a',", ",'a'", "'a' ,'b'", "'a''b'", "a,b", "'a',b"])
def test_what_is_not_a_list_of_strings_is_corrupt(text: str) -> None:
    with pytest.raises(Corruption):
        unquote_all(text)


def test_times_are_utc() -> None:
    assert format_time(1_795_184_387) == "2026-11-20 14:19:47"
    assert parse_time("2026-11-20 14:19:47") == 1_795_184_387
    assert format_time(0) == "1970-01-01 00:00:00"
    assert parse_time(format_time(TIME_MAX)) == TIME_MAX


def test_the_zero_time_of_old_versions_is_none() -> None:
    assert parse_time("0000-00-00 00:00:00") == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-11-20",
        "2026-11-20T14:19:47",
        "2026-11-20 14:19:47Z",
        "2026-02-30 00:00:00",
        "2026-11-20 25:00:00",
        "1969-12-31 23:59:59",
        "2106-02-07 06:28:16",
        "\u0662026-11-20 14:19:47",
    ],
)
def test_what_is_not_a_time_is_corrupt(text: str) -> None:
    with pytest.raises(Corruption):
        parse_time(text)


@pytest.mark.parametrize(
    "text", ["", "+1", "1_0", " 1", "1.0", "0x1", "\u0663", "9" * 20, "-1"]
)
def test_only_plain_decimal_digits_are_a_number(text: str) -> None:
    with pytest.raises(Corruption):
        parse_decimal(text)


def test_a_number_may_be_bounded() -> None:
    assert parse_decimal("-1", low=-1) == -1
    with pytest.raises(Corruption, match="from 0 to 1"):
        parse_decimal("2", high=1)
