"""`Peers` over the part exchange: several fetches at once, each with bounded memory (spec §12)."""

from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from rmt_pipeline.exchange.client import PartClient
from rmt_pipeline.exchange.peers import Fetched, FetchRequest
from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.store.staging import StagedPart


class HttpPeers:
    """Owns its threads; `close` ends them."""

    def __init__(self, client: PartClient, *, at_once_max: int = limits.FETCHES_MAX) -> None:
        self._client = client
        self._pool = ThreadPoolExecutor(at_once_max, thread_name_prefix="fetch")

    def fetch(
        self, requests: Sequence[FetchRequest], store: PartStore
    ) -> Iterator[Sequence[Fetched]]:
        if len(requests) == 1:  # the usual case on a quiet table: no thread, no hand-over
            yield [(requests[0], self._fetch(requests[0], store))]
            return
        futures: dict[Future[StagedPart | RmtError], FetchRequest] = {
            self._pool.submit(self._fetch, request, store): request for request in requests
        }
        try:
            left = set(futures)
            while left:
                done, left = wait(left, return_when=FIRST_COMPLETED)
                yield [(futures[future], future.result()) for future in done]
        finally:  # nobody waits for the others any more
            for future in futures:
                future.cancel()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._client.connections.close()

    def _fetch(self, request: FetchRequest, store: PartStore) -> StagedPart | RmtError:
        try:
            return self._client.fetch(request.address, request.endpoint, request.part, store)
        except RmtError as error:
            return error
