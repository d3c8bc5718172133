"""Fetched parts on their way into `detached/`: FETCH PARTITION and PART (spec §9.8).

    tmp_fetch_… ──keep──► detached/tmp-fetch_<part> ──settle──► the note ──► detached/<part>

fetching/<partition>    locked by whoever fetches; what is in it is the note

1. Nothing has a name that ATTACH takes until the note names all that was fetched, and is safe. Who
   dies before leaves parts that the next FETCH begins with, or DROP DETACHED removes.
2. From then on it has happened: whoever comes next, FETCH or ATTACH, gives the rest their names
   first. So nobody ever attaches half of what was fetched.
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
from rmt_pipeline.store.staging import StagedPart, Staging


class FetchIsRunning(Conflict):
    """Another FETCH of this partition has not ended. Nothing was changed."""


class SettledFetch(NamedTuple):
    """What a FETCH has brought, and from where."""

    path: str
    parts: tuple[PartName, ...]


class Fetching:
    """One partition of a table, while this is held."""

    def __init__(self, store: PartStore, partition: str) -> None:
        self._store = store
        self._partition = partition
        self._note = layout.join(store.root, layout.FETCHING, partition)
        self._whole: dict[PartName, Manifest] | None = None

    def begun(self) -> dict[PartName, Manifest]:
        """What is kept. Of what earlier tries have left every byte is read, once; what is not whole
        is removed. What arrives was compared with its hashes on its way.
        """
        if self._whole is None:
            self._whole = {}
            for name in self._kept():
                try:
                    self._whole[name.part] = self._store.detached_parts.verify(name)
                except Corruption:
                    self._store.detached_parts.remove(name)
        there = {name.part for name in self._kept()}  # a DROP DETACHED takes what it likes
        self._whole = {part: one for part, one in self._whole.items() if part in there}
        return dict(self._whole)

    def keep(self, staged: StagedPart, part: PartName, manifest: Manifest) -> None:
        """A part that has arrived; `manifest` tells its story here (same files)."""
        store = self._store
        again = Staging(store.disk, store.root, staged.directory).seal(manifest)
        store.set_aside_safely(again, part, "tmp-fetch")
        if self._whole is not None:
            self._whole[part] = manifest

    def forget(self, part: PartName) -> None:
        if self._whole is not None:
            self._whole.pop(part, None)
        for name in self._kept():
            if name.part == part:
                self._store.detached_parts.remove(name)

    def settle(self, path: str) -> SettledFetch:
        """All that was kept gets its own name. Raises Conflict when some of it is gone."""
        parts = sorted({name.part for name in self._kept()})
        gone = ", ".join(str(part) for part in self._whole or () if part not in parts)
        if gone:
            raise Conflict(
                f"{gone} was removed from {layout.DETACHED}/ while the FETCH ran (DROP DETACHED?). "
                "What else has arrived is kept: say it again"
            )
        text = seal_json({"path": path, "parts": [str(part) for part in parts]})
        self._store.disk.write(self._note, [text])
        self._store.sync_file(self._note)
        settled = self.finish()
        assert settled is not None
        return settled

    def finish(self) -> SettledFetch | None:
        """What an earlier FETCH has settled, and did not get to the end of."""
        noted = self._noted()
        if noted is None:
            return None
        for part in noted.parts:
            # One that is not there has its name, from before.
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
            return SettledFetch(str(raw["path"]), parts)
        except (Corruption, ValueError, KeyError, TypeError):
            return None  # torn: who wrote it died before it was safe

    def _kept(self) -> list[DetachedName]:
        return [
            one
            for one in self._store.detached_parts.names()
            if one.reason == "tmp-fetch" and one.part.partition == self._partition
        ]


@contextmanager
def fetching(store: PartStore, partition: str) -> Iterator[Fetching]:
    """Raises FetchIsRunning."""
    directory = layout.join(store.root, layout.FETCHING)
    store.disk.make_directory(directory)
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
    """Whoever attaches what is detached sees all of a FETCH, or nothing."""
    for partition in store.disk.list(layout.join(store.root, layout.FETCHING)):
        try:
            with fetching(store, partition) as held:
                held.finish()
        except FetchIsRunning:
            continue  # it gives the names itself, or has not come so far
