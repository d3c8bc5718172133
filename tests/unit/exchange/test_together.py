"""Small parts come together; whatever is not plain about one of them is asked for alone."""

import errno
import threading
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from rmt_pipeline.exchange import wire
from rmt_pipeline.exchange.bandwidth import Bandwidth
from rmt_pipeline.exchange.client import HttpPeers, PartClient
from rmt_pipeline.exchange.peers import FetchRequest
from rmt_pipeline.protocol.errors import NoReplicaHasPart, RmtError, Unavailable
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.store.staging import StagedPart, Staging
from rmt_pipeline.system import SystemClock
from tests.support.exchange import (
    ENDPOINT,
    SECRET,
    Sender,
    address,
    flipped,
    manifest_of,
    put,
    scripted_peer,
    whole_answer,
)

PART = PartName("2013", 1, 4, 2)
SMALL = {"data-00000.parquet": b"PAR1 some rows"}
LARGE = {"data-00000.parquet": b"a" * 3_000_000}


def named(block: int) -> PartName:
    return PartName("2013", block, block, 0)


def fetched(
    client, target, port: int, *parts: PartName
) -> dict[PartName, StagedPart | RmtError]:
    """What became of each; nothing is said of any of them twice."""
    requests = [FetchRequest(address(port), ENDPOINT, part) for part in parts]
    with closing(HttpPeers(client, at_once_max=1)) as peers:
        found = [one for some in peers.fetch(requests, target) for one in some]
    assert sorted(request.part for request, _ in found) == sorted(parts)
    return {request.part: outcome for request, outcome in found}


@contextmanager
def counting(client):
    """What the peer is asked for, also in vain."""
    asked, right = [], client.connections.ask

    def ask(method, peer, target, secret, **named):
        asked.append(target)
        return right(method, peer, target, secret, **named)

    object.__setattr__(client.connections, "ask", ask)
    yield asked


def test_small_parts_come_together_in_one_exchange(source, target, client):
    manifests = {named(block): put(source, named(block), SMALL) for block in range(20)}
    with Sender(source) as sender, counting(client) as asked:
        found = fetched(client, target, sender.port, *manifests)
    assert len(asked) == 1
    for part, staged in found.items():
        target.publish(staged, part)
        assert target.verify(part) == manifests[part]


def test_what_is_large_missing_or_broken_is_asked_for_alone_and_costs_the_others_nothing(
    source, target, client
):
    put(source, named(0), SMALL)
    put(source, named(1), LARGE)
    put(source, PART, SMALL)
    broken = Path(source.disk.local_path(f"{PART}/data-00000.parquet"))
    broken.write_bytes(flipped(broken.read_bytes()))
    put(source, named(9), SMALL)
    with Sender(source) as sender, counting(client) as asked:
        parts = (named(0), named(1), named(2), PART, named(9))
        found = fetched(client, target, sender.port, *parts)
        assert {part for _, part, _ in sender.broken} == {named(2), PART}
    assert len(asked) == 4
    assert isinstance(found[named(2)], NoReplicaHasPart)
    assert isinstance(found[PART], Unavailable)
    for part in (named(0), named(1), named(9)):
        target.publish(found[part], part)
        target.verify(part)


def test_what_the_disk_refuses_of_one_costs_the_others_nothing(
    source, target, client, monkeypatch
):
    parts = [named(block) for block in range(3)]
    for part in parts:
        put(source, part, SMALL)
    begin = target.begin

    def refusing(kind: str, hint: str) -> Staging:
        if hint == str(parts[1]):
            raise OSError(errno.EIO, "Input/output error")
        return begin(kind, hint)

    monkeypatch.setattr(target, "begin", refusing)
    with Sender(source) as sender:
        found = fetched(client, target, sender.port, *parts)
    refused = found.pop(parts[1])
    assert isinstance(refused, Unavailable)
    assert "Input/output error" in str(refused)
    assert all(isinstance(one, StagedPart) for one in found.values())


@pytest.mark.parametrize("threads", [0, 1, 2])
def test_parts_that_no_thread_can_be_started_for_are_fetched_by_those_there_are(
    source, target, client, monkeypatch, threads
):
    """Each once. It was an error that was none of a part; and what a thread had begun by then was
    not waited for.
    """
    parts = [named(block) for block in range(4)]
    for part in parts:
        put(source, part, LARGE)  # each is asked for alone
    start, started = threading.Thread.start, []

    def limited(thread):
        if thread.name.startswith("fetch_"):
            if len(started) == threads:
                raise RuntimeError("can't start new thread")
            started.append(thread)
        start(thread)

    with Sender(source) as sender, closing(HttpPeers(client, at_once_max=4)) as peers:
        requests = [FetchRequest(address(sender.port), ENDPOINT, part) for part in parts]
        monkeypatch.setattr(threading.Thread, "start", limited)
        found = [one for some in peers.fetch(requests, target) for one in some]
    assert sorted(request.part for request, _ in found) == parts
    assert all(isinstance(outcome, StagedPart) for _, outcome in found)


def test_what_is_sent_together_is_bounded(source, target, client):
    half = {"data-00000.parquet": b"a" * (wire.TOGETHER_PART_BYTES_MAX // 2)}
    parts = [named(block) for block in range(12)]
    for part in parts:
        put(source, part, half)
    with Sender(source) as sender, counting(client) as asked:
        found = fetched(client, target, sender.port, *parts)
    assert all(isinstance(one, StagedPart) for one in found.values())
    assert len(asked) == 1 + len(parts) - 7


def test_a_server_that_sends_one_part_at_a_time_is_asked_for_the_others(
    source, target, client, monkeypatch
):
    parts = [named(block) for block in range(3)]
    for part in parts:
        put(source, part, SMALL)
    monkeypatch.setattr(wire, "parts_asked", lambda part, _: (PartName.parse(part),))
    with Sender(source) as sender, counting(client) as asked:
        found = fetched(client, target, sender.port, *parts)
    assert all(isinstance(one, StagedPart) for one in found.values())
    assert len(asked) == 3


def _together(*sizes_and_answers: tuple[int, bytes], count: int | str = 2) -> bytes:
    body = b"".join(size.to_bytes(8, "little") + one for size, one in sizes_and_answers)
    head = f"HTTP/1.1 200 OK\r\nserver_parts: {count}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


ONE = whole_answer(manifest_of(SMALL), SMALL)


@pytest.mark.parametrize(
    ("answer", "arrived"),
    [
        (_together((len(ONE), ONE), (len(ONE), ONE), count=3), 0),
        (_together((len(ONE), ONE), (len(ONE), ONE), count="2" * 5000), 0),
        (_together((1 << 40, ONE), (len(ONE), ONE)), 0),
        (_together((len(ONE), flipped(ONE)), (len(ONE), ONE)), 0),
        (_together((len(ONE), ONE), (len(ONE) - 1, ONE[:-1])), 1),
        (_together((len(ONE), ONE), (len(ONE), ONE + b"more")), 2),
        (_together((len(ONE) + 3, ONE), (len(ONE), ONE)), 1),
        (_together((len(ONE), ONE))[:-1], 0),
    ],
    ids=["count", "long count", "huge", "flipped", "cut", "more", "fewer", "broke off"],
)
def test_of_what_a_peer_sends_wrongly_together_the_rest_is_asked_for_alone(
    target, client, answer, arrived
):
    """Nothing of it stays but what is whole, as its own manifest says."""
    parts = [named(0), named(1)]
    with scripted_peer(lambda connection: connection.sendall(answer)) as port:
        staged = client.fetch_small(address(port), ENDPOINT, parts, target)
    assert [*staged] == parts[:arrived]
    for part, one in staged.items():
        target.publish(one, part)
        target.verify(part)
    left = Path(target.disk.local_path("."))
    assert {path.name for path in left.iterdir() if path.name.startswith("tmp")} == set()


@pytest.mark.parametrize(
    "parts", ["", "x", "2013_1_4_2,", "2013_9_9_0", ",".join(["2013_1_4_2"] * 65)]
)
def test_only_lists_of_parts_that_begin_with_the_part_are_answered(source, parts):
    found = wire.parts_asked("2013_1_4_2", parts)
    assert (found is None) is bool(parts)


def test_a_peer_that_speaks_otherwise_costs_the_others_nothing(source, target, client):
    """It has changed to TLS, say, and we have not yet."""
    put(source, named(0), SMALL)
    with Sender(source) as sender, closing(HttpPeers(client)) as peers:
        theirs = [
            FetchRequest(address(sender.port, "https"), ENDPOINT, named(block))
            for block in (1, 2)
        ]
        ours = FetchRequest(address(sender.port), ENDPOINT, named(0))
        found = dict(one for some in peers.fetch([*theirs, ours], target) for one in some)
    assert isinstance(found[ours], StagedPart)
    assert [type(found[one]) for one in theirs] == [Unavailable, Unavailable]


def test_what_comes_together_waits_for_a_limit_chunk_by_chunk(source, target, client):
    """Who waits for the first byte for as long as all may take gives up; what he was to get is
    counted all the same, and who asks next waits for that as well.
    """
    half = {"data-00000.parquet": b"a" * (wire.TOGETHER_PART_BYTES_MAX // 2)}
    parts = [named(block) for block in range(4)]
    for part in parts:
        put(source, part, half)
    sent: list[int] = []

    class Noting(Bandwidth):
        def wait_s(self, size: int) -> float:
            sent.append(size)
            return 0.0

    limit = Noting(lambda: 1, SystemClock())
    with Sender(source, bandwidth_of=lambda _: limit) as sender:
        found = fetched(client, target, sender.port, *parts)
    assert all(isinstance(one, StagedPart) for one in found.values())
    assert max(sent) == wire.CHUNK_BYTES
    assert sum(sent) > sum(map(len, half.values())) * len(parts)


def test_a_limit_counts_each_byte_once_and_is_asked_when_bytes_arrive(source, target):
    parts = [named(block) for block in range(20)]
    for part in parts:
        put(source, part, SMALL)
    sizes = [
        wire.answer_bytes(manifest.encode(), manifest.files)
        for manifest in map(source.manifest, parts)
    ]
    charged = []

    class Counted(Bandwidth):
        def wait_s(self, size: int) -> float:
            charged.append(size)
            return 0.0

    client = PartClient(SECRET, bandwidth=Counted(lambda: 0, SystemClock()))
    with Sender(source) as sender:
        fetched(client, target, sender.port, *parts)
    client.connections.close()
    assert sum(charged) == sum(sizes) + 8 * len(parts)
    assert len(charged) < len(parts), "reads of a few bytes that are there wait for nothing"
