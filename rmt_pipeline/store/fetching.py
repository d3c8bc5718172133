"""Parts that FETCH PARTITION and FETCH PART bring into `detached/` (spec §9.8).

    tmp_fetch_… ──keep──► detached/tmp-fetch_<part> ──settle──► the note ──► detached/<part>

fetching/<partition>    a file that the fetching process holds locked; its content is the note

1. No part gets a name that ATTACH takes until the note names all fetched parts and is synced. If
   the process dies before, the next FETCH begins with the parts that are kept, unless DROP DETACHED
   removes them.
2. Once the note is synced the FETCH has happened: the next FETCH or ATTACH first gives the
   remaining parts their names. So ATTACH never takes only some of the parts that were fetched.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from rmt_pipeline.protocol.errors import Conflict, Corruption
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.store import layout
from rmt_pipeline.store.layout import DetachedName
from rmt_pipeline.store.manifest import Manifest, seal_json, unseal_json
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.store.staging import StagedPart, Staging, make_in_table


class FetchIsRunning(Conflict):
    """Another FETCH of this partition is running. Nothing was changed."""


class SettledFetch(NamedTuple):
    """The parts that a FETCH has brought, and the ZooKeeper path of the table they come from. With
    `is_one` one part was asked for, else all of the partition.
    """

    path: str
    parts: tuple[PartName, ...]
    is_one: bool = False


class Fetching:
    """The FETCH of one partition of a table, while its lock is held (see `fetching`)."""

    def __init__(self, store: PartStore, partition: str) -> None:
        self._store = store
        self._partition = partition
        self._note = layout.join(store.root, layout.FETCHING, partition)
        self._whole: dict[PartName, Manifest] | None = None

    def begun(self) -> dict[PartName, Manifest]:
        """The parts that are kept already, with their manifests.

        Parts that an earlier try has left are read once, every byte, and removed if they are not
        whole. Parts that arrive now were compared with their hashes on their way.
        """
        if self._whole is None:
            self._whole = {}
            for name in self._kept():
                try:
                    self._whole[name.part] = self._store.detached_parts.verify(name)
                except Corruption:
                    self._store.detached_parts.remove(name)
        there = {name.part for name in self._kept()}  # a DROP DETACHED may have removed some
        self._whole = {part: one for part, one in self._whole.items() if part in there}
        return dict(self._whole)

    def keep(self, staged: StagedPart, part: PartName, manifest: Manifest) -> None:
        """Keep a part that has arrived. `manifest`, of the same files, replaces the one that it
        came with.
        """
        store = self._store
        again = Staging(store.disk, store.root, staged.directory).seal(manifest)
        store.set_aside_safely(again, part, "tmp-fetch")
        if self._whole is not None:
            self._whole[part] = manifest

    def forget(self, part: PartName) -> None:
        """Remove a part that is kept; do nothing if there is none."""
        if self._whole is not None:
            self._whole.pop(part, None)
        for name in self._kept():
            if name.part == part:
                self._store.detached_parts.remove(name)

    def settle(self, path: str, *, is_one: bool) -> SettledFetch:
        """End the FETCH: write the note, and give all parts that are kept their own names. Raises
        Conflict if some of them are gone.
        """
        parts = sorted({name.part for name in self._kept()})
        gone = ", ".join(str(part) for part in self._whole or () if part not in parts)
        if gone:
            raise Conflict(
                f"{gone} was removed from {layout.DETACHED}/ while the FETCH ran (DROP DETACHED?). "
                "What else has arrived is kept: repeat the FETCH"
            )
        names = [str(part) for part in parts]
        text = seal_json({"path": path, "parts": names, "is_one": is_one})
        self._store.disk.write(self._note, [text])
        self._store.sync_file(self._note)
        settled = self.finish()
        assert settled is not None
        return settled

    def finish(self) -> SettledFetch | None:
        """Give the parts of a FETCH that is noted their names, and clear the note. Return what was
        noted; None if nothing was.
        """
        noted = self._noted()
        if noted is None:
            return None
        for part in noted.parts:
            # A part that is not there under this name was renamed before.
            self._store.detached_parts.rename(DetachedName("tmp-fetch", part), "")
        self._store.disk.write(self._note, [])
        self._store.sync_file(self._note)
        return noted

    def _noted(self) -> SettledFetch | None:
        data = self._store.disk.read(self._note) or b""
        if not data:
            return None
        try:
            raw = unseal_json(data, self._note)
            parts = tuple(PartName.parse(str(name)) for name in raw["parts"])
            return SettledFetch(str(raw["path"]), parts, bool(raw.get("is_one")))
        except (Corruption, ValueError, KeyError, TypeError):
            return None  # torn: the process that wrote it died before it was synced

    def _kept(self) -> list[DetachedName]:
        return [
            one
            for one in self._store.detached_parts.names()
            if one.reason == "tmp-fetch" and one.part.partition == self._partition
        ]


@contextmanager
def fetching(store: PartStore, partition: str) -> Iterator[Fetching]:
    """Lock the partition for a FETCH, while the context is open. Raises FetchIsRunning, MissingPart
    if the table was dropped.
    """
    make_in_table(store.disk, store.root, layout.FETCHING)
    directory = layout.join(store.root, layout.FETCHING)
    path = layout.join(directory, partition)
    store.disk.append(path, b"")
    lock = store.disk.lock(path, shared=False)
    if lock is None:
        raise FetchIsRunning(
            f"another FETCH of partition {partition} runs on this server: "
            f"{store.disk.local_path(path)} is locked. Wait for it, then look at "
            "system.detached_parts"
        )
    try:
        yield Fetching(store, partition)
    finally:
        lock.release()


def finish_fetches(store: PartStore) -> None:
    """Finish each FETCH of the table that is noted. ATTACH calls this first, so that it finds all
    parts of a FETCH or none.
    """
    for partition in store.disk.list(layout.join(store.root, layout.FETCHING)):
        try:
            with fetching(store, partition) as held:
                held.finish()
        except FetchIsRunning:
            continue  # it renames the parts itself, or is not that far
