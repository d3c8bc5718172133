"""A server's ZooKeeper session: opened, and opened again when it is over, for ever."""

from collections.abc import Callable

from rmt_pipeline.config import ZooKeeperConfig
from rmt_pipeline.protocol.errors import AccessDenied, Unavailable, ZooKeeperUnreachable
from rmt_pipeline.server.log import get_log
from rmt_pipeline.system import Clock, Waker
from rmt_pipeline.zookeeper.access import Access
from rmt_pipeline.zookeeper.connect import connect
from rmt_pipeline.zookeeper.kazoo_keeper import KazooKeeper

ATTEMPT_S = 2.0  # one attempt: the server must end within 5 s even while it tries
PAUSE_FIRST_S = 0.2
PAUSE_MAX_S = 5.0

log = get_log("server")


def open_session(
    config: ZooKeeperConfig,
    hosts: str,
    *,
    clock: Clock,
    waker: Waker,
    should_stop: Callable[[], bool],
    give_up_after_s: float | None,
) -> KazooKeeper | None:
    """A new session; None when `should_stop` says so first.

    Raises ZooKeeperUnreachable after `give_up_after_s` seconds; None: tries for ever.
    """
    began_s, pause_s, attempts, reason = clock.monotonic_s(), PAUSE_FIRST_S, 0, ""
    while not should_stop():
        tried_s = clock.monotonic_s() - began_s
        attempt_s = ATTEMPT_S
        if give_up_after_s is not None:
            if tried_s >= give_up_after_s:
                raise ZooKeeperUnreachable(_unreachable(hosts, tried_s, reason))
            attempt_s = min(ATTEMPT_S, max(give_up_after_s - tried_s, 0.1))
        try:
            return connect(
                hosts,
                session_timeout_s=config.session_timeout_s,
                connect_timeout_s=attempt_s,
                access=Access.of(config),
            )
        except Unavailable as error:
            attempts, reason = attempts + 1, str(error)
            if isinstance(error, AccessDenied) and give_up_after_s is not None:
                raise
            if attempts == 1:
                log.warning("no ZooKeeper yet; trying on", hosts=hosts, reason=reason)
        waker.wait_s(pause_s)
        pause_s = min(pause_s * 2, PAUSE_MAX_S)
    return None


def _unreachable(hosts: str, tried_s: float, reason: str) -> str:
    return (
        f"no ZooKeeper answered at {hosts} in {tried_s:.0f} s: start it (`rmt zookeeper` when it "
        "is the embedded one), or correct [zookeeper] in the configuration. "
        f"[zookeeper] connect_timeout_s says how long to try. The last try: {reason}"
    )
