"""DIGEST-MD5: the example of RFC 2831, and servers that are none."""

import pytest

from rmt_pipeline.zookeeper.sasl import Sasl

CHALLENGE = (
    b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",'
    b"algorithm=md5-sess,charset=utf-8"
)


def of_the_rfc() -> Sasl:
    """Its §4: an IMAP server."""
    service, nonce = "imap/elwood.innosoft.com", "OA6MHXh6VqTrRk"
    return Sasl("chris", "secret", service=service, nonce=lambda: nonce)


def test_the_response_is_that_of_the_rfc() -> None:
    response = of_the_rfc().response(CHALLENGE)
    assert b"response=d388dad90d4bbd760a152321f2143af7" in response.split(b",")
    assert b'username="chris"' in response
    assert b"secret" not in response


def test_only_who_knows_the_password_is_believed_to_be_the_server() -> None:
    exchange = of_the_rfc()
    assert not exchange.is_confirmed_by(b""), "before anything was asked"
    exchange.response(CHALLENGE)
    assert exchange.is_confirmed_by(b"rspauth=ea40f60335c427b5527b84dbabcdfffd")
    assert not exchange.is_confirmed_by(b"rspauth=ea40f60335c427b5527b84dbabcdfffe")
    assert not exchange.is_confirmed_by(b"")


def test_what_is_quoted_stays_one_value() -> None:
    response = Sasl('a"b', "c").response(CHALLENGE)
    assert b'username="a\\"b",realm="elwood' in response


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"\xff",
        b"algorithm=md5-sess",
        b'nonce="x",qop="auth-conf",algorithm=md5-sess',
        b'nonce="x",algorithm=md5',
    ],
)
def test_a_challenge_that_is_none_is_refused(challenge: bytes) -> None:
    with pytest.raises(ValueError, match=r"DIGEST-MD5|auth alone"):
        of_the_rfc().response(challenge)


def test_a_server_may_name_no_realm_and_no_protection_or_several() -> None:
    """What it does not say of the two is "" and `auth`."""
    plain = b'nonce="n",algorithm=md5-sess'
    exchange = of_the_rfc()
    said = exchange.response(plain)
    assert b'realm=""' in said
    for more in (b',qop="auth"', b',qop="auth-int,auth"', b',realm=""'):
        assert of_the_rfc().response(plain + more) == said


def test_quotes_within_a_value_are_the_value() -> None:
    response = of_the_rfc().response(rb'realm="a\"b\\c",nonce="n",algorithm=md5-sess')
    assert rb'realm="a\"b\\c",nonce="n"' in response
