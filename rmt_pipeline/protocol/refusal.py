"""Refusals: decisions that something may not be done, with the reason as data. The operator, the
log and the tests see the same text.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something may not be done now; `reason` says why, naming parts and entries."""

    reason: str

    def __post_init__(self) -> None:
        assert self.reason, "a refusal has a reason"


@dataclass(frozen=True, slots=True)
class ReadOnlyReason:
    """Why a replica takes no writes now, as its server says, or why the server could
    not be asked.
    """

    words: str
    needs_somebody: bool = False
    """Whether a person must do something about it, so that waiting is of no use."""
