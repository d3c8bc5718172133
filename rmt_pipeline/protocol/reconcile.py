"""What a replica does at its start about differences between its disk and ZooKeeper (spec §11.2
item 4, claim P24).

ZooKeeper is right. A part that is promised in `R/parts` and not on the disk is fetched. A part that
is on the disk and not promised is set aside, and not promised now: it may have been dropped, or
merged in a way that other replicas did not see. If many rows would be set aside, this may be the
wrong disk or the wrong path in ZooKeeper, and a person has to decide.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet


@dataclass(frozen=True, slots=True)
class LocalPart:
    """A part on this disk that could be loaded, and how many rows it has. `is_copy`: it was copied
    whole from another part, as by ATTACH PARTITION FROM, and has the level of that part.
    """

    part: PartName
    rows: int
    is_copy: bool = False


@dataclass(frozen=True, slots=True)
class SetAside:
    """Move `part` to `detached/ignored_…`, for `reason`. If `harmless`, its presence is explained,
    and does not suggest that this is the wrong disk.
    """

    part: PartName
    rows: int
    harmless: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What is to be done about each part.

    * `fetch`: promised and not on the disk: queue a fetch;
    * `forget`: promised and not on the disk, but a larger promised part covers it: remove its node;
    * `set_aside`: on the disk and not promised;
    * `remove`: on the disk, not promised, and dropped;
    * `refusal`: why the table must not start unless forced, if too many rows are unexpected.
    """

    fetch: tuple[PartName, ...]
    forget: tuple[PartName, ...]
    set_aside: tuple[SetAside, ...]
    remove: tuple[PartName, ...]
    refusal: str | None


def reconcile(
    local: Iterable[LocalPart],
    promised: Iterable[PartName],
    queued: Mapping[PartName, str],
    *,
    dropped: Collection[PartName] = (),
    wrong_rows_ratio_max: float,
    force: bool = False,
) -> Reconciliation:
    """Compare the parts on disk with `R/parts`. The caller leaves out parts that another process of
    this host is publishing.

    * `promised`: the names in `R/parts`, covered ones too.
    * `queued`: parts that the queue will bring, each with its queue node.
    * `dropped`: ranges and parts that drops have removed from this replica. A directory that is
      left of them on the disk is no part any more (spec §16.5 D6).
    * `wrong_rows_ratio_max`: the share of all rows that may be in unexpected parts without a
      harmless explanation (replicated_max_ratio_of_wrong_parts). `force`: any share may.

    Harmless explanations for an unexpected part: a promised part on the disk covers it (it was
    merged, and its directory outlived its node); it has no rows; an empty unexpected part covers it
    (a drop); its sources are promised and on the disk, or the queue will bring it (a merge or fetch
    died between the rename and ZooKeeper); or it was just written (level 0, or a copy) and never
    announced.
    """
    by_name = {one.part: one for one in local}
    names = frozenset(promised)
    expected = PartSet(names)
    here = PartSet(part for part in by_name if part in names)
    unknown = sorted(part for part in by_name if part not in names)
    gone = [part for part in unknown if any(one.contains(part) for one in dropped)]
    unexpected = [part for part in unknown if part not in gone]
    empty = [part for part in unexpected if by_name[part].rows == 0]
    set_aside = [
        _explained(by_name[part], expected, here, empty, queued) for part in unexpected
    ]
    wrong_rows = sum(one.rows for one in set_aside if not one.harmless)
    all_rows = sum(by_name[part].rows for part in here) + wrong_rows
    refusal = None
    if not force and wrong_rows > wrong_rows_ratio_max * all_rows:
        refusal = (
            f"{wrong_rows} of {all_rows} rows are in parts that ZooKeeper does not know, for "
            f"instance {next(one.part for one in set_aside if not one.harmless)}: "
            "is this the right disk, and the right path in ZooKeeper? To start all the same, and "
            "set them aside in detached/: rmt force-restore-data"
        )
    return Reconciliation(
        fetch=tuple(part for part in expected if here.containing(part) is None),
        forget=tuple(
            sorted(part for part in names if part not in by_name and part not in expected)
        ),
        set_aside=tuple(set_aside),
        remove=tuple(gone),
        refusal=refusal,
    )


def _explained(
    local: LocalPart,
    promised: PartSet,
    here: PartSet,
    empty: Iterable[PartName],
    queued: Mapping[PartName, str],
) -> SetAside:
    part = local.part
    made_of = promised.intersecting(part)
    harmless, reason = False, "ZooKeeper does not know it, and nothing here explains it"
    covering = here.containing(part)
    node = queued.get(part)
    dropped_by = next((one for one in empty if one.contains(part)), None)
    if covering is not None:
        harmless, reason = True, f"{covering}, which is promised and here, covers it"
    elif local.rows == 0:
        harmless, reason = True, "it has no rows"
    elif dropped_by is not None:
        harmless, reason = True, f"the empty part {dropped_by} covers it: it was dropped"
    elif made_of and all(part.contains(source) and source in here for source in made_of):
        harmless, reason = True, f"its sources ({made_of[0]}, …) are promised and here"
    elif node is not None:
        harmless, reason = True, f"it was never announced, and {node} will bring it"
    elif (part.level == 0 or local.is_copy) and part.mutation == 0:
        harmless, reason = True, "it was just written, and never announced"
    return SetAside(part, local.rows, harmless, reason)
