"""How many replicas an insert waits for (spec §2.7)."""

from dataclasses import dataclass
from typing import Self

from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.settings.setting import BadSetting

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Quorum:
    """What an insert asks for. `replicas` None: the majority of those that there are; 1: whoever
    inserts has the rows. One that is not parallel is the only one of its table that waits.
    """

    replicas: int | None = 1
    is_parallel: bool = True
    timeout_s: float = 600.0

    @classmethod
    def of(cls, query: QuerySettings) -> Self:
        """Raises BadSetting for a quorum of nonsense."""
        text = query.insert_quorum
        if text != AUTO and not (text.isascii() and text.isdigit()):
            raise BadSetting(
                f"insert_quorum = {text!r} is neither a number of replicas nor {AUTO}"
            )
        replicas = None if text == AUTO else max(1, int(text))
        return cls(replicas, query.insert_quorum_parallel, query.insert_quorum_timeout / 1000)

    def required(self, replicas: int) -> int:
        """Of so many replicas that the table has."""
        return replicas // 2 + 1 if self.replicas is None else self.replicas
