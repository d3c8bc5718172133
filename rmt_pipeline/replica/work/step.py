"""The results of looking at the queue and of carrying out what was claimed."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.store.part_log import PartEvent, PartEventType


@dataclass(frozen=True, slots=True)
class PartDone:
    """One queue entry that was carried out, or tried in vain (`error`). Times are in seconds. For a
    drop `part` is the range, and `sources` are the active parts that were removed.

    `came`: the parts that a replacement brings to all replicas, by their first names. `about`:
    parts that a command was about and that were neither added nor removed, such as frozen ones.
    `detaches`: the removed parts are in `detached/` now.

    `rows` and `size_bytes` are the part's; `rows_in` and `bytes_in` those of the sources that it
    was made of here. `asked_by`: the account that asked for a command. `differs`: the part that was
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
"""The part log's events by the kind of work. A failed entry has the kind that it has in the log."""


def events_of(parts: Iterable[PartDone], now_s: float, run_id: str = "") -> Iterator[PartEvent]:
    """Rows of `system.part_log` for these entries, done by this Dagster run; a drop gives one for
    each part that was removed.
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
        else:
            for part in done.sources:
                yield PartEvent("RemovePart", str(part), now_s, done.seconds, run_id=run_id)


@dataclass(frozen=True, slots=True)
class Swept:
    """What an entry about a range did: the active parts that were removed, with their rows and
    bytes, and the rows and bytes that came in their place. `is_claimed`: the entry was gone
    already, and our claim of it may still exist.
    """

    gone: tuple[PartName, ...] = ()
    rows_gone: int = 0
    bytes_gone: int = 0
    rows: int = 0
    size_bytes: int = 0
    is_claimed: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """What one cycle did; `waiting` are pairs (queue node, reason) of entries that do not run yet.

    `next_retry_s` is the number of seconds until a failed entry may be tried again. `left` counts
    entries that wait for anything else: for entries that others are carrying out, for slots, for
    time. No watch may tell when they can run.
    """

    done: tuple[PartDone, ...] = ()
    finished_without_work: int = 0
    waiting: tuple[tuple[str, str], ...] = ()
    next_retry_s: float | None = None
    left: int = 0

    @property
    def did_something(self) -> bool:
        return bool(self.done) or self.finished_without_work > 0
