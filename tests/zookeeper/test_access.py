"""ZooKeeper that is for us alone: identities, access lists, a chroot, TLS. One server for all."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.states import KeeperState
from kazoo.security import make_digest_acl_credential

from examples.flights.ports import free_port
from rmt_pipeline.config import TlsFiles, load_config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.exchange.secret import SECRET_PATH, exchange_secret
from rmt_pipeline.processes.zookeeper import EmbeddedZooKeeper
from rmt_pipeline.protocol.errors import AccessDenied, ZooKeeperUnreachable
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.system import RandomIds
from rmt_pipeline.zookeeper.access import ANYONE, Access
from rmt_pipeline.zookeeper.connect import connect
from rmt_pipeline.zookeeper.kazoo_keeper import KazooKeeper
from rmt_pipeline.zookeeper.keeper import Create, Op, SetData, Stat
from tests.support.certificates import Authority
from tests.support.lasting import lasting
from tests.support.serving import Served, config_at
from tests.support.waiting import LASTING_S, until

pytestmark = pytest.mark.zookeeper

US = Access("rmt:pass:word", restricted=True)
SUPER = "super:of-the-test"
JAAS = """
Server {
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_rmt="pass:word";
};
"""


class Secured:
    """A ZooKeeper that speaks TLS at another port too, and SASL at both."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory / "certificates")
        self.stranger = Authority(directory / "stranger")
        own = self.authority.sign("zookeeper", "127.0.0.1")
        self.tls_port = free_port()
        (directory / "jaas.conf").write_text(JAAS)
        self.server = EmbeddedZooKeeper(
            directory / "data",
            free_port(),
            force_sync=False,
            settings=(
                "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
                f"secureClientPort={self.tls_port}\n"
                "secureClientPortAddress=127.0.0.1\n"
                "ssl.keyStore.type=PEM\n"
                f"ssl.keyStore.location={own.together}\n"
                "ssl.trustStore.type=PEM\n"
                f"ssl.trustStore.location={self.authority.file}\n"
                "authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n"
            ),
            properties={
                "java.security.auth.login.config": str(directory / "jaas.conf"),
                "zookeeper.DigestAuthenticationProvider.superDigest": (
                    make_digest_acl_credential(*SUPER.split(":"))
                ),
            },
        )

    @property
    def hosts(self) -> str:
        return self.server.hosts

    @property
    def tls_hosts(self) -> str:
        return f"127.0.0.1:{self.tls_port}"

    def tls(self, name: str = "client") -> TlsFiles:
        mine = self.authority.sign(name, "nobody.invalid")
        return TlsFiles("[zookeeper]", self.authority.file, mine.file, mine.key)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("secured"))
    with made.server:
        yield made


def access_lists(hosts: str, below: str) -> dict[str, set[tuple[str, str, int]]]:
    """Of every node there, as only the super user may read them: scheme, identity, rights."""
    client = KazooClient(hosts, timeout=LASTING_S, auth_data=[("digest", SUPER)])
    client.start(LASTING_S)
    try:
        found, left = {}, [below]
        while left:
            path = left.pop()
            acls, _ = client.get_acls(path)
            found[path] = {(acl.id.scheme, acl.id.id, acl.perms) for acl in acls}
            left += [f"{path.rstrip('/')}/{name}" for name in client.get_children(path)]
        return found
    finally:
        client.stop()
        client.close()


STATEMENTS = (
    "OPTIMIZE TABLE t FINAL",
    "ALTER TABLE t DELETE WHERE n = 1 SETTINGS mutations_sync = 1",
    "INSERT INTO t SETTINGS insert_quorum = 1, insert_quorum_parallel = 0 VALUES (7)",
    "ALTER TABLE t ADD COLUMN m UInt8",
    "ALTER TABLE d.t ADD COLUMN m UInt8",
    "ALTER TABLE t CLEAR COLUMN m IN PARTITION tuple()",
    "OPTIMIZE TABLE t FINAL",
    "CREATE TABLE u AS t ENGINE = ReplicatedMergeTree ORDER BY n",
    "SYSTEM SYNC REPLICA u",
    "ALTER TABLE u REPLACE PARTITION tuple() FROM t",
    "ALTER TABLE u ATTACH PARTITION tuple() FROM t",
    "ALTER TABLE t MOVE PARTITION tuple() TO TABLE u",
    "ALTER TABLE u DETACH PARTITION tuple()",
    "ALTER TABLE u ATTACH PARTITION tuple()",
    "ALTER TABLE u FREEZE WITH NAME 'monday'",
    "RENAME TABLE u TO v",
    "DETACH TABLE v",
    "ATTACH TABLE v",
    "DROP TABLE v",
    "UNDROP TABLE v",
    "TRUNCATE TABLE v",
    "DROP TABLE v SYNC",
    "DROP TABLE d.t SYNC",
    "ALTER TABLE t DROP PARTITION tuple()",
)


def test_all_that_a_server_makes_is_for_it_alone(
    secured: Secured, chroot: str, tmp_path: Path
) -> None:
    """Tables, a database, inserts, mutations, merges, statements ON CLUSTER; and a stranger who
    may not read the exchange secret, with which he could write.
    """
    file = config_at(
        tmp_path, secured.hosts + chroot, data={"r1": "r1"}, identity=f'"{US.identity}"'
    ).path
    file.write_text(
        file.read_text()
        + '\n[clusters.c]\nshards = [["r1"]]\n[spark]\nremote = "sc://127.0.0.1:1"\n'
    )
    config = load_config(file)
    with Served(config, work=True) as served, ServerContext.open(config, "r1") as context:
        session = Session(context)
        session.execute("CREATE DATABASE d ENGINE = Replicated('/databases/d', 's', 'r1')")
        for table in ("default.t ON CLUSTER c", "d.t"):
            session.execute(
                f"CREATE TABLE {table} (n UInt64) ENGINE = ReplicatedMergeTree ORDER BY n"
            )
        served.until(served.is_active)
        for number in range(3):
            session.execute(f"INSERT INTO t VALUES ({number})")
        everything = 31
        ours = {("digest", make_digest_acl_credential("rmt", "pass:word"), everything)}
        seen = set()
        for statement in STATEMENTS:
            session.execute(statement)
            lists = access_lists(secured.hosts, chroot)
            others = {path: acl for path, acl in lists.items() if acl != ours}
            assert others == {}, statement
            seen |= lists.keys()
        assert len(seen) > 150
        assert f"{chroot}{SECRET_PATH}" in lists
        with pytest.raises(
            AccessDenied, match=f"refuses {chroot} to a client without an identity"
        ):
            lasting(secured.hosts, chroot=chroot)
        stranger = Rooted(lasting(secured.hosts), chroot)
        with pytest.raises(
            AccessDenied, match=rf"refuses \S+{SECRET_PATH} to a client without an identity"
        ):
            exchange_secret(stranger, RandomIds())
        stranger.close()


def test_a_stranger_is_told_the_node_and_the_remedy(secured: Secured, chroot: str) -> None:
    ours = lasting(secured.hosts, chroot=chroot, access=US)
    ours.multi([Create("/a", b"secret"), Create("/b"), Create("/b/c")])
    stranger = Rooted(lasting(secured.hosts, access=stranger_of("thief")), chroot)
    for forbidden in (
        lambda: stranger.get("/a"),
        lambda: stranger.get_many(["/a", "/b"]),
        lambda: stranger.exists_many(["/a", "/b"]),
        lambda: stranger.children("/a"),
        lambda: stranger.children_many(["/a", "/b"]),
        lambda: stranger.multi([SetData("/a", b"mine")]),
        lambda: stranger.multi([Create("/a/mine")]),
    ):
        with pytest.raises(AccessDenied) as caught:
            forbidden()
        assert str(caught.value).startswith(f"ZooKeeper refuses {chroot}/a")
        assert "to user 'thief': the node's access list is for others" in str(caught.value)
        assert "[zookeeper] identity in rmt.toml" in str(caught.value)
        assert "guessed" not in str(caught.value)
    with pytest.raises(AccessDenied, match=f"refuses {chroot}/b/deeper to user 'thief'"):
        lasting(f"{secured.hosts}{chroot}/b/deeper", access=stranger_of("thief"))
    assert ours.get("/a")[0] == b"secret"
    ours.close()
    stranger.close()


class Rooted:
    """A keeper of the whole tree, asked for nodes below `root`: a stranger may not even ask
    whether a chroot is there.
    """

    def __init__(self, keeper: KazooKeeper, root: str) -> None:
        self._keeper = keeper
        self._root = root

    def get(self, path: str) -> object:
        return self._keeper.get(self._root + path)

    def get_many(self, paths: list[str]) -> object:
        return self._keeper.get_many([self._root + path for path in paths])

    def exists_many(self, paths: list[str]) -> list[Stat | None]:
        return self._keeper.exists_many([self._root + path for path in paths])

    def children(self, path: str) -> object:
        return self._keeper.children(self._root + path)

    def children_many(self, paths: list[str]) -> object:
        return self._keeper.children_many([self._root + path for path in paths])

    def multi(self, ops: list[Op]) -> object:
        return self._keeper.multi([replace(op, path=self._root + op.path) for op in ops])

    def close(self) -> None:
        self._keeper.close()


def stranger_of(name: str) -> Access:
    return Access(f"{name}:guessed", restricted=True)


def test_nodes_are_open_when_nobody_is_configured(secured: Secured, chroot: str) -> None:
    keeper = lasting(secured.hosts, chroot=chroot, access=ANYONE)
    keeper.multi([Create("/a")])
    keeper.close()
    lists = access_lists(secured.hosts, chroot)
    assert set().union(*lists.values()) == {("world", "anyone", 31)}


def test_who_is_nobody_can_make_nothing_for_himself(secured: Secured, chroot: str) -> None:
    with pytest.raises(AccessDenied, match=r"cannot make .* for its creator alone.*identity"):
        lasting(secured.hosts, chroot=chroot, access=Access(restricted=True))


def test_sasl_says_who_we_are_without_the_password(secured: Secured, chroot: str) -> None:
    keeper = lasting(secured.hosts, chroot=chroot, access=replace(US, sasl=True))
    keeper.multi([Create("/a", b"1")])
    assert keeper.get("/a")[0] == b"1"
    keeper.close()
    lists = access_lists(secured.hosts, chroot)
    assert set().union(*lists.values()) == {("sasl", "rmt", 31)}
    with pytest.raises(AccessDenied, match=f"refuses {chroot}"):
        lasting(secured.hosts, chroot=chroot, access=US)


@pytest.mark.parametrize("identity", ["rmt:wrong", "nobody:pass:word"])
def test_a_wrong_password_of_sasl_is_told(secured: Secured, identity: str) -> None:
    with pytest.raises(AccessDenied, match=r"does not believe.*\[zookeeper\]") as caught:
        lasting(secured.hosts, access=Access(identity, sasl=True))
    assert "wrong" not in str(caught.value)


def test_a_wrong_password_is_told_also_when_the_answer_comes_before_we_look(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = KazooClient.start_async

    def begin_and_be_slow(client: KazooClient) -> threading.Event:
        live: threading.Event = begin(client)
        until(lambda: client.client_state == KeeperState.CLOSED, lambda: client.client_state)
        return live

    monkeypatch.setattr(KazooClient, "start_async", begin_and_be_slow)
    with pytest.raises(AccessDenied, match="does not believe"):
        lasting(secured.hosts, access=Access("rmt:wrong", sasl=True))


def test_all_goes_through_tls(secured: Secured, chroot: str) -> None:
    """Many answers at once, some larger than a record of TLS, and watches."""
    access = replace(US, tls=secured.tls())
    keeper = lasting(secured.tls_hosts + chroot, access=access)
    names = [f"/n{number:03}" for number in range(300)]
    data = b"x" * 3_000
    for start in range(0, 300, 100):
        keeper.multi([Create(name, data) for name in names[start : start + 100]])
    assert [read[0] for read in keeper.get_many(names) if read] == [data] * 300
    assert len(keeper.exists_many(names)) == 300
    seen = threading.Event()
    keeper.children("/", seen.set)
    other = lasting(secured.tls_hosts, chroot=chroot, access=access)
    other.multi([Create("/new")])
    until(seen.is_set, lambda: "the watch")
    keeper.close()
    other.close()


def test_a_certificate_is_an_identity(secured: Secured, chroot: str) -> None:
    access = Access(restricted=True, tls=secured.tls("somebody"))
    keeper = lasting(secured.tls_hosts, chroot=chroot, access=access)
    keeper.multi([Create("/a")])
    keeper.close()
    lists = access_lists(secured.hosts, chroot)
    assert set().union(*lists.values()) == {("x509", "CN=somebody", 31)}


def test_a_server_of_another_name_or_authority_is_not_talked_to(secured: Secured) -> None:
    known = secured.tls()
    lasting(secured.tls_hosts, access=Access("a:b", tls=known)).close()  # who answers in time
    by_name = f"localhost:{secured.tls_port}"  # its certificate is of 127.0.0.1
    is_refused(by_name, known, "Hostname mismatch")
    is_refused(secured.tls_hosts, replace(known, ca=secured.stranger.file), UNVERIFIED)
    is_refused(secured.tls_hosts, replace(known, ca=None), UNVERIFIED)


UNVERIFIED = "certificate verify failed"


def is_refused(hosts: str, tls: TlsFiles, reason: str) -> None:
    """By us, once the server has shown its certificate. A busy one is asked for ever longer."""
    for seconds in (2.0, 20.0, 200.0):
        with pytest.raises(ZooKeeperUnreachable) as caught:
            connect(hosts, connect_timeout_s=seconds, access=Access("a:b", tls=tls))
        if reason in str(caught.value):
            return
    raise AssertionError(caught.value)
