"""Who may ask a server what: a stranger gets 401 and nothing else, whatever he asks for."""

import json
import socket
import time
from contextlib import ExitStack, suppress
from itertools import pairwise, product
from pathlib import Path

import pytest

from rmt_pipeline.cli.status import who_may_ask
from rmt_pipeline.config import load_config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.exchange.client import PartClient
from rmt_pipeline.exchange.guard import Guard, RenewedGuard
from rmt_pipeline.protocol.errors import BadConfiguration
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.server import listener
from rmt_pipeline.server.process import StopSwitch, serve_until
from rmt_pipeline.server.status import Counters, ServerStatus, server_app
from tests.support import asgi
from tests.support.exchange import ENDPOINT, SECRET, Sender, address, put, store_at
from tests.support.waiting import LIMIT_S

PATHS = (
    "/",
    "/health",
    "/metrics",
    "/reload",
    "/nowhere",
    "//health",
    "/health/",
    "/../health",
)
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "BREW")
PART = PartName("2013", 1, 4, 2)


class App:
    """A server's HTTP face without a server; `ask` gives the status."""

    def __init__(self, guard: Guard) -> None:
        self.counters = Counters()
        self.reloads = 0
        self._app = server_app(
            exchange=self._exchange,
            guard=guard,
            status=lambda: ServerStatus("r1", "0x1", ()),
            reload=self._reload,
            counters=self.counters,
        )

    async def _exchange(self, _scope, _receive, send) -> None:
        await send({"type": "http.response.start", "status": 299, "headers": []})
        await send({"type": "http.response.body", "body": b"a part"})

    def _reload(self) -> dict[str, str]:
        self.reloads += 1
        return {}

    def ask(self, method: str, path: str, shown: str | None = None) -> asgi.Answer:
        headers = {} if shown is None else {"Authorization": shown}
        return asgi.ask(self._app, method, path, headers=headers)


@pytest.mark.parametrize(
    "shown", [None, "", "Bearer ", "Bearer wrong", "token", "Basic dG9rZW46", "Bearer töken"]
)
def test_a_stranger_gets_401_whatever_he_asks_for(shown):
    app = App(Guard(("secret",), ("token",)))
    answers = {app.ask(method, path, shown) for method, path in product(METHODS, PATHS)}
    assert answers == {asgi.Answer(401, b"")}
    assert app.counters.sends_refused == len(METHODS) * len(PATHS)
    assert app.reloads == 0


def test_a_token_is_for_looking_alone():
    app = App(Guard(("secret",), ("token", "next token")))
    for shown in ("Bearer token", "Bearer next token"):
        assert app.ask("GET", "/health", shown).status == 200
        assert b"rmt_session 1.0" in app.ask("GET", "/metrics", shown).body
        for path in ("/", "/reload", "/nowhere"):
            assert app.ask("POST", path, shown) == asgi.Answer(401, b"")


def test_each_of_two_secrets_is_for_everything():
    app = App(Guard(("new", "old"), ("token",)))
    for shown in ("Bearer new", "Bearer old"):
        assert app.ask("POST", "/", shown).status == 299
        assert json.loads(app.ask("POST", "/reload", shown).body) == {"tables": {}}
        assert app.ask("GET", "/health", shown).status == 200
    assert "new" not in repr(Guard(("new",), ("token",)))
    assert "token" not in repr(Guard(("new",), ("token",))).replace("tokens", "")


def test_without_tokens_everybody_who_reaches_the_port_may_look():
    app = App(Guard(("secret",), open_monitoring=True))
    assert app.ask("GET", "/health").status == 200
    assert app.ask("POST", "/reload") == asgi.Answer(401, b"")
    assert app.ask("GET", "/nowhere") == asgi.Answer(401, b"")


def test_an_empty_secret_is_no_secret():
    for secrets in (("",), ("good", "")):
        with pytest.raises(AssertionError):
            Guard(secrets)


@pytest.mark.parametrize("shown", [None, "", "Bearer ", "Bearer shared"])
def test_before_zookeeper_has_told_the_secret_nobody_may_ask_but_all_may_look(tmp_path, shown):
    guard = RenewedGuard(load_config(written(tmp_path, "")), "r1")
    app = App(guard)
    assert app.ask("POST", "/", shown) == asgi.Answer(401, b"")
    assert app.ask("GET", "/health", shown).status == 200
    guard.learn("shared")
    is_peer = shown == "Bearer shared"
    assert app.ask("POST", "/", shown).status == (299 if is_peer else 401)


def test_nothing_on_the_wire_tells_a_stranger_what_this_is():
    with Sender(None) as sender:
        asked = socket.create_connection(("127.0.0.1", sender.port), LIMIT_S)
        with asked, asked.makefile("rb") as answer:
            asked.sendall(b"GET / HTTP/1.1\r\nHost: us\r\nConnection: close\r\n\r\n")
            assert answer.read().lower() == (
                b"http/1.1 401 unauthorized\r\nwww-authenticate: bearer\r\n"
                b"connection: close\r\ncontent-length: 0\r\n\r\n"
            )


def test_secrets_are_changed_without_a_pause(tmp_path):
    """Server by server: ("old", "new"), then ("new", "old"), then ("new",). Whoever shows the first
    of his own is admitted by each that is one step further, or one behind.
    """
    steps = [("old",), ("old", "new"), ("new", "old"), ("new",)]
    source, target = store_at(tmp_path / "source"), store_at(tmp_path / "target")
    put(source, PART, {})
    for earlier, later in pairwise(steps):
        for asking, asked in ((earlier, later), (later, earlier)):
            client = PartClient(asking[0])
            with Sender(source, guard=Guard(asked)) as sender:
                target.discard(client.fetch(address(sender.port), ENDPOINT, PART, target))
            client.connections.close()


def test_a_secret_is_changed_in_the_file_while_the_server_runs(tmp_path, caplog):
    """A file that can't be used, or is half written, takes nothing away."""
    file = written(tmp_path, "[exchange]\nsecret = 'first'\n[monitoring]\ntoken = 'look'")
    config = load_config(file)
    guard = RenewedGuard(config, "r1")
    with ServerContext.open(config, "r1") as asking:

        def admitted() -> str:
            names = ["first", "second", "third"]
            return " ".join(one for one in names if guard.admits("/", f"Bearer {one}".encode()))

        assert (admitted(), asking.secret()) == ("first", "first")
        written(tmp_path, "[exchange]\nsecret = ['second', 'first']")
        assert (admitted(), asking.secret()) == ("first second", "second")
        file.write_text("[exchange]\nsecret = ['third'")
        assert (admitted(), asking.secret()) == ("first second", "second")
        file.write_text("")
        assert (admitted(), asking.secret()) == ("first second", "second")
        written(tmp_path, "")
        assert (admitted(), asking.secret()) == ("first second", "second")
        assert caplog.text.count("is not taken, the old one stays") == 6
        written(tmp_path, "[exchange]\nsecret = 'third'")
        assert (admitted(), asking.secret()) == ("third", "third")


def test_the_token_of_a_server_for_strangers_can_not_be_taken_out_while_it_runs(tmp_path):
    told = "[exchange]\nsecret = 's'\n[monitoring]\ntoken = 'look'"
    config = load_config(written(tmp_path, told, "0.0.0.0:9009"))
    guard = RenewedGuard(config, "r1")
    written(tmp_path, "[exchange]\nsecret = 's'", "0.0.0.0:9009")
    assert not guard.admits("/metrics", b"")
    written(
        tmp_path, "[exchange]\nsecret = 's'\n[monitoring]\ntoken = 'another'", "0.0.0.0:9009"
    )
    assert guard.admits("/metrics", b"Bearer another")
    assert not guard.admits("/metrics", b"Bearer look")


def test_a_file_that_lost_its_servers_opens_nothing(tmp_path, caplog):
    """The embedded default, which it has then, listens on this host alone and needs no token."""
    told = "[exchange]\nsecret = 's'\n[monitoring]\ntoken = 'look'"
    config = load_config(written(tmp_path, told, "0.0.0.0:9009"))
    guard = RenewedGuard(config, "r1", "shared")
    (tmp_path / "rmt.toml").write_text("[exchange]\nsecret = 's'")
    assert not guard.admits("/metrics", b"")
    assert guard.admits("/metrics", b"Bearer look")
    assert "servers.r1 has another `data` or `listen` in it" in caplog.text


def test_the_secret_in_zookeeper_stays_until_the_next_start(tmp_path):
    config = load_config(written(tmp_path, ""))
    guard = RenewedGuard(config, "r1", "shared")
    assert guard.admits("/", b"Bearer shared")
    written(tmp_path, "[exchange]\nsecret = ['own', 'shared']")
    assert guard.admits("/", b"Bearer own")
    written(tmp_path, "# nothing of our own")
    assert guard.admits("/", b"Bearer shared")


def written(directory: Path, text: str, listen: str = "127.0.0.1:9009") -> Path:
    file = directory / "rmt.toml"
    file.write_text(
        f"[servers.r1]\ndata = 'r1'\nlisten = '{listen}'\nadvertise = 'h:9009'\n{text}"
    )
    return file


@pytest.mark.parametrize("listen", ["0.0.0.0:9009", "[::]:9009", "10.0.0.1:9009", "r1:9009"])
def test_a_server_that_strangers_could_ask_does_not_start(tmp_path, listen):
    config = load_config(written(tmp_path, "", listen))
    with pytest.raises(BadConfiguration) as caught:
        serve_until(StopSwitch(), config, "r1")
    for words in (listen, "servers.r1", "[monitoring] token", "client_certificates"):
        assert words in str(caught.value)
    assert not (tmp_path / "r1").exists()
    for remedy in (
        "[monitoring]\ntoken = 't'",
        "[tls]\ncertificate = 'c'\nca = 'a'\nclient_certificates = true",
    ):
        load_config(written(tmp_path, remedy, listen)).require_guarded("r1")


def test_the_servers_of_the_example_for_several_hosts_start():
    """With other addresses, as its own test runs it, nothing would be open to other hosts."""
    config = load_config(Path(__file__).parents[3] / "examples" / "production" / "rmt.toml")
    assert not config.server("r1").listen_address.is_local
    for name in config.servers:
        config.require_guarded(name)


@pytest.mark.parametrize("listen", ["127.0.0.1:1", "127.0.0.2:1", "[::1]:1", "localhost:1"])
def test_a_server_for_its_own_host_needs_nothing(tmp_path, listen):
    load_config(written(tmp_path, "", listen)).require_guarded("r1")


def test_it_is_told_who_may_ask(tmp_path):
    def told(text: str, listen: str = "127.0.0.1:9009") -> str:
        config = load_config(written(tmp_path, text, listen))
        return who_may_ask(config, config.server("r1"))

    assert told("") == (
        "127.0.0.1:9009 (http) answers this host alone: parts and control need the exchange "
        "secret in ZooKeeper, /health and /metrics need nothing"
    )
    guarded = (
        "[exchange]\nsecret = ['new', 'old']\n[monitoring]\ntoken = 't'\n"
        "[tls]\ncertificate = 'c'\nca = '/ca.pem'\nclient_certificates = true"
    )
    assert told(guarded, "0.0.0.0:9009") == (
        "0.0.0.0:9009 (https) answers anyone who reaches the port with a certificate signed by "
        "/ca.pem: parts and control need the exchange secret in [exchange] of rmt.toml, /health "
        "and /metrics need a token of [monitoring], or that secret"
    )


# Strangers who say little, or much


def hung_up(port: int, *said: bytes, pause_s: float = 0.0) -> bytes:
    """What a server answers before it hangs up on who says this, each after a pause."""
    with socket.create_connection(("127.0.0.1", port), LIMIT_S) as connection:
        answer = b""
        try:
            for piece in said:
                connection.sendall(piece)
                time.sleep(pause_s)
            while piece := connection.recv(65536):
                answer += piece
        except (ConnectionResetError, BrokenPipeError):
            pass
        return answer


@pytest.mark.parametrize(
    "said",
    [(), (b"GET / HT",), (b"GET / HTTP/1.1\r\n", b"A: b\r\n", *[b"C: d\r\n"] * 8)],
    ids=["nothing", "half a line", "a header at a time"],
)
def test_who_does_not_say_what_he_wants_is_hung_up_on(monkeypatch, said):
    monkeypatch.setattr(listener, "REQUEST_S", 0.2)
    with Sender(None) as sender:
        assert hung_up(sender.port, *said, pause_s=0.05) == b""
        assert sender._listener._server.server_state.connections == set()


def test_who_asks_again_has_as_long_again(monkeypatch):
    """And an idle connection stays, for the next fetch."""
    monkeypatch.setattr(listener, "REQUEST_S", 0.3)
    request = b"HEAD / HTTP/1.1\r\nAuthorization: Bearer %s\r\n\r\n" % SECRET.encode()
    with Sender(None) as sender:
        asking = socket.create_connection(("127.0.0.1", sender.port), LIMIT_S)
        with asking:
            for _ in range(3):
                asking.sendall(request)
                assert asking.recv(65536).startswith(b"HTTP/1.1 405")
                time.sleep(0.35)
            asking.sendall(request[:9])
            assert asking.recv(1) == b"", "half a request does not stay"


def test_a_stranger_is_hung_up_on_after_the_answer():
    """Else he keeps a connection for as long as peers do, each time that he asks."""
    with Sender(None) as sender:
        answer = hung_up(sender.port, b"GET / HTTP/1.1\r\nHost: us\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 401")
    assert b"\r\nconnection: close\r\n" in answer


def test_many_connections_do_not_use_up_the_descriptors_and_keep_no_peer_out(monkeypatch):
    """Those that have waited longest for a request are hung up on; a request is answered."""
    monkeypatch.setattr(listener, "CONNECTIONS_MAX", 8)
    request = b"HEAD / HTTP/1.1\r\nAuthorization: Bearer %s\r\n\r\n" % SECRET.encode()
    with Sender(None) as sender, ExitStack() as opened:
        for _ in range(3):
            strangers = [
                opened.enter_context(socket.create_connection(("127.0.0.1", sender.port)))
                for _ in range(20)
            ]
            asking = socket.create_connection(("127.0.0.1", sender.port), LIMIT_S)
            opened.enter_context(asking)
            asking.sendall(request)
            assert asking.recv(65536).startswith(b"HTTP/1.1 405")
            strangers[0].settimeout(LIMIT_S)
            with suppress(ConnectionResetError):
                assert strangers[0].recv(1) == b""
            assert len(sender._listener._server.server_state.connections) <= 8


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\nA: " + b"a" * 200_000,
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 40_000,
        b"GET /" + b"a" * 200_000,
        b"POST / HTTP/1.1\r\nHost: us\r\nContent-Length: 999999999\r\n\r\n" + b"a" * 200_000,
        b"GET / HTTP/1.1\r\nHost: us\r\n\r\n" * 10_000,
    ],
    ids=["a long header", "many headers", "a long path", "a body", "many requests"],
)
def test_who_says_more_than_anybody_needs_is_hung_up_on(said):
    with Sender(None) as sender:
        answer = hung_up(sender.port, said)
    assert not answer or answer[:12] in {b"HTTP/1.1 401", b"HTTP/1.1 400"}
