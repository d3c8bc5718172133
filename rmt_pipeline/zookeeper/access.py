"""Who we are for ZooKeeper, how we get there, and whom the nodes that we make are for."""

from dataclasses import dataclass, field
from typing import Self

from rmt_pipeline.config import TlsFiles, ZooKeeperConfig


@dataclass(frozen=True, slots=True)
class Access:
    """`identity` is "user:password", shown by the scheme `digest`, or with `sasl` by SASL's
    DIGEST-MD5. `restricted`: every node that is made is for its creator alone. `tls`: None is
    without.
    """

    identity: str = field(default="", repr=False)
    sasl: bool = False
    restricted: bool = False
    tls: TlsFiles | None = None

    @classmethod
    def of(cls, config: ZooKeeperConfig) -> Self:
        return cls(
            config.identity,
            config.authentication == "sasl",
            config.is_restricted,
            config.tls_files,
        )

    @property
    def user_and_password(self) -> tuple[str, str]:
        user, _, password = self.identity.partition(":")
        return user, password

    @property
    def who(self) -> str:
        """In words, for errors."""
        if self.identity:
            return f"user {self.user_and_password[0]!r}"
        if self.tls is not None and self.tls.certificate is not None:
            return f"whoever has the certificate {self.tls.certificate}"
        return "somebody who says not who he is"


ANYONE = Access()
