"""What a server does for its tables by itself, and what can be stopped by hand (SYSTEM STOP)."""

from collections.abc import Collection
from enum import Enum


class Background(Enum):
    """What SYSTEM STOP and SYSTEM START can name."""

    MERGES = "MERGES"
    TTL_MERGES = "TTL MERGES"
    MOVES = "MOVES"
    FETCHES = "FETCHES"
    REPLICATED_SENDS = "REPLICATED SENDS"
    REPLICATION_QUEUES = "REPLICATION QUEUES"
    PULLING_REPLICATION_LOG = "PULLING REPLICATION LOG"
    CLEANUP = "CLEANUP"


def stopped_words(what: Background) -> str:
    """Why a piece of background work is not done: somebody stopped it, and with which statement it
    is started again.
    """
    return (
        f"{what.value} are stopped by hand on this server"
        if what.value.endswith("S")
        else f"{what.value} is stopped by hand on this server"
    ) + f" (SYSTEM START {what.value})"


def first_stopped(stopped: Collection[Background], *needed: Background) -> str | None:
    """The first of the needed ones that is stopped, in words."""
    return next((stopped_words(one) for one in needed if one in stopped), None)
