"""Ports of this machine for servers that are about to start."""

import random
import socket

FIRST, COUNT = 20_000, 12_000
"""The range lies below the ports that kernels give to outgoing connections: such a port may be
taken before its server starts.
"""

_random = random.SystemRandom()  # several processes look for ports at once, and must differ
_given: set[int] = set()


def free_port() -> int:
    """A port that no process listens on, and that this process has not returned before."""
    while True:
        port = FIRST + _random.randrange(COUNT)
        if port not in _given and _is_free(port):
            _given.add(port)
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
