"""The exchange secret and the id of a cluster, made once in ZooKeeper by the first server."""

import re
from contextlib import suppress

from rmt_pipeline.protocol.errors import Conflict, Corruption, OutcomeUnknown
from rmt_pipeline.system import IdSource
from rmt_pipeline.zookeeper.keeper import Create, Keeper, RefusalKind, Refused

ROOT = "/rmt"
SECRET_PATH = f"{ROOT}/exchange_secret"
CLUSTER_PATH = f"{ROOT}/cluster_id"
ATTEMPTS_MAX = 10
_WORD = re.compile(rb"[!-~]+")  # fits an HTTP header


def exchange_secret(keeper: Keeper, ids: IdSource) -> str:
    """The secret that servers show each other when the configuration has none. Everybody who may
    read this ZooKeeper may read it. Raises Unavailable, ReplicaRetired, Corruption.
    """
    return _made_once(keeper, SECRET_PATH, ids.new_id() + ids.new_id())


def cluster_id(keeper: Keeper, ids: IdSource, known: str = "") -> str:
    """The id of this ZooKeeper, by which a data directory is never used with another one. A
    ZooKeeper without an id is new or has lost everything; it gets the id `known`, or a new one.
    """
    return _made_once(keeper, CLUSTER_PATH, known or ids.new_id())


def put_back(keeper: Keeper, cluster: str, secret: str) -> bool:
    """Write the cluster's id and secret, as this server knows them, into a ZooKeeper that lost
    them. Returns False if it has another id. An empty `secret` is one from the configuration.
    """
    there = [_made_once(keeper, CLUSTER_PATH, cluster) == cluster]
    if secret:
        there.append(_made_once(keeper, SECRET_PATH, secret) == secret)
    return all(there)


def _made_once(keeper: Keeper, path: str, mine: str) -> str:
    """The text at `path`, which is `mine` if this is the first call on any server.

    The only write is a create, which is not repeated blindly: after an unknown outcome the next
    round reads first, and finds a create that landed late.
    """
    for _ in range(ATTEMPTS_MAX):
        found = _text(keeper, path)
        if found is not None:
            return found
        for node, data in ((ROOT, b""), (path, mine.encode())):
            with suppress(Refused, OutcomeUnknown):  # then the next round reads what is there
                keeper.multi([Create(node, data)])
        keeper.sync(path)
    raise Conflict(f"ZooKeeper's {path} could not be made in {ATTEMPTS_MAX} attempts")


def _text(keeper: Keeper, path: str) -> str | None:
    try:
        data = keeper.get(path)[0]
    except Refused as refused:
        if refused.kind is not RefusalKind.NO_NODE:
            raise
        return None
    if not _WORD.fullmatch(data):
        raise Corruption(
            f"ZooKeeper's {path} is empty, or not one word of ASCII without spaces and line "
            "breaks; remove it to have a new one made"
        )
    return data.decode("ascii")
