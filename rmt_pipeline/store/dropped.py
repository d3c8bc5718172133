"""Ranges of blocks that were dropped, noted beside a table's parts.

Whoever finds a directory with a name inside, which nobody promises, knows that it was dropped, and
may remove it: after a crash, after a reader let go of it, or when somebody slow has put it there.
"""

from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.store import layout
from rmt_pipeline.store.disk import Disk


class DroppedRanges:
    """Each is an empty directory, made at once and for good. Any number of processes may use it."""

    def __init__(self, disk: Disk, root: str, *, durable: bool) -> None:
        self._disk = disk
        self._root = root
        self._durable = durable

    def note(self, part_range: PartName) -> None:
        """Idempotent; survives a crash of the host from now on. Raises FileNotFoundError when the
        table's directory is gone: it would say so of parts of the next one that has its place.
        """
        self._disk.make_directory(self._path(part_range), parents=False)
        if self._durable:
            self._disk.fsync_directory(self._root)

    def ranges(self) -> list[PartName]:
        """Sorted."""
        found = (layout.parse_dropped(name) for name in self._disk.list(self._root))
        return sorted(one for one in found if one is not None)

    def noted_s(self, part_range: PartName) -> float | None:
        """When (seconds since the epoch); None when it is not noted."""
        return self._disk.modified_s(self._path(part_range))

    def forget(self, part_range: PartName) -> None:
        """Nothing of it is left. Idempotent."""
        self._disk.remove_tree(self._path(part_range))

    def _path(self, part_range: PartName) -> str:
        return layout.join(self._root, layout.dropped(part_range))
