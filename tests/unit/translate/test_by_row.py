"""Functions in Python, for one row after the other."""

import pytest

from rmt_pipeline.translate.by_row import by_row

UUID = "61f0c4045cb311e7907ba6006ad3dba0"


def test_a_long_text_behind_a_question_mark_is_gone_through_once() -> None:
    """Where no parameter begins, none is looked for from each of its characters on."""
    url = b"http://a/?x=1&" + b"y?" * 100_000
    assert by_row("extractURLParameters", url) == [b"x=1"]
    assert by_row("extractURLParameterNames", url) == [b"x"]


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("UUIDStringToNum", "61f0c404-5cb3-11e7-907b-a6006ad3dba0", UUID),
        ("UUIDStringToNum", "61F0C404x5CB3x11E7x907BxA6006AD3DBA0", UUID),
        ("UUIDStringToNum", "61f0c4045cb311e7907ba6006ad3dba0", ""),
        ("UUIDStringToNum", "{61f0c404-5cb3-11e7-907b-a6006ad3dba0}", ""),
        ("UUIDStringToNum", "urn:uuid:61f0c404-5cb3-11e7-907b-a6006ad3dba0", ""),
        ("UUIDStringToNum", "61f0c40--5cb3-11e7-907b-a6006ad3dba0", ""),
        ("IPv6StringToNum", "2001:db8::1", "20010db8" + 23 * "0" + "1"),
        ("IPv6StringToNum", "2001:db8::1%eth0", ""),
    ],
)
def test_an_address_is_read_in_the_forms_of_the_original(name, text, found):
    assert by_row(name, text.encode()) == [bytes.fromhex(found or 32 * "0")]


@pytest.mark.parametrize(
    ("text", "number", "maker"),
    [
        ("01:02:03:04:05:06", 0x010203040506, 0x010203),
        ("01-02-03-04-05-06", 0x010203040506, 0x010203),
        ("01:02:03", 0, 0x010203),
        ("01:02:03:04:05:06:07", 0, 0),
        ("010203040506", 0, 0),
    ],
)
def test_so_is_the_address_of_a_card(text, number, maker):
    assert by_row("MACStringToNum", text.encode()) == [str(number).encode()]
    assert by_row("MACStringToOUI", text.encode()) == [str(maker).encode()]


@pytest.mark.parametrize("kind", ["com", "net", "org", "co", "biz", "edu", "gov", "mil"])
def test_a_country_s_kinds_of_domains_are_no_significant_part(kind):
    domain = f"a.b.{kind}.uk".encode()
    assert by_row("cutToFirstSignificantSubdomain", domain) == [f"b.{kind}.uk".encode()]
