"""What one look at the queue, and what was claimed by it, came to."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.store.part_log import PartEvent, PartEventType


@dataclass(frozen=True, slots=True)
class PartDone:
    """One queue entry carried out, or tried in vain (`error`). Times in seconds. Of a drop
    `part` is the range, and `sources` are the active parts that went.

    `came`: the parts that a replacement brings to all replicas, by their first names. `about`:
    those that a command was about, and that neither came nor went: frozen ones, say. `detaches`:
    what went is in `detached/` now.

    `rows` and `size_bytes` are the part's; `rows_in` and `bytes_in` those of the sources that it
    was made of here. `asked_by`: the account that asked for a command. `differs`: what was
    made is not what another replica has published.
    """

    part: PartName
    kind: str
    rows: int = 0
    size_bytes: int = 0
    rows_in: int = 0
    bytes_in: int = 0
    sources: tuple[PartName, ...] = ()
    came: tuple[PartName, ...] = ()
    about: tuple[PartName, ...] = ()
    detaches: bool = False
    source_replica: str = ""
    entry_id: str = ""
    asked_by: str = ""
    lag_s: float = 0.0
    seconds: float = 0.0
    error: str = ""
    differs: bool = False
    bug: Exception | None = None


_EVENTS: Mapping[str, PartEventType] = {
    "FETCH": "DownloadPart",
    "GET_PART": "DownloadPart",
    "ATTACH_PART": "DownloadPart",
    "MERGE_PARTS": "MergeParts",
    "MUTATE_PART": "MutatePart",
}
"""By what was done; an entry that failed is called as it is in the log."""


def events_of(parts: Iterable[PartDone], now_s: float, run_id: str = "") -> Iterator[PartEvent]:
    """What was done to parts, by this Dagster run, as rows of `system.part_log`; a drop gives one
    for each part that went.
    """
    for done in parts:
        kind = _EVENTS.get(done.kind)
        if kind is not None:
            yield PartEvent(
                kind,
                str(done.part),
                now_s,
                done.seconds,
                done.rows,
                done.size_bytes,
                tuple(map(str, done.sources)),
                done.source_replica,
                run_id=run_id,
                error=done.error,
                differs=done.differs,
            )
        elif not done.error:
            for part in done.sources:
                yield PartEvent("RemovePart", str(part), now_s, done.seconds, run_id=run_id)


@dataclass(frozen=True, slots=True)
class Swept:
    """What an entry about a range did: the active parts that went, with their rows and bytes; and
    those of what came in their place. `is_claimed`: the entry was gone already, and our claim of
    it is held still.
    """

    gone: tuple[PartName, ...] = ()
    rows_gone: int = 0
    bytes_gone: int = 0
    rows: int = 0
    size_bytes: int = 0
    is_claimed: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """What one cycle did; `waiting` are (queue node, reason) of entries that do not run yet.

    `next_retry_s` is when what failed may be tried again. `left` are entries that wait for anything
    else: for what others are at, for slots, for time. No watch may tell when they can run.
    """

    done: tuple[PartDone, ...] = ()
    finished_without_work: int = 0
    waiting: tuple[tuple[str, str], ...] = ()
    next_retry_s: float | None = None
    left: int = 0

    @property
    def did_something(self) -> bool:
        return bool(self.done) or self.finished_without_work > 0
