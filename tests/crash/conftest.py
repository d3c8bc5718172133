"""What every crash test has: a disk that nobody waits for."""

import os
from collections.abc import Iterator

import pytest

from tests.crash.nursery import Nursery


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    opened = Nursery()
    yield opened
    opened.close()
