"""What a ZooKeeper server says of itself to whoever connects and sends `srvr`, without a session.

It is the one such command that every server allows unless it was told not to.
"""

import re
import socket
import time
from dataclasses import dataclass
from typing import Self

ANSWER_BYTES_MAX = 16 << 10
_NUMBER = re.compile(r"^(Received|Outstanding|Node count): (\d+)$", re.MULTILINE)
_MODE = re.compile(r"^Mode: (\w+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """`received` are requests since it was started; `asked_s` is when (monotonic) it was asked."""

    mode: str
    received: int
    outstanding: int
    nodes: int
    asked_s: float

    @classmethod
    def parsed(cls, text: str, asked_s: float) -> Self | None:
        numbers = {name: int(number) for name, number in _NUMBER.findall(text)}
        mode = _MODE.search(text)
        if mode is None or len(numbers) < 3:
            return None
        counts = (numbers["Received"], numbers["Outstanding"], numbers["Node count"])
        return cls(mode[1], *counts, asked_s)

    def requests_per_s(self, earlier: "ServerLoad") -> float:
        """Received since `earlier`; by a server that was restarted in between, since then."""
        seconds = max(self.asked_s - earlier.asked_s, 1e-9)
        new = self.received - earlier.received
        return (new if new >= 0 else self.received) / seconds


def server_load(host: str, port: int, timeout_s: float) -> ServerLoad | None:
    """None when it answers in other words. Raises OSError when nobody answers in time."""
    answer = b""
    with socket.create_connection((host, port), timeout_s) as connection:
        connection.sendall(b"srvr")
        while (piece := connection.recv(4096)) and len(answer) < ANSWER_BYTES_MAX:
            answer += piece
    return ServerLoad.parsed(answer.decode("utf-8", "replace"), time.monotonic())
