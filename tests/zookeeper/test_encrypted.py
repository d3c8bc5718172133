"""Two servers that speak TLS to each other and to whoever asks them, over a real ZooKeeper; their
secret is changed while they run.
"""

from contextlib import ExitStack
from pathlib import Path

import pytest
import urllib3

from rmt_pipeline.config import load_config
from rmt_pipeline.context import ServerContext
from tests.support.certificates import Authority
from tests.support.local_work import working
from tests.support.serving import Served, config_at, create, definition_of

pytestmark = pytest.mark.zookeeper
PATIENT = {"insert_quorum_timeout": 60_000}


def test_parts_go_from_server_to_server_in_secret(
    tmp_path: Path, zookeeper_server, chroot: str
) -> None:
    authority = Authority(tmp_path / "authority")
    own = authority.sign("server", "127.0.0.1")
    config_at(tmp_path, zookeeper_server.hosts)
    file = tmp_path / "rmt.toml"
    rest = file.read_text() + (
        f'\n[tls]\ncertificate = "{own.file}"\nkey = "{own.key}"\nca = "{authority.file}"\n'
        'client_certificates = true\n[monitoring]\ntoken = "look"\n'
    )

    def tell(*secrets: str) -> None:
        file.write_text(f"{rest}[exchange]\nsecret = {list(secrets)}\n")

    tell("first")
    config = load_config(file)
    with ExitStack() as opened:
        tables = {}
        for name in ("r1", "r2"):
            client = opened.enter_context(ServerContext.open(config, name))
            create(config, client.keeper(), definition_of(f"{chroot}/t", name), name)
            served = opened.enter_context(Served(config, name))
            served.until(served.is_active)
            tables[name] = client.table("t")
        worker = opened.enter_context(ServerContext.open(config, "r2"))
        opened.enter_context(working(worker, definition_of(f"{chroot}/t", "r2")))
        for value, secrets in enumerate((("first",), ("second", "first"), ("second",))):
            tell(*secrets)
            tables["r1"].insert([{"n": value}], quorum=2, settings=PATIENT)
            found = tables["r2"].dataset().to_table().column("n").to_pylist()
            assert sorted(found) == list(range(value + 1))
        listen = config.server("r1").listen
        asked = opened.enter_context(urllib3.PoolManager(ca_certs=str(authority.file)))
        with pytest.raises(urllib3.exceptions.HTTPError):  # who has no certificate
            asked.request("GET", f"https://{listen}/health", retries=False)
        with pytest.raises(urllib3.exceptions.HTTPError):
            urllib3.request("GET", f"http://{listen}/health", retries=False)
