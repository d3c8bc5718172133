"""Sessions that a busy machine does not end."""

from typing import Any

from rmt_pipeline.zookeeper.connect import connect
from rmt_pipeline.zookeeper.kazoo_keeper import KazooKeeper
from tests.support.waiting import LASTING_S


def lasting(hosts: str, **options: Any) -> KazooKeeper:
    """What `connect` opens, with all the time that ZooKeeper may need."""
    long = {"session_timeout_s": LASTING_S, "connect_timeout_s": LASTING_S}
    return connect(hosts, **{**long, **options})
