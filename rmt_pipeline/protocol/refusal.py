"""A refusal carries its reason: the same text for the operator, the log and the tests."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something may not be done now; `reason` says why, naming parts and entries."""

    reason: str

    def __post_init__(self) -> None:
        assert self.reason, "a refusal has a reason"


@dataclass(frozen=True, slots=True)
class ReadOnlyReason:
    """Why a replica takes no writes now, as its server says, or why its server says nothing."""

    words: str
    needs_somebody: bool = False
    """Nothing will change until a person does something about it: waiting is in vain."""
