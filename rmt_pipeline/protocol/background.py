"""The background work that a server does for its tables, and that can be stopped with
SYSTEM STOP.
"""

from collections.abc import Collection
from enum import Enum


class Background(Enum):
    """The kinds of background work that SYSTEM STOP and SYSTEM START can name."""

    MERGES = "MERGES"
    TTL_MERGES = "TTL MERGES"
    MOVES = "MOVES"
    FETCHES = "FETCHES"
    REPLICATED_SENDS = "REPLICATED SENDS"
    REPLICATION_QUEUES = "REPLICATION QUEUES"
    PULLING_REPLICATION_LOG = "PULLING REPLICATION LOG"
    CLEANUP = "CLEANUP"


def stopped_words(what: Background) -> str:
    """The reason, for people, why a kind of background work is not done: it was stopped by hand.
    The statement that starts it again is in it.
    """
    return (
        f"{what.value} are stopped by hand on this server"
        if what.value.endswith("S")
        else f"{what.value} is stopped by hand on this server"
    ) + f" (SYSTEM START {what.value})"


def first_stopped(stopped: Collection[Background], *needed: Background) -> str | None:
    """Why work that needs all of `needed` is not done: the first one of these that is stopped, in
    words; None if none is.
    """
    return next((stopped_words(one) for one in needed if one in stopped), None)
