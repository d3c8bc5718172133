"""Directories set aside under `detached/`, where nothing is removed automatically (spec §9.12)."""

from rmt_pipeline.protocol.errors import MissingPart, UserError
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.store import layout
from rmt_pipeline.store.disk import Disk


def set_aside(
    disk: Disk, root: str, directory: str, part: PartName, reason: layout.DetachReason
) -> str:
    """Rename `directory` to the first free name for this part and reason; the new name.

    Both names are within the table's directory `root`. Nothing is synced. Raises MissingPart;
    UserError when there are ten copies already.
    """
    disk.make_directory(layout.join(root, layout.DETACHED))
    for copy in range(layout.DETACHED_COPIES_MAX):
        target = layout.join(layout.DETACHED, str(layout.DetachedName(reason, part, copy)))
        try:
            disk.rename(layout.join(root, directory), layout.join(root, target))
        except FileExistsError:
            continue
        except FileNotFoundError:
            raise MissingPart(f"{layout.join(root, directory)} is not on disk") from None
        return target
    first = layout.join(root, layout.DETACHED, str(layout.DetachedName(reason, part)))
    raise UserError(
        f"{first} exists {layout.DETACHED_COPIES_MAX} times; look at the copies and remove those "
        "that are not needed"
    )


def copy_of(disk: Disk, root: str, part: PartName, reason: layout.DetachReason) -> str | None:
    """The name that a part's copy would get first, when it is there and says the same of its rows;
    else None.
    """
    target = layout.join(layout.DETACHED, str(layout.DetachedName(reason, part)))
    mine, theirs = (
        disk.read(layout.join(root, name, layout.MANIFEST)) for name in (str(part), target)
    )
    return target if mine is not None and mine == theirs else None
