"""TLS with the certificates that the configuration names, read again when their files change."""

import logging
import ssl
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rmt_pipeline.config import TlsFiles
from rmt_pipeline.protocol.errors import BadConfiguration

_log = logging.getLogger(__name__)

_Stamp = tuple[tuple[int, int, int], ...]


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """Of who connects: the other side's name is checked. Raises BadConfiguration."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if files.ca is None:
        context.load_default_certs()
    return _filled(context, files)


def server_context(files: TlsFiles, *, client_certificates: bool) -> ssl.SSLContext:
    """Of who is connected to. `client_certificates`: nobody without one gets a word. Raises
    BadConfiguration.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if client_certificates:
        context.verify_mode = ssl.CERT_REQUIRED
    return _filled(context, files)


def distrust_of(files: TlsFiles, name: str) -> str:
    """Why whoever has the same files does not believe that a server with them is at `name`: it is
    not in the certificate, which is too old, or nobody known has signed it. "" when he does.
    """
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        client_context(files).wrap_bio(back, there, server_hostname=name),
        server_context(files, client_certificates=False).wrap_bio(
            there, back, server_side=True
        ),
    )
    for side in sides * 2:  # hello, hello and certificate, and the client has seen it
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLError as error:
            return str(error)
    return ""


def _filled(context: ssl.SSLContext, files: TlsFiles) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if files.ca is not None:
        try:
            context.load_verify_locations(files.ca)
        except (OSError, ValueError) as error:
            raise _unusable(files, "ca", files.ca, error) from error
    if files.certificate is not None:
        try:  # an encrypted key would be asked for at the terminal
            context.load_cert_chain(files.certificate, files.key, password=_no_password)
        except (OSError, ValueError) as error:
            raise _unusable(files, "certificate", files.certificate, error) from error
    return context


def _unusable(files: TlsFiles, key: str, file: Path, error: Exception) -> BadConfiguration:
    with_key = f" with its key {files.key}" if key == "certificate" and files.key else ""
    return BadConfiguration(
        f"{files.section} {key} {file}{with_key} cannot be used ({error}): write the path of "
        "a PEM file that this user may read; a key has no password and fits its certificate"
    )


def _no_password() -> bytes:
    raise ValueError("it has a password")


class Renewed:
    """A context made of files, and made again when they have changed: certificates are renewed
    without a restart. While new ones can't be used the last good ones are. Safe for threads.
    """

    def __init__(self, files: TlsFiles, make: Callable[[], ssl.SSLContext]) -> None:
        self._files = files
        self._make = make
        self._lock = threading.Lock()
        self._stamp = self._looked()
        self._context = make()

    @classmethod
    def client(cls, files: TlsFiles) -> "Renewed":
        """Raises BadConfiguration."""
        return cls(files, partial(client_context, files))

    @classmethod
    def server(cls, files: TlsFiles, *, client_certificates: bool) -> ssl.SSLContext:
        """What a listener has for ever; each handshake takes the files of now. Raises
        BadConfiguration.
        """
        make = partial(server_context, files, client_certificates=client_certificates)
        renewed, listening = cls(files, make), make()

        def take(connection: ssl.SSLObject, name: str | None, first: ssl.SSLContext) -> None:
            del name, first  # OpenSSL asks for each client, whether it names a host or not
            connection.context = renewed.context()

        listening.sni_callback = take
        return listening

    def context(self) -> ssl.SSLContext:
        with self._lock:
            stamp = self._looked()
            if stamp != self._stamp:
                # Before the try: two files are not written at once, it is tried at each change.
                self._stamp = stamp
                try:
                    self._context = self._make()
                except BadConfiguration as error:
                    _log.warning("new certificates are not taken, the old ones stay: %s", error)
            return self._context

    def _looked(self) -> _Stamp:
        """Another one when a file was written or replaced."""
        files = self._files
        try:
            stats = [file.stat() for file in (files.ca, files.certificate, files.key) if file]
        except OSError:
            return ()
        return tuple((one.st_mtime_ns, one.st_size, one.st_ino) for one in stats)
