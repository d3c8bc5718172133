"""SASL's DIGEST-MD5 (RFC 2831), as ZooKeeper uses it: both sides prove that they know the password,
and neither sends it.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable

SERVICE = "zookeeper/zk-sasl-md5"  # the name of every ZooKeeper server, whatever its host

_DIRECTIVE = re.compile(r'([a-z-]+)=(?:"((?:[^"\\]|\\.)*)"|([^",]*))')


class Sasl:
    """One exchange: the server's challenge, our response, and the server's proof."""

    def __init__(
        self,
        user: str,
        password: str,
        *,
        service: str = SERVICE,
        nonce: Callable[[], str] = secrets.token_hex,
    ) -> None:
        self._user = user
        self._password = password
        self._service = service
        self._nonce = nonce
        self._expected = b""

    def response(self, challenge: bytes) -> bytes:
        """The response to the server's challenge. Raises ValueError for a challenge that is not one
        of DIGEST-MD5, or asks for more than authentication.
        """
        asked = _directives(challenge)
        if asked.get("algorithm") != "md5-sess" or "nonce" not in asked:
            raise ValueError(f"not a challenge of DIGEST-MD5: {challenge!r}")
        if "auth" not in asked.get("qop", "auth").split(","):
            raise ValueError(f"it wants {asked['qop']}, and we speak plain auth alone")
        realm, theirs, ours = asked.get("realm", ""), asked["nonce"], self._nonce()
        secret = _md5(f"{self._user}:{realm}:{self._password}".encode())
        session = _md5(secret + f":{theirs}:{ours}".encode()).hex()

        def proof(of: str) -> str:
            what = _md5(f"{of}:{self._service}".encode()).hex()
            return _md5(f"{session}:{theirs}:00000001:{ours}:auth:{what}".encode()).hex()

        self._expected = f"rspauth={proof('')}".encode()
        return (
            f'charset=utf-8,username="{_quoted(self._user)}",realm="{_quoted(realm)}",'
            f'nonce="{_quoted(theirs)}",nc=00000001,cnonce="{_quoted(ours)}",'
            f'digest-uri="{self._service}",response={proof("AUTHENTICATE")},qop=auth'
        ).encode()

    def is_confirmed_by(self, word: bytes) -> bool:
        """Whether the server's last message proves that it knows the password, too."""
        return bool(self._expected) and hmac.compare_digest(word, self._expected)


def _directives(challenge: bytes) -> dict[str, str]:
    return {
        name: re.sub(r"\\(.)", r"\1", quoted) or plain
        for name, quoted, plain in _DIRECTIVE.findall(challenge.decode("utf-8", "replace"))
    }


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data).digest()  # noqa: S324  the RFC's
