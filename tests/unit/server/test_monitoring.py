"""examples/monitoring: each metric that it names exists, and so does each paragraph of the page."""

import json
import re
from pathlib import Path

import pytest
import yaml

from rmt_pipeline.config import Address, load_config
from rmt_pipeline.exchange.guard import Guard
from rmt_pipeline.protocol.background import Background
from rmt_pipeline.server.status import Counters, metrics_page, server_status
from rmt_pipeline.server.tables import Identity, Tables
from rmt_pipeline.system import RandomIds, SystemClock
from tests.support.local_session import create, local_session

HOUSE = Path(__file__).parents[3]
MONITORING = HOUSE / "examples" / "monitoring"
MADE = "CREATE TABLE t (n UInt64) ENGINE = ReplicatedMergeTree('/tables/t', 'r1') ORDER BY n"
METRIC = re.compile(r"\brmt_[a-z_]+")
SUFFIXES = ("_total", "_seconds", "_bytes", "_entries")
COUNTS = {
    "rmt_parts",
    "rmt_parts_given_up",
    "rmt_lost_parts",
    "rmt_parts_awaiting_quorum",
    "rmt_queue_size",
    "rmt_readonly",
    "rmt_session",
    "rmt_stopped",
}
"""Gauges that count things of their name, or say yes or no."""


@pytest.fixture
def page(tmp_path) -> str:
    """What a server with one active table says, from which everything is known."""
    with local_session(tmp_path) as session:
        create(session, MADE)
        session.execute("INSERT INTO t VALUES (1)")
        server = session.context.server
        identity = Identity("r1", "1", Address("127.0.0.1", 1))
        tables = Tables(server.catalog, SystemClock(), RandomIds(), identity, lambda: None)
        keeper = server.keeper()
        tables.follow_catalog(keeper)
        tables.look(keeper)
        server.table("t").store.marks.stop(Background.MERGES)
        status = server_status("r1", keeper, tables)
        return metrics_page(lambda: status, Counters()).decode()


def told(page: str) -> set[str]:
    """Names that have a value."""
    return {line.split("{")[0].split(" ")[0] for line in page.splitlines() if line[0] != "#"}


def rules() -> list[dict]:
    found = yaml.safe_load((MONITORING / "alerts.yaml").read_text())
    return [rule for group in found["groups"] for rule in group["rules"]]


def test_each_metric_of_the_alerts_and_the_dashboard_exists(page):
    named = set(METRIC.findall(" ".join(rule["expr"] for rule in rules())))
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    targets = [target for panel in dashboard["panels"] for target in panel["targets"]]
    named |= set(METRIC.findall(" ".join(target["expr"] for target in targets)))
    assert named - told(page) == set()
    ours = {name for name in told(page) if name.startswith("rmt_")} - {"rmt_sessions_total"}
    unseen = {name for name in ours - named if not name.endswith("_created")}
    assert unseen == set(), "nobody looks at these"


def test_prometheus_shows_what_a_server_wants_to_see(tmp_path):
    """As the example has it: the token in a file of its own, of a server open to other hosts."""
    asking = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    assert asking["rule_files"] == ["alerts.yaml"]
    [job] = asking["scrape_configs"]
    assert f'job="{job["job_name"]}"' in " ".join(rule["expr"] for rule in rules())
    shown = job["authorization"]
    assert set(shown) == {"type", "credentials_file"}, "it is in no file that others read"
    file = tmp_path / "rmt.toml"
    file.write_text(
        '[servers.r1]\ndata = "r1"\nlisten = "0.0.0.0:9009"\nadvertise = "host1:9009"\n'
        '[tls]\ncertificate = "server.pem"\nca = "ca.pem"\n[monitoring]\ntoken = "look"\n'
    )
    config = load_config(file)
    config.require_guarded("r1")
    assert config.scheme == job["scheme"]
    assert str(config.server("r1").advertised_address) in job["static_configs"][0]["targets"]
    guard = Guard.of(config, ("secret",))
    assert guard.admits("/metrics", f"{shown['type']} look".encode())
    assert not guard.admits("/metrics", b"")
    assert not guard.admits("/", f"{shown['type']} look".encode()), "the token is for looking"


def test_names_follow_the_conventions_of_prometheus(page):
    ours = {name for name in told(page) if name.startswith("rmt_")}
    assert {name for name in ours if not name.endswith(SUFFIXES)} <= COUNTS
    types = dict(re.findall(r"^# TYPE (rmt_\S+) (\S+)$", page, re.MULTILINE))
    for name, kind in types.items():
        assert (kind == "counter") == name.endswith("_total"), name


def test_each_alert_names_the_paragraph_that_says_what_to_do():
    page = (HOUSE / "docs" / "operations.md").read_text()
    titles = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    titles += re.findall(r"\*\*(.+?)\*\*", " ".join(page.split()))
    for rule in rules():
        section = rule["annotations"]["section"]
        assert any(section in title for title in titles), (rule["alert"], section)
        assert rule["annotations"]["summary"], rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning"), rule["alert"]


def test_values_are_those_of_the_table(page):
    labels = r'\{database="default",replica="r1",table="t"\}'
    values = dict(re.findall(rf"^(rmt_\S+?){labels} (\S+)$", page, re.MULTILINE))
    assert values["rmt_parts"] == "1.0"
    assert values["rmt_log_lag_entries"] == "1.0", "the insert is in the log and was not pulled"
    assert values["rmt_queue_oldest_entry_seconds"] == "0.0"
    stopped = r'rmt_stopped\{database="default",replica="r1",table="t",what="MERGES"\} 1.0'
    assert re.search(stopped, page)
