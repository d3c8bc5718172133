"""What a replica asks of its peers: a part's bytes. The HTTP adapter is in `exchange`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.protocol.nodes.formats import ReplicaAddress
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.store.staging import StagedPart


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Get `part` from the replica whose ZooKeeper path is `endpoint`, at `address`. One that
    `recovers` what is lost or cloned leaves slots to those of what is inserted meanwhile.
    """

    address: ReplicaAddress
    endpoint: str
    part: PartName
    recovers: bool = False


Fetched = tuple[FetchRequest, StagedPart | RmtError]
"""A request with its staged part, or with the error that it failed with."""


class Peers(Protocol):
    """Other replicas, as far as parts are fetched from them."""

    def fetch(
        self, requests: Sequence[FetchRequest], store: PartStore
    ) -> Iterator[Sequence[Fetched]]:
        """What became of the requests, as they finish: each time all that have finished since, so
        that what came together can be published together.

        The bytes are verified against the manifest that came with them; a failed request leaves
        nothing in the store. Several may run at once.
        """
        ...
