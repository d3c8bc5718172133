"""Part exchange: a part arrives whole and as it was, or not at all (spec §12)."""

import gzip
import os
import re
import socket
import threading
import time
import tracemalloc
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import urllib3

from rmt_pipeline.exchange import control, wire
from rmt_pipeline.exchange.bandwidth import Bandwidth
from rmt_pipeline.exchange.client import (
    RESUME_WAIT_S,
    RESUMES_MAX,
    PartClient,
)
from rmt_pipeline.exchange.connections import Peer, Timeouts
from rmt_pipeline.exchange.guard import Guard
from rmt_pipeline.exchange.server import exchange_app
from rmt_pipeline.protocol.errors import (
    Conflict,
    Corruption,
    DiskFull,
    MissingPart,
    NoReplicaHasPart,
    Unavailable,
)
from rmt_pipeline.protocol.nodes.formats import varint
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.store.hashes.checksums import hash_hex
from rmt_pipeline.store.staging import Staging
from tests.support import asgi
from tests.support.exchange import (
    ENDPOINT,
    SECRET,
    Sender,
    SlowClock,
    address,
    answering,
    cutting,
    flipped,
    manifest_of,
    put,
    renamed,
    scripted_peer,
    store_at,
    whole_answer,
)
from tests.support.waiting import LIMIT_S

PART = PartName("2013", 1, 4, 2)
SMALL = {"data-00000.parquet": b"PAR1 some rows"}
LARGE = {
    "data-00000.parquet": b"a" * 3_000_000,
    "data-00001.parquet": b"",
    "data-00002.parquet": b"z",
}


def damage(store, name: str, change) -> None:
    """In one step: who reads it meanwhile has all of it as it was, or as it is then."""
    path = Path(store.disk.local_path(f"{PART}/{name}"))
    aside = Path(store.disk.root, f"changed by {threading.get_ident()}")
    aside.write_bytes(change(path.read_bytes()))
    aside.replace(path)


@pytest.mark.parametrize("files", [SMALL, LARGE, {}], ids=["small", "large", "empty"])
def test_a_part_arrives_as_it_was(source, target, client, files):
    manifest = put(source, PART, files)
    with Sender(source) as sender:
        staged = client.fetch(address(sender.port), ENDPOINT, PART, target)
    target.publish(staged, PART)
    assert target.verify(PART) == manifest
    assert [b"".join(target.file_chunks(PART, name)) for name in files] == list(files.values())
    assert sender.broken == []


@pytest.mark.parametrize("files", [SMALL, LARGE], ids=["small", "large"])
def test_others_are_told_of_a_fetch_that_they_could_see(
    source, target, client, monkeypatch, files
):
    """The note is a file, which costs as much as a small part's own."""
    put(source, PART, files)
    noted, right = [], Staging.noted
    monkeypatch.setattr(
        Staging, "noted", lambda self, note: noted.append(note) or right(self, note)
    )
    with Sender(source) as sender:
        client.fetch(address(sender.port), ENDPOINT, PART, target)
    assert len(noted) == (files is LARGE)


def test_one_connection_serves_many_fetches(source, target, client):
    put(source, PART, SMALL)
    with Sender(source) as sender:
        for _ in range(3):
            target.discard(client.fetch(address(sender.port), ENDPOINT, PART, target))
        pool = client.connections.pool(Peer("http", "127.0.0.1", sender.port))
        assert (pool.num_connections, pool.num_requests) == (1, 3)


def test_small_parts_do_not_wait_for_acknowledgements(source, target, client):
    """TCP puts those off for 40 ms, more than all the rest of a small fetch."""
    put(source, PART, SMALL)
    with Sender(source) as sender:
        target.discard(client.fetch(address(sender.port), ENDPOINT, PART, target))
        sockets = [sender._listener._socket, *_accepted(sender)]  # a peer's stays open
        assert len(sockets) == 2
        assert all(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for one in sockets)


def _accepted(sender: Sender) -> list[socket.socket]:
    connections = sender._listener._server.server_state.connections
    return [one.transport.get_extra_info("socket") for one in connections]


def test_connections_to_peers_are_not_shared_with_a_child(source, target, client, monkeypatch):
    """After a fork two processes would each read half an answer."""
    put(source, PART, SMALL)
    with Sender(source) as sender:
        target.discard(client.fetch(address(sender.port), ENDPOINT, PART, target))
        peer = Peer("http", "127.0.0.1", sender.port)
        parents = client.connections.pool(peer)
        with monkeypatch.context() as child:
            child.setattr(os, "getpid", lambda: -1)
            assert client.connections.pool(peer) is not parents
            assert client.connections.pool(peer).num_connections == 0
        parents.close()


def test_a_connection_that_the_peer_closes_when_asked_is_replaced(tmp_path, client):
    """The peer gave it up as idle in the moment in which it was used again."""
    answer = answering(whole_answer(manifest_of(SMALL), SMALL))
    target = store_at(tmp_path / "target")

    def once_only(connection: socket.socket) -> None:
        answer(connection)
        connection.recv(1)  # the next request is there, and gets no answer

    with scripted_peer(once_only, answer) as port:
        for _ in range(2):
            client.fetch(address(port), ENDPOINT, PART, target)
    assert len(target.staged()) == 2


def test_a_peer_that_breaks_off_is_asked_twice(tmp_path, client):
    def break_off(_: socket.socket) -> None:
        pass

    with (
        scripted_peer(break_off, break_off) as port,
        pytest.raises(Unavailable, match="cannot be asked"),
    ):
        client.fetch(address(port), ENDPOINT, PART, store_at(tmp_path / "target"))


def test_a_peer_that_says_nothing_is_asked_once(tmp_path):
    """Who waited once for as long as is allowed does not wait as long again."""
    client = PartClient(SECRET, Timeouts(receive_s=0.3))

    def stay_silent(connection: socket.socket) -> None:
        connection.settimeout(LIMIT_S)
        assert connection.recv(1) == b"", "the client hangs up"

    with scripted_peer(stay_silent) as port:
        with pytest.raises(Unavailable, match=r"cannot be asked.*timed out"):
            client.fetch(address(port), ENDPOINT, PART, store_at(tmp_path / "target"))
        assert client.connections.pool(Peer("http", "127.0.0.1", port)).num_requests == 1


def test_a_peer_cannot_send_the_secret_elsewhere(tmp_path, client):
    def talk(connection: socket.socket) -> None:
        connection.sendall(
            b"HTTP/1.1 307 Go\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
        )

    evil(tmp_path, client, talk, Unavailable, "refused with status 307")


@pytest.mark.parametrize("files", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize(
    "change",
    [flipped, lambda data: data[:-1], lambda data: data + b"x"],
)
def test_a_part_that_rotted_at_the_sender_is_not_taken_and_is_reported(
    source, target, client, files, change
):
    put(source, PART, files)
    damage(source, "data-00000.parquet", change)
    with Sender(source) as sender, pytest.raises(Unavailable, match=str(PART)):
        client.fetch(address(sender.port), ENDPOINT, PART, target)
    ((endpoint, part, problem),) = sender.broken
    assert (endpoint, part) == (ENDPOINT, PART)
    assert "data-00000.parquet" in str(problem)
    assert target.staged() == []


def test_a_lost_file_is_reported(source, target, client):
    put(source, PART, LARGE)
    damage(source, "data-00001.parquet", lambda _: b"")
    Path(source.disk.local_path(f"{PART}/data-00002.parquet")).unlink()
    with Sender(source) as sender, pytest.raises(Unavailable):
        client.fetch(address(sender.port), ENDPOINT, PART, target)
    assert len(sender.broken) == 1


def test_a_part_that_the_peer_does_not_have_is_refused_and_looked_for(source, target, client):
    """Whoever asks has read in ZooKeeper that it is there: it was merged away, or it was lost."""
    with Sender(source) as sender:
        with pytest.raises(NoReplicaHasPart, match=f"{PART} from .*404"):
            client.fetch(address(sender.port), ENDPOINT, PART, target)
        with pytest.raises(NoReplicaHasPart, match="/no/such/replica"):
            client.fetch(address(sender.port), "/no/such/replica", PART, target)
    ((endpoint, part, problem),) = sender.broken
    assert (endpoint, part, type(problem)) == (ENDPOINT, PART, MissingPart)


def test_a_wrong_secret_gets_nothing(source, target):
    put(source, PART, SMALL)
    with Sender(source) as sender, pytest.raises(Unavailable, match=r"401.*secret"):
        PartClient("wrong").fetch(address(sender.port), ENDPOINT, PART, target)
    assert target.staged() == []
    assert "wrong" not in repr(PartClient("wrong"))


def test_a_stopping_server_says_so(source, target, client):
    def stopping(_: str):
        raise Unavailable("the server is stopping")

    sender = Sender(source)
    sender.find = stopping
    with sender, pytest.raises(Unavailable, match=r"503.*stopping"):
        client.fetch(address(sender.port), ENDPOINT, PART, target)


def test_sends_that_are_stopped_break_off_and_nothing_is_taken_for_broken(source, target):
    """The server is stopping, or somebody said SYSTEM STOP REPLICATED SENDS."""
    put(source, PART, {"data-00000.parquet": b"a" * 30_000_000})
    asked = []

    def stopped_midway(endpoint: str):
        asked.append(endpoint)
        if len(asked) > 4:
            raise Unavailable("REPLICATED SENDS are stopped by hand on this server")
        return source

    sender = Sender(source)
    sender.find = stopped_midway
    client = PartClient(SECRET, clock=SlowClock())
    with sender, pytest.raises(Unavailable, match="broke off"):
        client.fetch(address(sender.port), ENDPOINT, PART, target)
    assert sender.broken == []
    assert target.staged() == []
    assert source.remove(PART), "nobody holds it"


def test_more_sends_than_allowed_are_refused(source, target, client):
    put(source, PART, SMALL)
    with Sender(source, sends_max=0) as sender, pytest.raises(Unavailable, match="429"):
        client.fetch(address(sender.port), ENDPOINT, PART, target)


@pytest.mark.parametrize(
    "query",
    [
        "",
        f"endpoint=DataPartsExchange:{ENDPOINT}&part=../../etc/passwd&client_protocol_version=1",
        f"endpoint={ENDPOINT}&part={PART}&client_protocol_version=1",
        f"endpoint=DataPartsExchange:{ENDPOINT}&part={PART}&client_protocol_version=0",
        f"endpoint=DataPartsExchange:{ENDPOINT}&part={PART}&client_protocol_version=x",
        f"endpoint=DataPartsExchange:{ENDPOINT}&part={PART}",
    ],
)
def test_a_request_that_is_none_is_refused_before_anything_is_touched(source, query):
    with Sender(source) as sender:
        sender.find = None  # calling it would be a 500
        answer = urllib3.request(
            "POST",
            f"http://127.0.0.1:{sender.port}/?{query}",
            headers={"Authorization": f"Bearer {SECRET}"},
            timeout=LIMIT_S,
            retries=False,
        )
        assert answer.status == 400


def evil(tmp_path, client, talk, expected, match: str) -> None:
    target = store_at(tmp_path / "target")
    with scripted_peer(talk) as port, pytest.raises(expected, match=match):
        client.fetch(address(port), ENDPOINT, PART, target)
    assert target.staged() == []


def test_a_bit_that_flips_on_the_wire_is_noticed(tmp_path, client):
    body = whole_answer(manifest_of(SMALL), SMALL).replace(b"some rows", b"some sows")
    evil(tmp_path, client, answering(body), Corruption, "arrived with hash")


def test_a_wrong_manifest_is_noticed(tmp_path, client):
    body = whole_answer(manifest_of(SMALL), SMALL).replace(b'"rows": 3', b'"rows": 4')
    evil(tmp_path, client, answering(body), Corruption, "manifest's bytes")


def test_the_manifest_of_another_partition_is_refused(tmp_path, client):
    body = whole_answer(manifest_of(SMALL, "2014"), SMALL)
    evil(tmp_path, client, answering(body), Corruption, "of partition 2014")


def test_no_prefix_of_an_answer_is_taken_for_a_whole_one(tmp_path, client):
    body = whole_answer(manifest_of(SMALL), SMALL)
    for end in [0, 1, 24, 200, len(body) // 2, len(body) - 17, len(body) - 1]:
        talk = answering(body[:end], announced=len(body))
        evil(tmp_path, client, talk, Unavailable, "broke off")
        shorter = answering(body[:end])
        evil(tmp_path, client, shorter, Unavailable, "broke off")


def test_an_answer_that_goes_on_is_refused(tmp_path, client):
    body = whole_answer(manifest_of(SMALL), SMALL) + b"x"
    evil(tmp_path, client, answering(body), Corruption, "more than its manifest")


@pytest.mark.parametrize("announced", [0, 2, 10**6, 2**64 - 1])
def test_a_wrong_count_of_files_is_refused(tmp_path, client, announced):
    body = whole_answer(manifest_of(SMALL), SMALL)
    body = body[:8] + announced.to_bytes(8, "little") + body[16:]
    evil(tmp_path, client, answering(body), Corruption, f"announces {announced} files")


def test_a_manifest_without_end_is_refused_before_it_is_read(tmp_path, client):
    body = whole_answer(manifest_of(SMALL), SMALL)
    body = body[:16] + (2**40).to_bytes(8, "little") + body[24:]
    evil(tmp_path, client, answering(body), Corruption, str(2**40))


@pytest.mark.parametrize(
    "name", ["../evil", "a/b", "..", ".hidden", "a\0b", "part é", "x" * 256]
)
def test_a_file_name_that_leaves_the_directory_is_refused(tmp_path, client, name):
    manifest = manifest_of(SMALL)
    honest = wire.encode_file_head(manifest.files[0])
    raw = name.encode()
    forged = varint(len(raw)) + raw + honest[-8:]
    body = whole_answer(manifest, SMALL).replace(honest, forged)
    evil(tmp_path, client, answering(body), Corruption, "file name|at most 255")


def test_an_evil_name_in_the_manifest_is_refused(tmp_path, client):
    manifest = renamed(manifest_of(SMALL), "../evil")
    body = whole_answer(manifest, {"../evil": SMALL["data-00000.parquet"]})
    evil(tmp_path, client, answering(body), Corruption, "not names of data files")
    assert not (tmp_path / "evil").exists()


def test_another_file_than_the_manifests_is_refused(tmp_path, client):
    manifest = manifest_of(SMALL)
    honest = wire.encode_file_head(manifest.files[0])
    body = whole_answer(manifest, SMALL).replace(honest, honest.replace(b"00000", b"00001"))
    evil(tmp_path, client, answering(body), Corruption, "where the manifest has")


def test_a_part_larger_than_the_free_disk_is_refused_before_it_is_read(
    tmp_path, client, monkeypatch
):
    target = store_at(tmp_path / "target")
    monkeypatch.setattr(target.disk, "free_bytes", lambda: 5)
    talk = answering(whole_answer(manifest_of(SMALL), SMALL))
    with scripted_peer(talk) as port, pytest.raises(DiskFull, match=r"14 bytes.*5 are free"):
        client.fetch(address(port), ENDPOINT, PART, target)


def test_a_peer_that_stops_talking_is_given_up(tmp_path):
    done = threading.Event()

    def talk(connection) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n12345")
        done.wait(LIMIT_S)

    try:
        client = PartClient(SECRET, Timeouts(receive_s=0.2))
        target = store_at(tmp_path / "target")
        with scripted_peer(talk) as port:
            with pytest.raises(Unavailable, match="timed out"):
                client.fetch(address(port), ENDPOINT, PART, target)
            done.set()
    finally:
        done.set()
    assert target.staged() == []


def test_a_peer_that_trickles_is_given_up(tmp_path):
    """A byte each second, of a clock that the peer moves: none of them is waited for in vain."""
    body = whole_answer(manifest_of(SMALL), SMALL)
    stop, clock = threading.Event(), SlowClock()

    def talk(connection) -> None:
        connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode())
        for byte in body:
            clock.sleep_s(1.0)
            connection.sendall(bytes([byte]))
            if stop.wait(0.01):
                return

    client = PartClient(SECRET, Timeouts(receive_s=30.0), clock=clock)
    target = store_at(tmp_path / "target")
    with scripted_peer(talk) as port:
        with pytest.raises(Unavailable, match="longer than 30 s"):
            client.fetch(address(port), ENDPOINT, PART, target)
        stop.set()


# Peers that answer without end: each wait is short, and no timeout of a socket would end it

ENDLESS = {
    "a head that trickles": (b"HTTP/1.1 200 OK\r\nA: ", b"a"),
    "headers that trickle": (b"HTTP/1.1 200 OK\r\n", b"A: b\r\n"),
    "continue, for ever": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a status line that trickles": (b"HTTP", b"/"),
}


@pytest.mark.parametrize("talk", ENDLESS.values(), ids=ENDLESS)
def test_a_head_that_never_ends_is_given_up(tmp_path, talk):
    begin, again = talk
    client = PartClient(SECRET, Timeouts(receive_s=0.2))

    def trickle(connection: socket.socket) -> None:
        connection.sendall(begin)
        while True:
            connection.sendall(again)
            time.sleep(0.01)

    evil(tmp_path, client, trickle, Unavailable, "timed out")


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nA: " + b"a" * 10_000_000,
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 1_000_000,
        b"HTTP/1.1 " + b"2" * 10_000_000,
    ],
    ids=["a long header", "many headers", "a long status"],
)
def test_a_head_that_is_too_large_is_given_up(tmp_path, client, head):
    def talk(connection: socket.socket) -> None:
        connection.sendall(head)

    target = store_at(tmp_path / "target")
    tracemalloc.start()
    with (
        scripted_peer(
            talk, talk
        ) as port,  # its head was none: the connection may have been old
        pytest.raises(Unavailable, match="cannot be asked"),
    ):
        client.fetch(address(port), ENDPOINT, PART, target)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000


@pytest.mark.parametrize(
    "header", ["Content-Encoding: gzip", "Content-Encoding: br", "Transfer-Encoding: chunked"]
)
def test_an_answer_that_has_to_be_unpacked_is_refused(tmp_path, client, header):
    """A thousand bytes may be a gigabyte; and a chunk's length may have any length."""
    bomb = gzip.compress(bytes(100_000_000), 9)

    def talk(connection: socket.socket) -> None:
        head = f"HTTP/1.1 200 OK\r\n{header}\r\nContent-Length: {len(bomb)}\r\n\r\n"
        connection.sendall(head.encode() + bomb)

    evil(tmp_path, client, talk, Unavailable, "which an rmt server never does")


@pytest.mark.parametrize("where", ["http://127.0.0.1:1/", "file:///etc/passwd", "//evil/", ""])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_nobody_is_sent_elsewhere(tmp_path, client, status, where):
    def talk(connection: socket.socket) -> None:
        head = f"HTTP/1.1 {status} Go\r\nLocation: {where}\r\nContent-Length: 0\r\n\r\n"
        connection.sendall(head.encode())

    evil(tmp_path, client, talk, Unavailable, f"refused with status {status}")


@pytest.mark.parametrize("text", [b"[" * 200_000, b'{"a":' * 100_000], ids=["lists", "objects"])
def test_a_manifest_as_deep_as_nobody_writes_is_refused(tmp_path, client, text):
    whole = text + f',\n"check": "{hash_hex(text)}"\n}}\n'.encode()
    sizes = b"".join(number.to_bytes(8, "little") for number in (0, 0, len(whole)))
    body = sizes + whole + wire.hash_of(whole)
    evil(tmp_path, client, answering(body), Corruption, r"part\.json can't be read")


def test_what_is_not_a_part_is_not_read_without_end(monkeypatch):
    """A status, or the answer to "look at your tables": it is read whole."""
    monkeypatch.setattr(control, "ANSWER_BYTES_MAX", 1000)

    def talk(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 5_000_000)

    with (
        scripted_peer(talk) as port,
        pytest.raises(Unavailable, match="has more than 1000 bytes"),
    ):
        control.reload_tables(Peer("http", "127.0.0.1", port), SECRET)


def test_a_server_that_stops_midway_leaves_nothing(source, target, client):
    put(source, PART, {"data-00000.parquet": b"a" * 30_000_000})
    with Sender(source) as sender:
        stopped = threading.Event()

        def stop_once() -> bool:
            if target.staged() and not stopped.is_set():
                stopped.set()
                sender.stop()
            return False

        cut = PartClient(SECRET, is_cancelled=stop_once)
        with pytest.raises(Unavailable):
            cut.fetch(address(sender.port), ENDPOINT, PART, target)
    assert target.staged() == []
    assert sender.broken == []


def test_nobody_at_the_address_is_named(target, client):
    with pytest.raises(Unavailable, match=r"http://127\.0\.0\.1:1 cannot be asked"):
        client.fetch(address(1), ENDPOINT, PART, target)


def test_a_cancelled_fetch_stops_and_leaves_nothing(source, target):
    put(source, PART, LARGE)
    asked = iter([False] * 6)
    client = PartClient(SECRET, is_cancelled=lambda: next(asked, True))
    with Sender(source) as sender, pytest.raises(Conflict, match="cancelled"):
        client.fetch(address(sender.port), ENDPOINT, PART, target)
    assert target.staged() == []


@pytest.mark.parametrize("size", [3_000_000, 1000], ids=["in pieces", "at once"])
def test_sends_keep_their_limit_too(source, target, client, size):
    files = {"data-00000.parquet": b"a" * size}
    put(source, PART, files)
    sent: list[int] = []

    class Counting(Bandwidth):
        def wait_s(self, size: int) -> float:
            sent.append(size)
            return 0.001

    asked: list[str] = []

    def bandwidth_of(endpoint: str) -> Bandwidth:
        asked.append(endpoint)
        return Counting(lambda: 1, SlowClock())

    with Sender(source, bandwidth_of=bandwidth_of) as sender:
        client.fetch(address(sender.port), ENDPOINT, PART, target)
    assert set(asked) == {ENDPOINT}
    assert sum(sent) == len(whole_answer(source.manifest(PART), files))


WHOLE = 10**9  # bytes: more than any answer here has


@pytest.fixture
def soon(monkeypatch):
    """A fetch of little is resumed too, and nobody waits."""
    monkeypatch.setattr("rmt_pipeline.exchange.client.RESUME_BYTES", 1000)
    client = PartClient(SECRET, Timeouts(connect_s=5, receive_s=20), clock=SlowClock())
    yield client
    client.connections.close()


def ranges(requests: list[str]) -> list[int]:
    """From which byte on each of them asks."""
    found = [re.search(r"(?im)^range: bytes=(\d+)-\s*$", request) for request in requests]
    return [int(one[1]) if one else 0 for one in found]


def test_a_fetch_that_breaks_off_goes_on_where_it_was(source, target, soon):
    put(source, PART, LARGE)
    with Sender(source) as sender, cutting(sender.port, 500_000, 2_000_000, WHOLE) as way:
        port, requests = way
        staged = soon.fetch(address(port), ENDPOINT, PART, target)
    target.publish(staged, PART)
    target.verify(PART)
    assert [b"".join(target.file_chunks(PART, name)) for name in LARGE] == list(LARGE.values())
    first, second, third = ranges(requests)
    assert first == 0
    assert 490_000 < second < 500_000
    assert 2_490_000 < third < 2_500_000
    assert sender.broken == []


def test_every_byte_is_a_place_to_go_on_from(source):
    files = {"data-00000.parquet": b"ab", "data-00001.parquet": b"", "data-00002.parquet": b"c"}
    manifest = put(source, PART, files)
    whole = whole_answer(manifest, files)
    app = exchange_app(lambda _: source, Guard((SECRET,)), lambda *what: pytest.fail(str(what)))
    query = parse_qs(urlsplit(wire.request_target(ENDPOINT, PART)).query)
    for first in range(1, len(whole)):
        headers = wire.range_headers(first, wire.etag_of(manifest.encode()))
        authorization = {"authorization": f"Bearer {SECRET}"}
        answer = asgi.ask(
            app,
            query={name: value for name, (value,) in query.items()},
            headers=headers | authorization,
        )
        assert (answer.status, answer.body) == (206, whole[first:])


def test_the_rest_of_another_part_is_not_taken(source, target, soon):
    """It was fetched again at the sender, say: the bytes before are no longer its beginning."""
    put(source, PART, LARGE)
    with Sender(source) as sender, cutting(sender.port, 2_000_000, WHOLE) as way:
        port, requests = way

        def replaced_midway(endpoint: str):
            if requests[1:]:
                return store_with(source, {**LARGE, "data-00002.parquet": b"y"})
            return source

        sender.find = replaced_midway
        with pytest.raises(Unavailable, match="broke off"):
            soon.fetch(address(port), ENDPOINT, PART, target)
    assert len(requests) == 2
    assert target.staged() == []


def store_with(source, files):
    other = store_at(Path(source.disk.root).parent / "other")
    put(other, PART, files)
    return other


def test_bytes_that_changed_between_two_connections_are_noticed(source, target, soon):
    """The manifest is the same, so the rest is sent; the sender reads the file from its beginning
    all the same, and sees it.
    """
    put(source, PART, LARGE)
    with Sender(source) as sender, cutting(sender.port, 2_000_000, WHOLE, WHOLE) as way:
        port, requests = way

        def damaged_midway(endpoint: str):
            if len(requests) == 2:
                damage(source, "data-00000.parquet", lambda data: b"b" + data[1:])
            return source

        sender.find = damaged_midway
        with pytest.raises(Unavailable, match="broke off"):
            soon.fetch(address(port), ENDPOINT, PART, target)
        assert len(requests) == 3, "the third gave nothing"
    assert target.staged() == []
    assert {str(part) for _, part, _ in sender.broken} == {str(PART)}


def test_who_breaks_off_again_and_again_is_given_up(source, target, soon):
    put(source, PART, LARGE)
    sizes = [100_000] * (RESUMES_MAX + 1)
    with (
        Sender(source) as sender,
        cutting(sender.port, *sizes) as (port, requests),
        pytest.raises(Unavailable, match="broke off"),
    ):
        soon.fetch(address(port), ENDPOINT, PART, target)
    assert len(requests) == RESUMES_MAX + 1
    assert target.staged() == []


def test_a_peer_that_starts_again_is_waited_for_some_seconds(source, target, soon):
    """It refuses the connection at first, then says that its table is starting."""
    put(source, PART, LARGE)
    with Sender(source) as sender, cutting(sender.port, 500_000, WHOLE, WHOLE) as way:
        port, requests = way

        def starting_midway(endpoint: str):
            if len(requests) == 2:
                raise Unavailable("the table is starting")
            return source

        sender.find = starting_midway
        target.discard(soon.fetch(address(port), ENDPOINT, PART, target))
    assert len(requests) == 3
    assert soon.clock.now >= RESUME_WAIT_S * 3


def test_a_fetch_that_is_cancelled_while_it_waits_to_go_on_ends(source, target, monkeypatch):
    monkeypatch.setattr("rmt_pipeline.exchange.client.RESUME_BYTES", 1000)
    put(source, PART, LARGE)
    with Sender(source) as sender, cutting(sender.port, 500_000) as (port, requests):
        clock = SlowClock()
        client = PartClient(SECRET, is_cancelled=lambda: clock.now > 0, clock=clock)
        with pytest.raises(Conflict, match="cancelled"):
            client.fetch(address(port), ENDPOINT, PART, target)
    assert len(requests) == 1
    assert target.staged() == []


def test_little_is_not_resumed(source, target):
    """Who has it too may be asked at once."""
    put(source, PART, LARGE)
    client = PartClient(SECRET, clock=SlowClock())
    with (
        Sender(source) as sender,
        cutting(sender.port, 500_000) as (port, requests),
        pytest.raises(Unavailable, match="broke off"),
    ):
        client.fetch(address(port), ENDPOINT, PART, target)
    assert len(requests) == 1


def test_memory_does_not_grow_with_the_part(source, target, client):
    put(source, PART, {"data-00000.parquet": b"a" * 60_000_000})
    with Sender(source) as sender:
        tracemalloc.start()
        client.fetch(address(sender.port), ENDPOINT, PART, target)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 20_000_000, "both sides together"


def test_a_sent_part_is_pinned_while_it_is_sent(source, target, client):
    put(source, PART, LARGE)
    removed: list[bool] = []

    def remove_midway() -> bool:
        if target.staged() and not removed:
            removed.append(source.remove(PART))
        return False

    curious = PartClient(SECRET, is_cancelled=remove_midway)
    with Sender(source) as sender:
        curious.fetch(address(sender.port), ENDPOINT, PART, target)
        curious.connections.close()
    assert removed == [False]
    assert source.remove(PART)
