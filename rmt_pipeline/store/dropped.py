"""Ranges of blocks that were dropped, noted on the disk beside a table's parts.

If a directory has the name of a part in a dropped range, and ZooKeeper does not promise that part,
then it was dropped and may be removed: after a crash, after a reader has unpinned it, or when a
slow process has put it there late.
"""

from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.store import layout
from rmt_pipeline.store.disk import Disk


class DroppedRanges:
    """The dropped ranges of the table in the directory `root`.

    Each is an empty directory, so it is there or not, never in part. Several processes may use them
    at once.
    """

    def __init__(self, disk: Disk, root: str, *, durable: bool) -> None:
        self._disk = disk
        self._root = root
        self._durable = durable

    def note(self, part_range: PartName) -> None:
        """Note a range; do nothing if it is noted. It survives a crash of the host.

        The table's directory is not made again: in it the note would apply to the parts of the next
        table at this place. Raises FileNotFoundError if it is gone.
        """
        self._disk.make_directory(self._path(part_range), parents=False)
        if self._durable:
            self._disk.fsync_directory(self._root)

    def ranges(self) -> list[PartName]:
        """The ranges that are noted, sorted."""
        found = (layout.parse_dropped(name) for name in self._disk.list(self._root))
        return sorted(one for one in found if one is not None)

    def noted_s(self, part_range: PartName) -> float | None:
        """When the range was noted (seconds since the epoch); None if it is not."""
        return self._disk.modified_s(self._path(part_range))

    def forget(self, part_range: PartName) -> None:
        """Remove the note of a range of which no part is left; do nothing if there is none. A crash
        of the host does not bring it back: in a table that is made again from the disks of other
        replicas, other parts may get these numbers.
        """
        self._disk.remove_tree(self._path(part_range))
        if self._durable:
            self._disk.fsync_directory(self._root)

    def _path(self, part_range: PartName) -> str:
        return layout.join(self._root, layout.dropped(part_range))
