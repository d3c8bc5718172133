"""Small parts for tests of the store: any bytes as data, a manifest that fits them."""

import hashlib

from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.store.layout import StageKind
from rmt_pipeline.store.manifest import KeyBound, Manifest, PartColumn, PartFile
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.store.staging import StagedPart


class CountedIds:
    """Ids 1, 2, 3, …: the same in every run."""

    def __init__(self) -> None:
        self._last = 0

    def new_id(self) -> str:
        self._last += 1
        return f"{self._last:032x}"


def manifest_of(files: dict[str, bytes], partition: str = "all", content: int = 9) -> Manifest:
    return Manifest(
        columns=(PartColumn("n", "UInt64"),),
        rows=3,
        bytes_on_disk=sum(map(len, files.values())),
        partition_id=partition,
        partition="tuple()",
        key_bounds=(KeyBound("n", 1, 3),),
        files=tuple(
            PartFile(name, len(data), hashlib.sha256(data).hexdigest())
            for name, data in files.items()
        ),
        row_hash=7,
        column_hashes={"n": 8},
        content_hash=content,
        created_s=1,
    )


def stage_bytes(
    store: PartStore, data: bytes = b"rows", content: int = 9, partition: str = "all"
) -> StagedPart:
    staging = store.begin("insert", partition)
    staging.write("data-00000.parquet", data)
    return staging.seal(manifest_of({"data-00000.parquet": data}, partition, content))


def put(store: PartStore, name: str, data: bytes = b"rows") -> PartName:
    part = PartName.parse(name)
    store.publish(stage_bytes(store, data, partition=part.partition), part)
    return part


def clone(store: PartStore, part: PartName, kind: StageKind, hint: str) -> StagedPart:
    """The same rows as `part`, staged again under another name."""
    return store.clone_into(store.begin(kind, hint), part, store.manifest(part))
