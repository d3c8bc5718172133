"""Ends somebody else's ZooKeeper session, as an expiry would."""

import logging
import threading

from kazoo.client import KazooClient

from rmt_pipeline.zookeeper.kazoo_keeper import KazooKeeper
from tests.support.waiting import LIMIT_S

_SILENT = logging.getLogger("tests.thief")
_SILENT.setLevel(logging.CRITICAL)


def steal_session(hosts: str, victim: KazooKeeper) -> None:
    """Take over the victim's session with its password, close it, and wait until the victim
    knows. The victim reconnects by itself before it learns that there is nothing left.
    """
    knows = threading.Event()
    victim.on_retired(knows.set)
    thief = KazooClient(hosts, client_id=victim._client.client_id, logger=_SILENT)
    thief.start()
    thief.stop()
    thief.close()
    assert knows.wait(LIMIT_S), "the victim never noticed that its session was over"
