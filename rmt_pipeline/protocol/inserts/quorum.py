"""How many replicas an insert waits for (spec §2.7)."""

from dataclasses import dataclass
from typing import Self

from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.settings.setting import BadSetting

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Quorum:
    """The quorum that an insert asks for.

    `replicas` is how many must have the rows: 1 is the inserting replica alone, None the majority
    of the table's replicas. If not `is_parallel`, only one insert of the table waits at a time.
    """

    replicas: int | None = 1
    is_parallel: bool = True
    timeout_s: float = 600.0

    @classmethod
    def of(cls, query: QuerySettings) -> Self:
        """The quorum of a statement's settings. Raises BadSetting if `insert_quorum` is neither a
        number nor `auto`.
        """
        text = query.insert_quorum
        if text != AUTO and not (text.isascii() and text.isdigit()):
            raise BadSetting(
                f"insert_quorum = {text!r} is neither a number of replicas nor {AUTO}"
            )
        replicas = None if text == AUTO else max(1, int(text))
        return cls(replicas, query.insert_quorum_parallel, query.insert_quorum_timeout / 1000)

    def required(self, replicas: int) -> int:
        """How many replicas must have the rows, if the table has so many `replicas`."""
        return replicas // 2 + 1 if self.replicas is None else self.replicas
