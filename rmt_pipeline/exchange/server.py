"""Sends a server's parts to its peers over HTTP (spec §12). The format is in `wire`.

Every byte is hashed while it is sent and compared with the manifest. If a file does not match, the
answer breaks off before the file's hash, so that no reader can take the part for whole, and the
part is reported as broken. A peer that disconnects or is slow may come again for the rest.
"""

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rmt_pipeline.exchange import wire
from rmt_pipeline.exchange.bandwidth import Bandwidth
from rmt_pipeline.exchange.guard import Admits, guarded
from rmt_pipeline.protocol.errors import Corruption, MissingPart, RmtError, Unavailable
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.store.manifest import Manifest, PartFile
from rmt_pipeline.store.part_store import PartStore

SENDS_MAX = 64  # at the same time, over all tables; further requests are answered with 429
SEND_TIMEOUT_S = 300.0  # of one piece, to a peer that does not read; it loses its slot then
PAUSE_MAX_S = 5.0  # under a limit of bandwidth: a peer gives up who hears nothing for 30 s
SMALL_ANSWER_BYTES = wire.TOGETHER_PART_BYTES_MAX  # verified before the first byte is sent

FindStore = Callable[[str], PartStore | None]
"""The part store of the replica with this ZooKeeper path; None if this server does not have it.

May raise Unavailable while the replica starts, the server stops, or sends are stopped by hand.
Called again before each piece of a large answer.
"""

OnBroken = Callable[[str, PartName, Corruption], None]
"""Called from any thread with a replica's ZooKeeper path, a broken part of it, and the error."""

OnAnswer = Callable[[int, int], None]
"""Called from the event loop's thread with the status and size of each answer that was begun."""


BandwidthOf = Callable[[str], Bandwidth | None]
"""The limit that all answers of the replica with this ZooKeeper path share; None: no limit."""


def _nobody(_status: int, _size: int) -> None:
    """For callers that do not count answers."""


def _any(_endpoint: str) -> None:
    """For servers without a limit of bandwidth."""


class Broken(Exception):
    """Breaks an answer off; uvicorn then closes the connection."""


@dataclass(slots=True)
class Exchange:
    """The state that all requests share."""

    find_store: FindStore
    on_broken: OnBroken
    on_answer: OnAnswer = _nobody
    sends_max: int = SENDS_MAX
    bandwidth_of: BandwidthOf = _any
    send_timeout_s: float = SEND_TIMEOUT_S
    sends: int = field(default=0, init=False)
    """How many answers are being sent. Only the event loop's thread changes it."""

    async def answer(self, request: Request) -> Response:
        response = await self._answer(request)
        self.on_answer(response.status_code, int(response.headers["content-length"]))
        return response

    async def _answer(self, request: Request) -> Response:
        asked = self._asked(request)
        if isinstance(asked, Response):
            return asked
        if self.sends >= self.sends_max:
            return _refusal(429, f"{self.sends} parts are being sent already; try again later")
        self.sends += 1
        outgoing = None
        try:
            endpoint, parts = asked
            rest = _Rest.asked(request)
            outgoing = await run_in_threadpool(self._prepare, endpoint, parts, rest)
        except MissingPart as error:
            if error.part is not None:  # just removed, or promised and lost: have it checked
                await run_in_threadpool(self.report, endpoint, parts[0], error)
            return _refusal(404, str(error))
        except Corruption as error:
            return _refusal(500, f"{parts[0]} is broken here and will be checked: {error}")
        except RmtError as error:
            return _refusal(503, str(error))
        else:
            if not isinstance(outgoing, _Stream):
                outgoing = await self._small(endpoint, parts[0], outgoing)
            return outgoing
        finally:
            if not isinstance(outgoing, _Stream):  # a stream counts until it ends
                self.sends -= 1

    def _asked(self, request: Request) -> tuple[str, tuple[PartName, ...]] | Response:
        """The replica's path and the parts that are asked for, or a refusal."""
        query = request.query_params
        endpoint, text = query.get("endpoint", ""), query.get("part", "")
        parts = wire.parts_asked(text, query.get("parts", ""))
        if parts is None:
            return _refusal(400, f"{text!r} is not a part name, or one of `parts` is not")
        if not endpoint.startswith(wire.ENDPOINT_PREFIX):
            return _refusal(400, f"endpoint {endpoint!r} is not {wire.ENDPOINT_PREFIX}<path>")
        version = query.get("client_protocol_version", "")
        if not (version.isascii() and version.isdigit() and int(version[:9]) >= 1):
            return _refusal(
                400, f"client_protocol_version {version!r} is not a positive number"
            )
        return endpoint.removeprefix(wire.ENDPOINT_PREFIX), parts

    def _prepare(self, endpoint: str, parts: Sequence[PartName], rest: "_Rest") -> Response:
        """The answer. Runs in a thread. Raises MissingPart, Corruption, Unavailable."""
        if len(parts) > 1:
            return self._prepare_together(endpoint, parts)
        return self._prepare_one(endpoint, parts[0], rest)

    def _prepare_one(self, endpoint: str, part: PartName, rest: "_Rest") -> Response:
        store = self.find_store(endpoint)
        if store is None:
            raise MissingPart(f"no replica of this server has the ZooKeeper path {endpoint}")
        with ExitStack() as held:
            held.enter_context(store.pin([part]))
            try:
                manifest = store.manifest(part)
                text = manifest.encode()
                size = wire.answer_bytes(text, manifest.files)
                etag = wire.etag_of(text)
                first = rest.first if rest.etag == etag and rest.first < size else 0
                status, headers = _status_and_headers(first, size, etag)
                pieces = _from(first, _pieces(store, part, manifest, text, first))
                if size <= SMALL_ANSWER_BYTES:
                    return Response(b"".join(pieces), status, headers)
            except (Corruption, OSError) as error:
                self.report(endpoint, part, error)
                raise Corruption(str(error)) from error
            return _Stream(self, (endpoint, part), pieces, (status, headers), held.pop_all())
        raise AssertionError("an ExitStack does not swallow")

    def _prepare_together(self, endpoint: str, parts: Sequence[PartName]) -> Response:
        """The answer with several small parts. Large, missing and broken ones are left out; a
        request for one of them alone gets the part or the reason. The answer is sent in chunks,
        because under a bandwidth limit a peer would give up if the first byte came last. Raises
        Unavailable.
        """
        store = self.find_store(endpoint)
        answers: list[bytes] = []
        left = wire.TOGETHER_BYTES_MAX
        for part in parts:
            answer = b"" if store is None else _small_answer(store, part, left)
            answers.append(answer)
            left -= len(answer)
        body = wire.encode_together(answers)
        headers = {
            "content-type": "application/octet-stream",
            "content-length": str(len(body)),
            wire.TOGETHER_HEADER: str(len(parts)),
        }
        chunks = (
            body[at : at + wire.CHUNK_BYTES] for at in range(0, len(body), wire.CHUNK_BYTES)
        )
        status = HTTPStatus.OK
        return _Stream(self, (endpoint, parts[0]), chunks, (status, headers), ExitStack())

    async def _small(self, endpoint: str, part: PartName, answer: Response) -> Response:
        """A small answer under the limit of bandwidth: after the pause, or, if that is long, piece
        by piece.
        """
        bandwidth, body = self.bandwidth_of(endpoint), bytes(answer.body)
        if bandwidth is None:
            return answer
        if bandwidth.would_wait_s(len(body)) > PAUSE_MAX_S:
            head = answer.status_code, dict(answer.headers)
            return _Stream(self, (endpoint, part), iter([body]), head, ExitStack())
        if wait_s := bandwidth.wait_s(len(body)):
            await asyncio.sleep(wait_s)
        return answer

    async def slowed_down(self, endpoint: str, piece: bytes) -> AsyncIterator[bytes]:
        """The piece, under the limit of bandwidth. If that makes a long pause, cut into smaller
        pieces, each with its share of the pause behind it.
        """
        bandwidth = self.bandwidth_of(endpoint)
        wait_s = 0.0 if bandwidth is None else bandwidth.wait_s(len(piece))
        count = math.ceil(wait_s / PAUSE_MAX_S) or 1
        size = math.ceil(len(piece) / count) or 1
        for at in range(0, len(piece), size):
            yield piece[at : at + size]
            if wait_s:
                await asyncio.sleep(wait_s / count)

    def report(self, endpoint: str, part: PartName, error: Exception) -> None:
        corruption = error if isinstance(error, Corruption) else Corruption(str(error))
        self.on_broken(endpoint, part, corruption)


@dataclass(frozen=True, slots=True)
class _Rest:
    """A request for the rest of an answer that broke off: the one with this ETag, from byte
    `first`.
    """

    first: int
    etag: str

    @classmethod
    def asked(cls, request: Request) -> "_Rest":
        """What the request asks for; all, from byte 0, if it names no range that is understood."""
        first = wire.first_byte_asked(request.headers.get("range", ""))
        return cls(first, request.headers.get("if-range", ""))


class _Stream(Response):
    """An answer that is sent chunk by chunk, and read from the disk meanwhile."""

    def __init__(
        self,
        exchange: Exchange,
        asked: tuple[str, PartName],
        pieces: Iterator[bytes],
        status_and_headers: tuple[int, dict[str, str]],
        held: ExitStack,
    ) -> None:
        self.status_code, headers = status_and_headers
        self.background = None
        self.init_headers(headers)
        self._exchange = exchange
        self._asked = asked
        self._pieces = pieces
        self._held = held

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        # Done when the peer has gone: uvicorn would discard what is sent.
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            start = {"type": "http.response.start", "headers": self.raw_headers}
            await self._send(send, {**start, "status": self.status_code})
            while (piece := await run_in_threadpool(self._next)) is not None:
                if gone.done():
                    return
                async for some in self._exchange.slowed_down(self._asked[0], piece):
                    if gone.done():
                        return
                    body = {"type": "http.response.body", "body": some, "more_body": True}
                    await self._send(send, body)
            end = {"type": "http.response.body", "body": b"", "more_body": False}
            await self._send(send, end)
        except Unavailable as error:
            raise Broken(str(error)) from error
        except (Corruption, MissingPart, OSError) as error:
            await run_in_threadpool(self._exchange.report, *self._asked, error)
            raise Broken(str(error)) from error
        finally:
            gone.cancel()
            self._held.close()
            self._exchange.sends -= 1

    async def _send(self, send: Send, message: Message) -> None:
        """Send one message. Raises Broken if the peer takes nothing for SEND_TIMEOUT_S. (Errors of
        the disk, TimeoutError among them, are not raised here.)
        """
        limit_s = self._exchange.send_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                await send(message)
        except TimeoutError as error:
            raise Broken(f"the peer has read nothing for {limit_s} s") from error

    def _next(self) -> bytes | None:
        """The next piece; None at the end. Raises what `_pieces` raises, and Unavailable when the
        server stops or sends are stopped by hand: the answer breaks off then, as the original's.
        """
        self._exchange.find_store(self._asked[0])
        return next(self._pieces, None)


def exchange_app(
    find_store: FindStore,
    guard: Admits,
    on_broken: OnBroken,
    *,
    on_answer: OnAnswer = _nobody,
    sends_max: int = SENDS_MAX,
    bandwidth_of: BandwidthOf = _any,
) -> ASGIApp:
    """The ASGI application that answers `POST /` of peers that `guard` admits."""
    exchange = Exchange(find_store, on_broken, on_answer, sends_max, bandwidth_of)
    app = Starlette(routes=[Route("/", exchange.answer, methods=["POST"])])
    return guarded(app, guard, lambda: on_answer(401, 0))


def _small_answer(store: PartStore, part: PartName, most: int) -> bytes:
    """The whole answer for one part; empty if it has more than `most` bytes or can't be read."""
    with suppress(Corruption, OSError), store.pin([part]):
        manifest = store.manifest(part)
        text = manifest.encode()
        if wire.answer_bytes(text, manifest.files) <= min(most, wire.TOGETHER_PART_BYTES_MAX):
            return b"".join(_from(0, _pieces(store, part, manifest, text, 0)))
    return b""


def _pieces(
    store: PartStore, part: PartName, manifest: Manifest, text: bytes, first: int
) -> Iterator[bytes | int]:
    """The answer in pieces of bounded size. Raises Corruption before the hash of a wrong file.

    For files that end before byte `first` it yields just their length. The file that contains that
    byte is read from its beginning, because the hash at its end covers all of it.
    """
    head = wire.encode_head(text, manifest.files)
    yield head
    at = len(head)
    for file in manifest.files:
        file_head = wire.encode_file_head(file)
        size = len(file_head) + file.size + wire.HASH_BYTES
        at += size
        if at <= first:
            yield size
            continue
        yield file_head
        yield from _file_pieces(store, part, file)


def _from(first: int, pieces: Iterator[bytes | int]) -> Iterator[bytes]:
    """The bytes from `first` on. Pieces before it become empty ones, so that the sender can check
    in between whether the peer is still there.
    """
    left = first
    for piece in pieces:
        size = piece if isinstance(piece, int) else len(piece)
        skipped = min(left, size)
        left -= skipped
        yield b"" if isinstance(piece, int) else piece[skipped:]


def _file_pieces(store: PartStore, part: PartName, file: PartFile) -> Iterator[bytes]:
    digest, left = hashlib.sha256(), file.size
    try:
        for chunk in store.file_chunks(part, file.name):
            left -= len(chunk)
            if left < 0:
                raise Corruption(f"{part}/{file.name} is longer than its {file.size} bytes")
            digest.update(chunk)
            yield chunk
    except MissingPart as error:  # the part is pinned and has its manifest, so a file was lost
        raise Corruption(str(error)) from error
    if left:
        raise Corruption(
            f"{part}/{file.name} is {left} bytes shorter than its {file.size} bytes"
        )
    if digest.hexdigest() != file.hash:
        raise Corruption(
            f"{part}/{file.name} has hash {digest.hexdigest()}, its manifest says {file.hash}"
        )
    yield wire.short_hash(digest)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _status_and_headers(first: int, size: int, etag: str) -> tuple[int, dict[str, str]]:
    """For an answer of `size` bytes that is sent from byte `first` on."""
    headers = {
        "content-type": "application/octet-stream",
        "content-length": str(size - first),
        "etag": etag,
        "set-cookie": f"{wire.VERSION_COOKIE}={wire.PROTOCOL_VERSION}",
    }
    if not first:
        return HTTPStatus.OK, headers
    headers["content-range"] = wire.content_range(first, size)
    return HTTPStatus.PARTIAL_CONTENT, headers


def _refusal(status: int, text: str) -> Response:
    return PlainTextResponse(text, status_code=status)
