"""The configuration: what it holds, and that every mistake is named with its remedy."""

import subprocess
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmt_pipeline.config import Address, Config, expand, load_config
from rmt_pipeline.protocol.errors import BadConfiguration, UnknownCluster, UserError

COMPLETE = """
[zookeeper]
embedded = true
port = 12181
data = "zk"
session_timeout_s = 6
[servers.r1]
data = "one"
listen = "127.0.0.1:19009"
macros = {shard = "01", replica = "r1"}
[servers.r2]
data = "/elsewhere/two"
listen = "0.0.0.0:19010"
advertise = "host2:19010"
secret = "of-r2"
[spark]
master = "local[2]"
[dagster]
home = "dag"
port = 13000
[exchange]
secret = "of-all"
"""


SERVER = "[servers.r1]\ndata = 'a'\nlisten = '127.0.0.1:1'\n"


def written(directory: Path, text: str) -> Path:
    file = directory / "rmt.toml"
    file.write_text(text)
    return file


def complaint(directory: Path, text: str) -> str:
    with pytest.raises(BadConfiguration) as caught:
        load_config(written(directory, text))
    return str(caught.value)


def test_every_section_is_read_and_relative_paths_belong_to_the_files_directory(tmp_path):
    config = load_config(written(tmp_path, COMPLETE))
    assert config.path == tmp_path / "rmt.toml"
    assert config.zookeeper_hosts == "127.0.0.1:12181"
    assert config.zookeeper.embedded
    assert config.zookeeper.data == tmp_path / "zk"
    assert config.server("r1").data == tmp_path / "one"
    assert config.server("r2").data == Path("/elsewhere/two")
    assert config.server("r1").name == "r1"
    assert config.server("r2").listen_address == Address("0.0.0.0", 19010)
    assert config.server("r2").advertised_address == Address("host2", 19010)
    assert config.dagster.home == tmp_path / "dag"
    assert config.spark.connect_url is None
    assert config.secrets_of("r1") == ("of-all",)
    assert config.secrets_of("r2") == ("of-r2",)


def test_the_command_lines_file_wins_over_the_environments(tmp_path, monkeypatch):
    environment = tmp_path / "environment"
    environment.mkdir()
    monkeypatch.setenv("RMT_CONFIG", str(written(environment, "[zookeeper]\nport = 1\n")))
    assert load_config().zookeeper.port == 1
    assert load_config(written(tmp_path, "[zookeeper]\nport = 2\n")).zookeeper.port == 2


def test_the_file_of_the_current_directory_is_read_when_no_other_is_named(
    tmp_path, monkeypatch
):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RMT_CONFIG", raising=False)
    here = written(tmp_path, "[zookeeper]\nport = 3\n")
    assert (load_config().zookeeper.port, load_config().path) == (3, here)
    monkeypatch.setenv("RMT_CONFIG", str(written(elsewhere, "[zookeeper]\nport = 4\n")))
    assert load_config().zookeeper.port == 4


def test_without_a_file_there_are_two_servers_below_rmt_data(tmp_path, monkeypatch):
    monkeypatch.delenv("RMT_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    config = load_config()
    assert config.path is None
    assert [(s.name, str(s.listen_address)) for s in config.servers.values()] == [
        ("r1", "127.0.0.1:9009"),
        ("r2", "127.0.0.1:9010"),
    ]
    assert config.server("r2").data == tmp_path / "rmt-data" / "r2"
    assert config.zookeeper.data == tmp_path / "rmt-data" / "zookeeper"
    assert config.spark.connect_url == "sc://127.0.0.1:15002"
    assert config.spark.is_ours


def test_a_file_without_servers_changes_only_what_it_says_of_the_default(tmp_path):
    config = load_config(written(tmp_path, "[zookeeper]\nport = 3\n[dagster]\nport = 4\n"))
    assert (config.zookeeper.port, config.dagster.port) == (3, 4)
    assert [one.data for one in config.servers.values()] == [
        tmp_path / "rmt-data" / name for name in ("r1", "r2")
    ]
    assert config.server("r2").macros["replica"] == "r2"
    assert config.clusters.keys() == {"default"}


def test_of_somebody_elses_zookeeper_no_servers_are_made_up(tmp_path):
    config = load_config(written(tmp_path, '[zookeeper]\nhosts = "zk1:2181"\n'))
    assert not config.servers


def test_hosts_mean_that_zookeeper_is_somebody_elses(tmp_path):
    config = load_config(written(tmp_path, '[zookeeper]\nhosts = "zk1:2181,zk2:2181"\n'))
    assert not config.zookeeper.embedded
    assert config.zookeeper_hosts == "zk1:2181,zk2:2181"


def test_of_several_secrets_the_first_is_shown(tmp_path):
    config = load_config(written(tmp_path, "[exchange]\nsecret = ['new', 'old']\n" + SERVER))
    assert config.secrets_of("r1") == ("new", "old")
    assert config.scheme == "http"
    config = load_config(written(tmp_path, "[tls]\ncertificate = 'own.pem'\n" + SERVER))
    assert config.secrets_of("r1") == ()
    assert config.scheme == "https"
    assert config.tls.files.certificate == tmp_path / "own.pem"


def test_nodes_are_for_us_alone_once_zookeeper_knows_us(tmp_path):
    def zookeeper(text: str):
        return load_config(written(tmp_path, f"[zookeeper]\nhosts = 'a:1'\n{text}")).zookeeper

    assert not zookeeper("").is_restricted
    assert zookeeper("identity = 'rmt:pass:word'").is_restricted
    assert not zookeeper("identity = 'rmt:word'\nacl = 'open'").is_restricted
    by_certificate = zookeeper("acl = 'creator'\ntls = true\ncertificate = 'own.pem'")
    assert by_certificate.is_restricted
    assert by_certificate.tls_files.certificate == tmp_path / "own.pem"
    assert zookeeper("").tls_files is None
    assert "pass" not in repr(zookeeper("identity = 'rmt:pass:word'"))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[zookeper]\n", ["zookeper", "did you mean 'zookeeper'"]),
        ("[zookeeper]\nhostz = 'a'\n", ["zookeeper.hostz", "did you mean 'hosts'"]),
        ("[spark]\nxyzzy = 1\n", ["spark.xyzzy", "keys here: data, master, port, remote"]),
        ("[servers.r1]\nlisen = 'a:1'\n", ["servers.r1.lisen", "did you mean 'listen'"]),
        ("[servers.r1]\nlisten = 'a:1'\n", ["servers.r1.data", "needed"]),
        (
            "[servers.r1]\ndata = 'a'\nlisten = '9009'\n",
            ["servers.r1.listen", "'9009'", "host:port"],
        ),
        (
            "[servers.r1]\ndata = 'a'\nlisten = 'a:1'\nmacros = {s = 1}",
            ["servers.r1.macros", "texts in quotes, and s is 1"],
        ),
        ("[servers.r1]\ndata = 'a'\nlisten = '0.0.0.0:1'\n", ["servers.r1", "advertise"]),
        ("[servers.'a/b']\ndata = 'a'\nlisten = 'a:1'\n", ["servers.a/b", "letters"]),
        ("[zookeeper]\nport = '2181'\n", ["zookeeper.port", "'2181'", "whole number"]),
        ("[zookeeper]\nport = true\n", ["zookeeper.port", "True", "whole number"]),
        ("[zookeeper]\nembedded = 1\n", ["zookeeper.embedded", "1", "true or false"]),
        ("[zookeeper]\nsession_timeout_s = 0\n", ["session_timeout_s", "0", "from 1 to 600"]),
        ("[dagster]\nhome = 3\n", ["dagster.home", "3", "a path in quotes"]),
        ("[spark]\nmaster = ''\n", ["spark.master", "''", "match"]),
        ("servers = 1\n", ["servers", "1", "a section"]),
        ("[servers]\nr1 = 1\n", ["servers.r1", "1", "a section"]),
        ("[zookeeper]\nport = 70000\n", ["zookeeper.port", "70000", "65535"]),
        ("[zookeeper]\nembedded = true\nhosts = 'a:1'\n", ["zookeeper", "exclude each other"]),
        ("[zookeeper]\nembedded = false\n", ["zookeeper", "hosts"]),
        ("[spark]\nremote = 'http://a'\n", ["spark.remote", "http://a", "sc://"]),
        ("[spark]\nremote = 'sc://a'\nmaster = 'local'\n", ["spark", "exclude each other"]),
        ("[exchange]\nsecret = 'with space'\n", ["exchange.secret", "not shown", "match"]),
        ("[zookeeper]\nidentity = 'rmt'\n", ["identity", "not shown", "match"]),
        ("[zookeeper]\nauthentication = 'md5'\n", ["'md5'", '"digest" or "sasl"']),
        ("[zookeeper]\nacl = 'creator'\n", ["acl", "needs identity"]),
        ("[zookeeper]\ntls = true\n", ["zookeeper", "speaks no TLS"]),
        ("[zookeeper]\nhosts = 'a:1'\nca = 'a'\n", ["zookeeper", "need tls = true"]),
        (
            "[zookeeper]\nhosts = 'a:1'\ntls = true\nkey = 'a'\n",
            ["zookeeper", "key is there without certificate"],
        ),
        ('[exchange]\nsecret = """a\n"""\n', ["exchange.secret", "not shown", "match"]),
        ('[zookeeper]\nidentity = """u:p\n"""\n', ["zookeeper.identity", "not shown", "match"]),
        ("[exchange]\nsecret = []\n", ["exchange.secret", "not shown", "a text"]),
        ("[exchange]\nsecret = ['a', 'b c']\n", ["exchange.secret", "not shown", "match"]),
        ("[files]\numask = 77\n", ["files.umask", "77", "a umask in quotes"]),
        ("[files]\numask = '777'\n", ["files.umask", "takes nothing from the owner"]),
        ("[files]\numask = '088'\n", ["files.umask", "'088'"]),
        ("[monitoring]\ntoken = ''\n", ["monitoring.token", "not shown", "match"]),
        ("[tls]\nca = 'a'\n", ["tls", "without certificate there is no TLS"]),
        (
            "[tls]\ncertificate = 'a'\nclient_certificates = true\n",
            ["tls", "client_certificates = true needs ca"],
        ),
        ("zookeeper = 3\n", ["zookeeper", "3", "a section"]),
        ("[zookeeper\n", ["is not TOML", "line 1"]),
    ],
)
def test_a_mistake_is_named_with_its_file_its_key_and_what_it_should_be(tmp_path, text, parts):
    message = complaint(tmp_path, text)
    for part in [str(tmp_path / "rmt.toml"), *parts]:
        assert part in message


def test_all_mistakes_of_a_file_are_told_at_once(tmp_path):
    message = complaint(tmp_path, "[zookeeper]\nport = 'x'\n[spark]\nprt = 1\n")
    assert "zookeeper.port" in message
    assert "spark.prt" in message


@pytest.mark.parametrize(
    ("r2", "shared"),
    [
        ("data = 'a'\nlisten = 'x:2'", "same data"),
        ("data = 'b'\nlisten = 'x:1'", "both listen"),
    ],
)
def test_two_servers_share_neither_directory_nor_address(tmp_path, r2, shared):
    text = f"[servers.r1]\ndata = 'a'\nlisten = 'x:1'\n[servers.r2]\n{r2}\n"
    message = complaint(tmp_path, text)
    assert shared in message
    assert "r1 and r2" in message


def test_a_secret_is_never_shown(tmp_path):
    assert "12345" not in complaint(tmp_path, "[exchange]\nsecret = 12345\n")
    config = load_config(written(tmp_path, COMPLETE))
    assert "of-all" not in repr(config)
    assert "of-r2" not in repr(config)


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(BadConfiguration, match=r"absent\.toml does not exist"):
        load_config(tmp_path / "absent.toml")


def test_an_unknown_server_is_told_which_ones_there_are(tmp_path):
    config = load_config(written(tmp_path, COMPLETE))
    with pytest.raises(UserError, match=r"no server 'r3'.*servers: r1, r2"):
        config.server("r3")


def test_macros_are_expanded_once():
    macros = {"shard": "01", "odd": "{shard}"}
    assert expand("/t/{shard}/{odd}/{shard}", macros) == "/t/01/{shard}/01"
    assert expand("no macros", {}) == "no macros"


def test_an_unknown_macro_is_named_with_the_ones_there_are():
    with pytest.raises(UserError, match=r"no macro \{shrad\}.*\{replica\}, \{shard\}"):
        expand("/t/{shrad}", {"shard": "01", "replica": "r1"})


def test_a_table_adds_its_own_macros_to_its_servers(tmp_path):
    server = load_config(written(tmp_path, COMPLETE)).server("r1")
    text = expand("{shard} {replica} {server} {database} {table}", server.macros_for("d", "t"))
    assert text == "01 r1 r1 d t"
    with pytest.raises(UserError, match="database"):
        expand("{database}", server.macros_for())


@given(st.sampled_from(["h", "10.0.0.1", "::1", "fe80::1"]), st.integers(1, 65535))
def test_an_address_is_read_back_as_it_was_written(host, port):
    assert Address.parse(str(Address(host, port))) == Address(host, port)


@given(st.text(max_size=20))
def test_any_other_text_is_no_address(text):
    try:
        address = Address.parse(text)
    except ValueError:
        return
    assert Address.parse(str(address)) == address


def test_the_package_itself_imports_nothing_heavy():
    heavy = {"pydantic", "pyarrow", "duckdb", "kazoo", "pyspark", "pandas", "dagster"}
    program = "import sys, rmt_pipeline; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert heavy.isdisjoint(loaded.stdout.split())


def test_a_configuration_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        Config().zookeeper.port = 3


CLUSTERS = {
    '[clusters.c]\nshards = [["r1", "r9"]]': "clusters.c.shards: there is no server 'r9'",
    '[clusters.c]\nshards = [["r1"], ["r1"]]': "server 'r1' is there twice",
    '[clusters.c]\nshards = [["r1"], []]': "a shard has no server",
    "[clusters.c]\nshards = []": "clusters.c.shards",
    '[clusters.c]\nshards = ["r1"]': "clusters.c.shards: is ['r1'], but should be a list",
    '[clusters.c]\nshard = [["r1"]]': "unknown key; did you mean 'shards'?",
    '[distributed_ddl]\npath = "ddl"': "distributed_ddl.path",
}


@pytest.mark.parametrize("text", CLUSTERS)
def test_a_wrong_cluster_says_what_is_wrong(tmp_path, text):
    file = tmp_path / "rmt.toml"
    file.write_text(f'[servers.r1]\ndata = "r1"\nlisten = "127.0.0.1:1"\n{text}\n')
    with pytest.raises(BadConfiguration) as raised:
        load_config(file)
    assert CLUSTERS[text] in str(raised.value)


def test_clusters_are_known_by_name(tmp_path):
    file = tmp_path / "rmt.toml"
    file.write_text(
        '[servers.r1]\ndata = "r1"\nlisten = "127.0.0.1:1"\n[clusters.c]\nshards = [["r1"]]\n'
    )
    assert load_config(file).cluster("c").servers == ["r1"]
    with pytest.raises(UnknownCluster, match="clusters: c"):
        load_config(file).cluster("d")
