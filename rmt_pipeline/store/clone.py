"""Parts of another table, staged for this one without copying their bytes."""

from dataclasses import replace

from rmt_pipeline.protocol.errors import MissingPart
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.store import layout
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.store.staging import StagedPart


def clone_from(
    store: PartStore, other: PartStore, part: PartName, manifest: Manifest
) -> StagedPart:
    """The files of the `other` table's part, staged in `store`: hard links where the disks allow
    it, else copies. `manifest` tells their story there. Whoever asks has the part pinned.

    Raises MissingPart when a file is gone, DiskFull.
    """
    staging = store.begin("replace", str(part))
    try:
        linked = [
            store.disk.link_from(
                other.disk,
                layout.join(other.root, str(part), file.name),
                layout.join(store.root, staging.directory, file.name),
            )
            for file in manifest.files
        ]
        return replace(staging.seal(manifest), is_clone=all(linked))
    except BaseException as error:
        staging.abandon()
        if isinstance(error, FileNotFoundError):
            raise MissingPart(f"{part} has lost a file: {error}", part=part) from error
        raise
