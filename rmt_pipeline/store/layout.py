"""Makes and parses the names of directories and files in a table's data directory.

<part name>/                          a published part
    data-00000.parquet …              its rows in key order
    part.json                         the manifest, written last
    whole                             a note that its bytes were compared with their hashes, if any
tmp_<kind>_<hint>_<attempt>/          staged: not published yet, or never
    fetching                          a note on a fetch; locked by the process that fetches
    stop                              why the process that fills the directory is to stop
delete_tmp_<part name>/               being removed
moved_tmp_<part name>_<attempt>/      could not be locked: looked at, then removed or put back
was_dropped_<range>/                  empty: parts inside that are not promised may be removed
detached/<reason>_<part name>[_tryN]  set aside, never removed automatically (spec §9.12)
    attaching                         locked by the process that attaches the part
fetching/<partition>                  locked while a FETCH brings parts of it to detached/
active_seen                           the active parts, as the server listed them last
log_seen                              how many entries the log had when that was last noted
replicas_seen                         the table's replicas when they were last noted
in_part/<insert id>.<commit>.<hash>   what this commit of a large insert puts into the table
events, errors, postponed             counts of the host's processes, for users
part_log, part_log.before             events of parts (`system.part_log`): the newer, the older ones
stopped/<name>/                       empty: background work that was stopped by hand
given_up/<part name>/                 a broken, missing or cloned part, until it is fetched again
    promise                           its header then; empty once its files were looked at again
"""

import re
from dataclasses import dataclass
from typing import Literal, get_args

from rmt_pipeline.protocol.parts.name import PartName

MANIFEST = "part.json"
FETCHING = "fetching"
ATTACHING = "attaching"
ATTEMPT = "attempt"
WHOLE = "whole"
GIVEN_UP = "given_up"
PROMISE = "promise"
LOG_SEEN = "log_seen"
ACTIVE_SEEN = "active_seen"
REPLICAS_SEEN = "replicas_seen"
IN_PART = "in_part"
STOPPED = "stopped"
PART_LOG = "part_log"
PART_LOG_BEFORE = "part_log.before"
EVENTS = "events"
ERRORS = "errors"
POSTPONED = "postponed"
DETACHED = "detached"
DETACHED_COPIES_MAX = 10
STOP = "stop"

StageKind = Literal["insert", "merge", "mutate", "fetch", "attach", "replace"]
STAGE_KINDS: tuple[StageKind, ...] = get_args(StageKind)

DetachReason = Literal[
    "broken",
    "broken-on-start",
    "unexpected",
    "ignored",
    "noquorum",
    "clone",
    "covered-by-broken",
    "merge-not-byte-identical",
    "mutate-not-byte-identical",
    "rows-do-not-add-up",
    "tmp-fetch",
    "attaching",
    "deleting",
    "inactive",
    "",  # last: `broken_1_2_3_4` is part 1_2_3_4, not a part of a partition "broken"
]
DETACH_REASONS: tuple[DetachReason, ...] = get_args(DetachReason)

TEMPORARY = "tmp_"
"""Is in the names of staged directories, and of those that are moved or being removed."""
_STAGED = re.compile(
    rf"tmp_({'|'.join(STAGE_KINDS)})_([A-Za-z0-9_-]+)_([0-9a-f]{{32}})", re.ASCII
)
_DELETING = "delete_tmp_"
_MOVED = re.compile(r"moved_tmp_(.+)_[0-9a-f]{32}", re.ASCII)
_DROPPED = "was_dropped_"
_TRY = re.compile(r"(.+)_try([1-9])", re.ASCII)


@dataclass(frozen=True, slots=True)
class StagedName:
    """The name of a staging directory: `hint` is a part or partition, `attempt` is unique."""

    kind: StageKind
    hint: str
    attempt: str

    def __post_init__(self) -> None:
        assert _STAGED.fullmatch(str(self)), f"{self} is not a name for staged data"

    def __str__(self) -> str:
        return f"tmp_{self.kind}_{self.hint}_{self.attempt}"


@dataclass(frozen=True, slots=True)
class DetachedName:
    """The name of a detached part: why it was set aside, and which copy it is (0 is the first)."""

    reason: DetachReason
    part: PartName
    copy: int = 0

    def __str__(self) -> str:
        prefix = f"{self.reason}_" if self.reason else ""
        return f"{prefix}{self.part}" + (f"_try{self.copy}" if self.copy else "")


def join(*names: str) -> str:
    """Join names to a path on a disk, leaving out empty ones; "" is the disk's root."""
    return "/".join(filter(None, names))


def data_file(number: int) -> str:
    """The name of a part's n-th file with rows: `data-00000.parquet`."""
    assert 0 <= number < 100_000
    return f"data-{number:05d}.parquet"


def data_file_number(path: str) -> int:
    """The inverse of `data_file`, for a path. Numbers may have gaps, of units without rows."""
    return int(path.rpartition("data-")[2].removesuffix(".parquet"))


def deleting(part: PartName | str) -> str:
    """The name of a part, or of a staging directory, while it is being removed."""
    return f"{_DELETING}{part}"


def is_deleting(name: str) -> bool:
    """Whether the directory is being removed, or was when its process died: `delete_tmp_…`."""
    return name.startswith(_DELETING)


def moved(part: PartName, attempt: str) -> str:
    """The name of a part's directory that could not be locked, while it is looked at."""
    name = f"moved_tmp_{part}_{attempt}"
    assert _MOVED.fullmatch(name), f"{name} is not a name for what was moved"
    return name


def parse_moved(name: str) -> PartName | None:
    """The inverse of `moved`: the part; None for any other name."""
    match = _MOVED.fullmatch(name)
    return None if match is None else PartName.try_parse(match[1])


def dropped(part_range: PartName) -> str:
    """The name of the directory that says that everything in these blocks was dropped."""
    return f"{_DROPPED}{part_range}"


def parse_dropped(name: str) -> PartName | None:
    """The inverse of `dropped`: the range; None for any other name."""
    if not name.startswith(_DROPPED):
        return None
    return PartName.try_parse(name.removeprefix(_DROPPED))


def parse_staged(name: str) -> StagedName | None:
    """The inverse of `str(StagedName)`; None for any other name."""
    match = _STAGED.fullmatch(name)
    if match is None:
        return None
    kind = next(kind for kind in STAGE_KINDS if kind == match[1])
    return StagedName(kind, match[2], match[3])


def parse_detached(name: str) -> DetachedName | None:
    """The inverse of `str(DetachedName)`; None for any other name."""
    copied = _TRY.fullmatch(name)
    stem, copy = (copied[1], int(copied[2])) if copied else (name, 0)
    for reason in DETACH_REASONS:
        prefix = f"{reason}_" if reason else ""
        part = (
            PartName.try_parse(stem.removeprefix(prefix)) if stem.startswith(prefix) else None
        )
        if part is not None:
            return DetachedName(reason, part, copy)
    return None
