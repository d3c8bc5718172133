"""How we identify ourselves to ZooKeeper, how we connect, and who may access the nodes
we create.
"""

from dataclasses import dataclass, field
from typing import Self

from rmt_pipeline.config import TlsFiles, ZooKeeperConfig


@dataclass(frozen=True, slots=True)
class Access:
    """Identity, access control and TLS of one client of ZooKeeper.

    `identity` is "user:password" ("": none), proven with the scheme `digest`, or with SASL's
    DIGEST-MD5 if `sasl`. If `restricted`, each node that we create is accessible to its creator
    only. `tls` None: the connection is not encrypted.
    """

    identity: str = field(default="", repr=False)
    sasl: bool = False
    restricted: bool = False
    tls: TlsFiles | None = None

    @classmethod
    def of(cls, config: ZooKeeperConfig) -> Self:
        """The access that the section [zookeeper] of rmt.toml describes."""
        return cls(
            config.identity,
            config.authentication == "sasl",
            config.is_restricted,
            config.tls_files,
        )

    @property
    def user_and_password(self) -> tuple[str, str]:
        """The two halves of `identity`; both "" without one."""
        user, _, password = self.identity.partition(":")
        return user, password

    @property
    def who(self) -> str:
        """Our identity in words, for error messages."""
        if self.identity:
            return f"user {self.user_and_password[0]!r}"
        if self.tls is not None and self.tls.certificate is not None:
            return f"the owner of the certificate {self.tls.certificate}"
        return "a client without an identity"


ANYONE = Access()
