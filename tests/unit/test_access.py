"""Who we are for ZooKeeper, by the section [zookeeper] of rmt.toml, and in words."""

from pathlib import Path

import pytest

from rmt_pipeline.config import TlsFiles
from rmt_pipeline.zookeeper.access import ANYONE, Access

CERTIFICATE = TlsFiles("[zookeeper]", None, Path("/own.pem"), Path("/own.key"))
ONLY_THEIRS = TlsFiles("[zookeeper]", Path("/ca.pem"), None, None)


@pytest.mark.parametrize(
    ("access", "who"),
    [
        (ANYONE, "a client without an identity"),
        (Access(tls=ONLY_THEIRS), "a client without an identity"),
        (Access(tls=CERTIFICATE), "the owner of the certificate /own.pem"),
        (Access("me:pass:word", tls=CERTIFICATE), "user 'me'"),
    ],
)
def test_who_we_are_in_words(access: Access, who: str) -> None:
    assert access.who == who
    assert "pass" not in repr(access), "it may get into a log"


def test_a_password_may_have_colons() -> None:
    assert Access("me:pass:word").user_and_password == ("me", "pass:word")
    assert ANYONE.user_and_password == ("", "")
