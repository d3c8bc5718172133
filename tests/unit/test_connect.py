"""How connections to ZooKeeper are made, waited for and broken, without a ZooKeeper."""

import select
import socket
import ssl
import threading
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionDropped,
    ConnectionLoss,
    InvalidACLError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol import serialization
from kazoo.protocol.states import KeeperState
from kazoo.security import CREATOR_ALL_ACL

from rmt_pipeline.protocol.errors import AccessDenied, RmtError, ZooKeeperUnreachable
from rmt_pipeline.zookeeper import connect
from rmt_pipeline.zookeeper.access import ANYONE, Access
from rmt_pipeline.zookeeper.direct import TCP_TIMEOUT_MAX_S, OneSessionHandler
from rmt_pipeline.zookeeper.sasl import Sasl

LONG_S = 30.0


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    with here, there:
        there.settimeout(60)
        yield here, there


def makes(monkeypatch: pytest.MonkeyPatch, made: Any) -> list[dict[str, Any]]:
    """What kazoo's own way to connect is asked for from now on; it gives `made`."""
    asked: list[dict[str, Any]] = []

    def create(_handler: object, **options: Any) -> Any:
        asked.append(options)
        return made

    monkeypatch.setattr(SequentialThreadingHandler, "create_connection", create)
    return asked


@pytest.mark.parametrize(("session_s", "waits_s"), [(1.0, 1.0), (60.0, TCP_TIMEOUT_MAX_S)])
def test_a_connection_is_waited_for_no_longer_than_a_close_may_wait(
    session_s: float, waits_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kazoo would wait for as long as a session lasts."""
    asked = makes(monkeypatch, "made")
    handler = OneSessionHandler()
    assert handler.create_connection(address=("a", 1), timeout=session_s) == "made"
    assert asked == [{"address": ("a", 1), "timeout": waits_s}]


def test_there_is_no_connection_after_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = makes(monkeypatch, "made")
    handler = OneSessionHandler()
    handler.may_connect = lambda: False
    with pytest.raises(ConnectionDropped, match="the session is over"):
        handler.create_connection(address=("a", 1), timeout=1.0)
    assert asked == []


def test_why_tls_failed_is_told_until_it_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was opened for it is closed."""
    closed: list[str] = []
    plain = SimpleNamespace(close=lambda: closed.append("plain"))
    asked = makes(monkeypatch, plain)
    results: list[Any] = [ssl.SSLError("not the one that we know"), "encrypted"]

    def wrap(inner: object, server_hostname: str) -> Any:
        assert (inner, server_hostname) == (plain, "there.example")
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    context = SimpleNamespace(wrap_socket=wrap)
    handler = OneSessionHandler(SimpleNamespace(context=lambda: context))  # type: ignore[arg-type]
    options: dict[str, Any] = {"hostname": "there.example", "timeout": 1.0, "use_ssl": True}
    assert handler.refused_because == ""
    with pytest.raises(ssl.SSLError):
        handler.create_connection(**options)
    assert "speaks TLS as we want it" in handler.refused_because
    assert "not the one that we know" in handler.refused_because
    assert closed == ["plain"]
    assert handler.create_connection(**options) == "encrypted"
    assert handler.refused_because == ""
    assert closed == ["plain"]
    assert asked == [{**options, "use_ssl": False}] * 2, "TLS is ours"


def test_a_connection_is_cut_for_both_sides_and_none_is_no_error(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = pair
    handler = OneSessionHandler()
    handler.cut()
    makes(monkeypatch, here)
    handler.create_connection(address=("a", 1), timeout=1.0)
    handler.cut()
    assert there.recv(1) == b""
    assert here.recv(1) == b""
    here.close()
    handler.cut()


def test_who_can_be_read_or_written_is_told(pair: tuple[socket.socket, socket.socket]) -> None:
    here, there = pair
    handler = OneSessionHandler()
    assert handler.select([here], [], [], 0) == ([], [], [])
    assert handler.select([here], [there], [here], 0) == ([], [there], [])
    there.send(b"x")
    assert handler.select([there, here], [], [], None) == ([here], [], [])
    here.recv(1)
    there.close()
    assert handler.select([here], [], [], None) == ([here], [], []), "its end is to be read"


@pytest.mark.parametrize(
    ("seconds", "milliseconds"), [(None, None), (0, 0), (0.0001, 1), (2.5, 2500)]
)
def test_who_waits_does_not_look_again_and_again(
    seconds: float | None, milliseconds: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even for less than the system's clock tells apart."""
    waited: list[int | None] = []

    def wait(timeout_ms: int | None) -> list[tuple[int, int]]:
        waited.append(timeout_ms)
        return []

    polling = SimpleNamespace(register=lambda *_: None, poll=wait)
    monkeypatch.setattr(select, "poll", lambda: polling)
    assert OneSessionHandler().select([], [], [], seconds) == ([], [], [])
    assert waited == [milliseconds]


class Decrypted(ssl.SSLSocket):
    """A TLS connection of which some bytes have arrived, and are decrypted."""

    def __init__(self, number: int, ahead: int) -> None:
        self._number, self._ahead = number, ahead

    def fileno(self) -> int:
        return self._number

    def pending(self) -> int:
        return self._ahead


def test_what_is_decrypted_already_is_not_waited_for(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    """Nothing else may come on the wire until the next ping."""
    here, _ = pair
    handler = OneSessionHandler()
    ahead, empty = Decrypted(here.fileno(), 7), Decrypted(here.fileno(), 0)
    assert handler.select([ahead], [], [], 3600) == ([ahead], [], [])
    assert handler.select([empty], [], [], 0) == ([], [], [])


class Client:
    """kazoo's client as it starts; each of the errors is raised when that is asked for."""

    client_id = (1, b"")
    default_acl = None
    chroot = ""

    def __init__(
        self, *, state: str = KeeperState.CONNECTED, errors: dict[str, Exception] | None = None
    ) -> None:
        self.client_state = state
        self.connected = state == KeeperState.CONNECTED
        self.errors = errors or {}
        self.options: dict[str, Any] = {}
        self.done: list[str] = []
        self._listeners: list[Any] = []
        self._connection = SimpleNamespace(sasl_options=None)

    def __call__(self, servers: str, **options: Any) -> "Client":
        self.options = {"servers": servers, **options}
        return self

    def add_listener(self, listener: Any) -> None:
        self._listeners.append(listener)

    def start_async(self) -> None:
        self.done.append("start")
        if self.client_state != KeeperState.CONNECTING:
            self.tell()

    def tell(self) -> None:
        for listener in self._listeners:
            listener("")

    def get_children_async(self, path: str) -> Any:
        raise NotImplementedError

    def exists_async(self, path: str) -> Any:
        return SimpleNamespace(get=lambda timeout: self._do(f"exists {path}"))

    def ensure_path(self, path: str) -> None:
        self._do(f"make {path}")

    def stop(self) -> None:
        self.done.append("stop")

    def close(self) -> None:
        self.done.append("close")

    def _do(self, what: str) -> None:
        self.done.append(what)
        if what in self.errors:
            raise self.errors[what]


@pytest.mark.parametrize("timeout_s", [0.0, LONG_S])
def test_who_is_to_stop_or_has_waited_long_enough_waits_no_longer(timeout_s: float) -> None:
    client, stops = Client(state=KeeperState.CONNECTING), iter([False, True])
    answer = connect._Answer(client, lambda: timeout_s > 0 and next(stops))
    with pytest.raises(KazooTimeoutError):
        answer.wait(timeout_s, for_belief=True)
    assert client.done == ["start"]
    assert not answer.refused


def test_a_server_that_answers_late_is_waited_for() -> None:
    client = Client(state=KeeperState.CONNECTING)
    looks: list[int] = []

    def look() -> bool:
        looks.append(1)
        if len(looks) == 2:
            client.connected = True
            client.tell()
        return False

    connect._Answer(client, look).wait(LONG_S, for_belief=False)
    assert len(looks) == 2


@pytest.mark.parametrize("for_belief", [False, True])
def test_a_server_has_answered_when_it_believes_who_we_are(*, for_belief: bool) -> None:
    """That we may not read the root is an answer, too."""
    client = Client(errors={"exists /": NoAuthError()})
    connect._Answer(client, lambda: False).wait(LONG_S, for_belief=for_belief)
    assert client.done == ["start", "exists /"][: 1 + for_belief]


def opened(
    monkeypatch: pytest.MonkeyPatch, client: Client, hosts: str = "a:1", **options: Any
) -> connect.KazooKeeper:
    monkeypatch.setattr(connect, "DirectClient", client)
    return connect.connect(hosts, **options)


@pytest.mark.parametrize(
    ("error", "ours", "words"),
    [
        (NoAuthError(), AccessDenied, "refuses /zk/x to user 'me'"),
        (InvalidACLError(), AccessDenied, "cannot make /zk/x for its creator"),
        (
            KazooTimeoutError(),
            ZooKeeperUnreachable,
            "no ZooKeeper answered at a:1/zk/ within 10 s",
        ),
        (
            ConnectionLoss(),
            ZooKeeperUnreachable,
            "no ZooKeeper answered at a:1/zk/ within 10 s",
        ),
        (SessionExpiredError(), ZooKeeperUnreachable, "no ZooKeeper answered at a:1/zk/"),
        (
            NoChildrenForEphemeralsError(),
            ZooKeeperUnreachable,
            "at a:1/zk/ refused to create /zk/x: NoChildrenForEphemerals",
        ),
    ],
)
def test_who_can_not_make_his_chroot_is_told_why_and_leaves_nothing_open(
    error: Exception, ours: type[RmtError], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(errors={"make /zk/x": error})
    access = Access("me:secret")
    with pytest.raises(ours, match=words):
        opened(monkeypatch, client, "a:1/zk/", chroot="/x", access=access)
    assert client.done == ["start", "exists /", "make /zk/x", "stop", "close"]


@pytest.mark.parametrize(
    ("state", "ours", "words"),
    [
        (KeeperState.AUTH_FAILED, AccessDenied, "does not believe that we are user 'me'"),
        (KeeperState.CLOSED, ZooKeeperUnreachable, "no ZooKeeper answered at a:1"),
    ],
)
def test_a_refused_identity_is_told_from_a_server_that_hangs_up(
    state: str, ours: type[RmtError], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(state=state)
    with pytest.raises(ours, match=words):
        opened(monkeypatch, client, access=Access("me:secret"))
    assert client.done == ["start", "stop", "close"]


def test_an_identity_that_is_refused_while_we_ask_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for error in (AuthFailedError(), ConnectionClosedError()):
        client = Client(errors={"exists /": error})
        client.client_state = KeeperState.AUTH_FAILED
        with pytest.raises(AccessDenied, match="does not believe that we are user 'me'"):
            opened(monkeypatch, client, access=Access("me:secret"))
        assert client.done == ["start", "exists /", "stop", "close"]


@pytest.mark.parametrize(
    ("access", "auth_data", "acl"),
    [
        (ANYONE, [], None),
        (Access("me:secret"), [("digest", "me:secret")], None),
        (Access(sasl=True), [], None),
        (Access("me:secret", sasl=True), [], None),
        (Access("me:secret", restricted=True), [("digest", "me:secret")], CREATOR_ALL_ACL),
    ],
)
def test_what_kazoo_is_told_of_who_we_are(
    access: Access,
    auth_data: list[tuple[str, str]],
    acl: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Client()
    keeper = opened(monkeypatch, client, "a:1,b:2", access=access, session_timeout_s=7)
    assert keeper.session_timeout_s == client.options["timeout"] == 7
    assert client.options["servers"] == "a:1,b:2"
    assert client.options["auth_data"] == auth_data
    assert client.options["default_acl"] == acl
    assert not client.options["use_ssl"]
    speaks = client._connection.sasl_options is not None
    assert speaks is bool(access.sasl and access.identity)
    assert client.done == ["start"] + ["exists /"] * bool(access.identity)
    assert client.chroot == "", "none is asked for"
    keeper.close()


def test_a_chroot_is_made_and_used(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    opened(monkeypatch, client, "a:1/zk/", chroot="/x").close()
    assert client.chroot == "/zk/x"
    assert client.done == ["start", "make /zk/x", "stop", "close"]


def test_a_client_that_gave_up_leaves_no_thread() -> None:
    """It would go on trying, for ever."""
    before = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hosts = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ZooKeeperUnreachable, match=r"within 0\.1 s"):
            connect.connect(hosts, session_timeout_s=3600, connect_timeout_s=0.1)
    assert set(threading.enumerate()) <= before


def test_who_is_interrupted_leaves_no_thread() -> None:
    """A prompt goes on after a Ctrl-C: the client would open a session later, and keep it."""
    before = set(threading.enumerate())

    def interrupt() -> bool:
        raise KeyboardInterrupt

    with socket.create_server(("127.0.0.1", 0)) as silent:
        hosts = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(KeyboardInterrupt):
            connect.connect(hosts, session_timeout_s=3600, should_stop=interrupt)
    assert set(threading.enumerate()) <= before


def test_who_does_not_reach_zookeeper_is_told_what_to_look_at() -> None:
    plain = str(connect.unreachable("a:1", 2.5))
    assert plain.startswith(
        "no ZooKeeper answered at a:1 within 2.5 s; start one with `rmt zoo"
    )
    tls = str(connect.unreachable("a:1", 2.5, " that speaks TLS as we want it (no)"))
    assert tls.startswith(
        "no ZooKeeper answered at a:1 within 2.5 s that speaks TLS as we want it"
    )
    assert "secureClientPort" in tls
    assert "secureClientPort" not in plain
    assert "start one" not in tls


class Speaking:
    """The connection on which SASL is spoken: the server's words, one for each of ours."""

    def __init__(self, *words: bytes | Exception | int | None) -> None:
        self._words = list(words)
        self.sasl_options: object = None
        self.asked: list[tuple[bytes, int]] = []
        self._authenticate_with_sasl: Any = None

    def _submit(self, request: Any, timeout_s: float, xid: int) -> None:
        assert timeout_s == 7
        self.asked.append((request.challenge, xid))

    def _read_header(self, timeout_s: float) -> tuple[Any, bytes, int]:
        assert timeout_s == 7
        word = self._words.pop(0)
        if isinstance(word, Exception):
            raise word
        if isinstance(word, int):
            return SimpleNamespace(err=word), b"", 0
        return SimpleNamespace(err=0), serialization.write_buffer(word), 0


CHALLENGE = b'realm="zk",nonce="n",qop="auth",algorithm=md5-sess'


def speak(connection: Speaking) -> None:
    client: Any = SimpleNamespace(_connection=connection)
    connect._speak_sasl(client, Access("me:secret", sasl=True))
    assert connection.sasl_options is not None, "kazoo asks us when there are any"
    connection._authenticate_with_sasl("host", 7)


def test_both_sides_prove_that_they_know_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "Sasl", partial(Sasl, nonce=lambda: "ours"))
    same = Sasl("me", "secret", nonce=lambda: "ours")
    response = same.response(CHALLENGE)
    proof = same._expected
    connection = Speaking(CHALLENGE, proof)
    speak(connection)
    assert connection.asked == [(b"", 1), (response, 2)]
    with pytest.raises(AuthFailedError, match="does not know the password"):
        speak(Speaking(CHALLENGE, b"rspauth=guessed"))
    with pytest.raises(AuthFailedError, match="does not know the password"):
        speak(Speaking(CHALLENGE, None))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((-115,), "error -115"),
        ((CHALLENGE, -115), "error -115"),
        ((b"hello",), "not a challenge"),
        ((None,), "not a challenge"),
        ((CHALLENGE, ConnectionDropped("hung up")), "hung up"),
    ],
)
def test_what_is_no_proof_of_a_password_is_a_refusal(words: tuple[Any, ...], says: str) -> None:
    """A server hangs up on a wrong password."""
    with pytest.raises(AuthFailedError, match=says):
        speak(Speaking(*words))
