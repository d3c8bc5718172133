"""Certificates: those that can't be used are told, and new ones count without a restart."""

import shutil
import socket
import ssl
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rmt_pipeline.config import TlsFiles
from rmt_pipeline.protocol.errors import BadConfiguration
from rmt_pipeline.tls import Renewed, client_context, distrust_of
from rmt_pipeline.zookeeper.direct import OneSessionHandler
from tests.support.certificates import Authority, Certificate
from tests.support.waiting import LIMIT_S

HOST = "127.0.0.1"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def test_files_that_can_not_be_used_are_named(tmp_path: Path, authority: Authority) -> None:
    one, other = authority.sign("one", HOST), authority.sign("other", HOST)
    (tmp_path / "none.pem").write_text("none")
    locked = tmp_path / "locked.key"
    subprocess.run(
        ["openssl", "pkcs8", "-topk8", "-in", one.key, "-out", locked, "-passout", "pass:x"],
        check=True,
        capture_output=True,
    )
    for files, named in (
        (TlsFiles("[tls]", ca=tmp_path / "missing.pem"), r"\[tls\] ca .*missing\.pem"),
        (TlsFiles("[tls]", ca=tmp_path / "none.pem"), r"ca .*none\.pem"),
        (TlsFiles("[tls]", None, one.file), r"certificate .*one\.pem"),
        (TlsFiles("[tls]", None, one.file, other.key), r"one\.pem with its key .*other\.key"),
        (TlsFiles("[tls]", None, one.file, locked), r"it has a password"),
    ):
        with pytest.raises(BadConfiguration, match=named) as caught:
            client_context(files)
        assert "PEM" in str(caught.value)


def copied(certificate: Certificate, to: TlsFiles) -> None:
    """As certbot and others do: another file takes the old one's name."""
    assert to.certificate is not None
    assert to.key is not None
    for file, name in ((certificate.key, to.key), (certificate.file, to.certificate)):
        shutil.copy(file, name.with_suffix(".new"))
        name.with_suffix(".new").replace(name)


def seen_by(
    client: ssl.SSLContext, server: ssl.SSLContext, name: str = HOST
) -> dict[str, object]:
    """The certificate that a client is shown. Raises SSLError: of the client, or of the server."""

    def serve(listener: socket.socket) -> None:
        plain, _ = listener.accept()
        plain.settimeout(LIMIT_S)
        with server.wrap_socket(plain, server_side=True) as connection:
            connection.sendall(b"x")

    with ThreadPoolExecutor() as threads, socket.create_server((HOST, 0)) as listener:
        serving = threads.submit(serve, listener)
        plain = socket.create_connection(listener.getsockname(), LIMIT_S)
        with client.wrap_socket(plain, server_hostname=name) as connection:
            shown = connection.getpeercert() or {}
            connection.recv(1)
        serving.result()
        return shown


def test_new_certificates_count_for_the_next_connection(
    tmp_path: Path, authority: Authority
) -> None:
    files = TlsFiles("[tls]", authority.file, tmp_path / "own.pem", tmp_path / "own.key")
    copied(authority.sign("first", HOST), files)
    server = Renewed.server(files, client_certificates=False)
    client = client_context(TlsFiles("[tls]", authority.file))
    for name in ("first", "second", "third"):
        copied(authority.sign(name, HOST, "localhost"), files)
        for host in (HOST, "localhost")[: 1 if name == "first" else 2]:
            assert seen_by(client, server, host)["subject"] == ((("commonName", name),),)


def test_half_of_a_new_certificate_is_not_taken(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    files = TlsFiles("[tls]", authority.file, tmp_path / "own.pem", tmp_path / "own.key")
    copied(authority.sign("first", HOST), files)
    renewed = Renewed.client(files)
    first = renewed.context()
    assert renewed.context() is first, "nothing has changed"
    second = authority.sign("second", HOST)
    shutil.copy(second.key, tmp_path / "own.key")
    assert renewed.context() is first
    (told,) = caplog.messages
    assert "own.pem" in told
    (tmp_path / "own.pem").unlink()
    assert renewed.context() is first
    shutil.copy(second.file, tmp_path / "own.pem")
    assert renewed.context() is not first


def test_only_who_was_signed_is_heard_where_certificates_are_asked_for(
    tmp_path: Path, authority: Authority
) -> None:
    stranger = Authority(tmp_path / "stranger", "other")
    own = authority.sign("server", HOST)
    server = Renewed.server(
        TlsFiles("[tls]", authority.file, own.file, own.key), client_certificates=True
    )
    ours, theirs = authority.sign("ours"), stranger.sign("theirs")
    known = TlsFiles("[tls]", authority.file, ours.file, ours.key)
    assert seen_by(client_context(known), server)
    for files in (
        TlsFiles("[tls]", authority.file),
        TlsFiles("[tls]", authority.file, theirs.file, theirs.key),
    ):
        with pytest.raises((ssl.SSLError, OSError)):
            seen_by(client_context(files), server)


def test_a_server_knows_whether_others_will_believe_its_certificate(
    tmp_path: Path, authority: Authority
) -> None:
    own = authority.sign("server", HOST, "localhost")
    files = TlsFiles("[tls]", authority.file, own.file, own.key)
    assert distrust_of(files, HOST) == distrust_of(files, "localhost") == ""
    assert "host-7" in distrust_of(files, "host-7")
    other = Authority(tmp_path / "unknown", "unknown")
    unknown = TlsFiles("[tls]", other.file, own.file, own.key)
    assert "certificate verify failed" in distrust_of(unknown, HOST)


def test_a_new_authority_counts_too(tmp_path: Path, authority: Authority) -> None:
    """The old one and the new one are in the file while certificates are replaced."""
    new = Authority(tmp_path / "new", "new")
    trusted, own = tmp_path / "ca.pem", authority.sign("server-of-two", HOST)
    shutil.copy(authority.file, trusted)
    server = Renewed.server(
        TlsFiles("[tls]", trusted, own.file, own.key), client_certificates=True
    )
    of_new = new.sign("of-new")
    client = client_context(TlsFiles("[tls]", authority.file, of_new.file, of_new.key))
    with pytest.raises((ssl.SSLError, OSError)):
        seen_by(client, server)
    trusted.write_text(authority.file.read_text() + new.file.read_text())
    assert seen_by(client, server)


def test_what_is_decrypted_already_is_there_to_be_read(
    tmp_path: Path, authority: Authority
) -> None:
    """The socket itself has nothing more: who waits for it would wait for the next ping."""
    own = authority.sign("server", HOST)
    server = Renewed.server(
        TlsFiles("[tls]", authority.file, own.file, own.key), client_certificates=False
    )
    client = client_context(TlsFiles("[tls]", authority.file))
    handler = OneSessionHandler()
    here, there = socket.socketpair()
    with ThreadPoolExecutor() as threads, here, there:
        accepting = threads.submit(server.wrap_socket, there, server_side=True)
        connection = client.wrap_socket(here, server_hostname=HOST)
        with connection, accepting.result() as serving:
            serving.sendall(b"xy")
            for byte in (b"x", b"y"):
                assert handler.select([connection], [], [], None) == ([connection], [], [])
                assert connection.recv(1) == byte
            assert handler.select([connection], [], [], 0) == ([], [], [])
