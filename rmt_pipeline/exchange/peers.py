"""What a replica asks of its peers: the bytes of parts. `exchange.client` does it over HTTP."""

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
    """Fetch `part` from the replica whose ZooKeeper path is `endpoint`, at `address`. With
    `recovers` it is a part that this replica lost or lacks as a clone: some slots are kept free of
    these for parts that are inserted meanwhile.
    """

    address: ReplicaAddress
    endpoint: str
    part: PartName
    recovers: bool = False


Fetched = tuple[FetchRequest, StagedPart | RmtError]
"""A request with its staged part, or with the error by which it failed."""


class Peers(Protocol):
    """The other replicas, as sources of parts."""

    def fetch(
        self, requests: Sequence[FetchRequest], store: PartStore
    ) -> Iterator[Sequence[Fetched]]:
        """Carry out the requests, several at once, and yield their results as they finish: each
        time all that have finished since, so that they can be published together.

        The bytes are verified against the manifest that came with them. A failed request leaves
        nothing in the store.
        """
        ...
