"""Ports for servers of tests and benchmarks."""

import socket

from rmt_pipeline.processes.server import family_of


def free_port(address: str = "127.0.0.1") -> int:
    """A port that nothing listens on now. Somebody may take it before you do."""
    with socket.socket(family_of(address), socket.SOCK_STREAM) as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port
