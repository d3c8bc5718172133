"""Asks a ZooKeeper server for its load with the four-letter command `srvr`, which needs no session.

`srvr` is the only such command that servers allow by default.
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
    """A server's answer to `srvr`.

    `received` counts requests since the server started, `outstanding` those without an answer yet;
    `nodes` is the number of znodes. `asked_s`: when the server was asked (seconds, monotonic).
    """

    mode: str
    received: int
    outstanding: int
    nodes: int
    asked_s: float

    @classmethod
    def parsed(cls, text: str, asked_s: float) -> Self | None:
        """Parse the answer's text; None if it is not an answer to `srvr`."""
        numbers = {name: int(number) for name, number in _NUMBER.findall(text)}
        mode = _MODE.search(text)
        if mode is None or len(numbers) < 3:
            return None
        counts = (numbers["Received"], numbers["Outstanding"], numbers["Node count"])
        return cls(mode[1], *counts, asked_s)

    def requests_per_s(self, earlier: "ServerLoad") -> float:
        """Requests per second since `earlier`. If the server was restarted in between, only those
        since the restart count.
        """
        seconds = max(self.asked_s - earlier.asked_s, 1e-9)
        new = self.received - earlier.received
        return (new if new >= 0 else self.received) / seconds


def server_load(host: str, port: int, timeout_s: float) -> ServerLoad | None:
    """Ask the server at `host:port` for its load. Return None if the answer can't be parsed.
    Raises OSError when there is no connection or no answer within `timeout_s`.
    """
    answer = b""
    with socket.create_connection((host, port), timeout_s) as connection:
        connection.sendall(b"srvr")
        while (piece := connection.recv(ANSWER_BYTES_MAX)) and len(answer) < ANSWER_BYTES_MAX:
            answer += piece
    return ServerLoad.parsed(answer.decode("utf-8", "replace"), time.monotonic())
