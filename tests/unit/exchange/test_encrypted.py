"""Parts over TLS: from the peer that is meant, to those who may have them."""

import shutil
import socket
from contextlib import ExitStack, suppress

import pytest

from rmt_pipeline.config import Config, ServerConfig, TlsConfig, TlsFiles
from rmt_pipeline.exchange.client import PartClient
from rmt_pipeline.exchange.connections import Connections, Peer, Timeouts
from rmt_pipeline.exchange.control import health, reload_tables
from rmt_pipeline.protocol.errors import Unavailable
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.server import listener
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.tls import Renewed
from tests.support.certificates import Authority, Certificate
from tests.support.exchange import (
    ENDPOINT,
    SECRET,
    Sender,
    address,
    put,
    store_at,
)

PART = PartName("2013", 1, 4, 2)
HOST = "127.0.0.1"
FILES = {"data-00000.parquet": b"a" * 3_000_000, "data-00001.parquet": b"z"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def source(tmp_path) -> PartStore:
    store = store_at(tmp_path / "source")
    put(store, PART, FILES)
    return store


def files_of(authority: Authority, own: Certificate | None = None) -> TlsFiles:
    return TlsFiles("[tls]", authority.file, own and own.file, own and own.key)


def sender_of(
    source: PartStore, authority: Authority, *hosts: str, asks: bool = False
) -> Sender:
    own = authority.sign(f"sender-{'-'.join(hosts)}", *hosts)
    files = files_of(authority, own)
    return Sender(source, tls=Renewed.server(files, client_certificates=asks))


def fetch(sender: Sender, target: PartStore, files: TlsFiles, scheme: str = "https") -> None:
    client = PartClient(SECRET, Timeouts(5, 20), connections=Connections(files))
    try:
        staged = client.fetch(address(sender.port, scheme), ENDPOINT, PART, target)
    finally:
        client.connections.close()
    target.publish(staged, PART)
    target.verify(PART)


def test_a_part_arrives_encrypted(source, target, authority):
    with sender_of(source, authority, HOST) as sender:
        fetch(sender, target, files_of(authority))
    assert [b"".join(target.file_chunks(PART, name)) for name in FILES] == list(FILES.values())


def test_a_peer_of_another_name_is_not_asked(source, target, authority):
    """It has a certificate of ours, and listens where another one is looked for."""
    with (
        sender_of(source, authority, "r2.example") as sender,
        pytest.raises(Unavailable, match=r"cannot be asked.*not valid for '127\.0\.0\.1'"),
    ):
        fetch(sender, target, files_of(authority))


def test_a_peer_of_another_authority_is_not_asked(source, target, authority, tmp_path):
    other = Authority(tmp_path / "other", "other")
    with (
        sender_of(source, other, HOST) as sender,
        pytest.raises(Unavailable, match=r"cannot be asked.*certificate verify failed"),
    ):
        fetch(sender, target, files_of(authority))


def test_only_who_has_a_certificate_is_answered_where_one_is_asked_for(
    source, target, authority, tmp_path
):
    other = Authority(tmp_path / "other", "other")
    with sender_of(source, authority, HOST, asks=True) as sender:
        for own in (None, other.sign("thief", HOST)):
            with pytest.raises(Unavailable, match="cannot be asked"):
                fetch(sender, target, files_of(authority, own))
        fetch(sender, target, files_of(authority, authority.sign("ours", HOST)))


def test_who_has_no_tls_and_asks_one_that_has_it_or_the_other_way_round_is_told(
    source, tmp_path, authority
):
    """Commands, like `rmt status`, do not know beforehand how a server speaks."""
    with (
        Sender(store_at(tmp_path / "other")) as plain,
        pytest.raises(
            Unavailable, match=r"speaks http, and we https: all servers have \[tls\]"
        ),
    ):
        reload_tables(Peer("https", HOST, plain.port), SECRET, files_of(authority))
    with (
        sender_of(source, authority, HOST) as encrypted,
        pytest.raises(Unavailable, match=r".; if it speaks https, the \[tls\] of its"),
    ):
        reload_tables(Peer("http", HOST, encrypted.port), SECRET)


def test_the_secret_is_not_said_in_the_clear(tmp_path, target, authority):
    """A peer whose address in ZooKeeper says http is not asked by who has [tls]."""
    with (
        Sender(store_at(tmp_path / "other")) as sender,
        pytest.raises(Unavailable, match=r"speaks http, and we https.*\[tls\]"),
    ):
        fetch(sender, target, files_of(authority), "http")
    client = PartClient(SECRET)
    with pytest.raises(Unavailable, match="speaks https, and we http"):
        client.fetch(address(1, "https"), ENDPOINT, PART, target)


def test_a_new_certificate_of_ours_is_shown_to_the_next_peer(
    source, target, authority, tmp_path
):
    """Idle connections that were made with the old one are let go."""
    own = Certificate(tmp_path / "own.pem", tmp_path / "own.key")

    def renew(name: str) -> None:
        made = authority.sign(name, HOST)
        shutil.copy(made.key, own.key)
        shutil.copy(made.file, own.file)

    renew("first")
    connections = Connections(files_of(authority, own))
    client = PartClient(SECRET, connections=connections)
    with sender_of(source, authority, HOST, asks=True) as sender:
        peer = Peer("https", HOST, sender.port)
        target.discard(client.fetch(address(sender.port, "https"), ENDPOINT, PART, target))
        before = connections.pool(peer)
        assert connections.pool(peer) is before
        renew("second")
        target.discard(client.fetch(address(sender.port, "https"), ENDPOINT, PART, target))
        assert connections.pool(peer) is not before
        before.close()
    connections.close()


def test_who_is_taken_for_a_stranger_is_told_where_to_look(source, authority, tmp_path):
    own = authority.sign("asking", HOST)
    tls = TlsConfig(own.file, own.key, authority.file)
    with sender_of(source, authority, HOST) as sender:
        server = ServerConfig("r1", tmp_path, f"{HOST}:{sender.port}")
        config = Config(servers={"r1": server}, tls=tls)
        with pytest.raises(
            Unavailable, match=r"401: it does not accept our secret.*\[exchange\]"
        ):
            health(config, server, 5)
    with pytest.raises(Unavailable, match=f"https://{HOST}:{sender.port} cannot be asked"):
        health(config, server, 5)


# Strangers who do not even begin with TLS


def test_they_do_not_use_up_the_descriptors_and_keep_no_peer_out(
    monkeypatch, source, target, authority
):
    """They count before they have shaken hands: those that are there longest are hung up on."""
    monkeypatch.setattr(listener, "CONNECTIONS_MAX", 8)
    with sender_of(source, authority, HOST) as sender, ExitStack() as opened:
        strangers = [
            opened.enter_context(
                socket.create_connection((HOST, sender.port), 0.8 * listener.REQUEST_S)
            )
            for _ in range(20)
        ]
        for stranger in strangers[:12]:
            with suppress(ConnectionResetError):
                assert stranger.recv(1) == b""
        fetch(sender, target, files_of(authority))


def test_they_are_hung_up_on_as_soon_as_who_asks_for_nothing(monkeypatch, source, authority):
    monkeypatch.setattr(listener, "REQUEST_S", 0.2)
    with (
        sender_of(source, authority, HOST) as sender,
        socket.create_connection((HOST, sender.port), 20) as stranger,
        suppress(ConnectionResetError),
    ):
        assert stranger.recv(1) == b""
