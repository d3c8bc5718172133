"""What all servers of a cluster share: made once, by whoever comes first, in ZooKeeper."""

from contextlib import suppress

from rmt_pipeline.protocol.errors import Conflict, Corruption, OutcomeUnknown
from rmt_pipeline.system import IdSource
from rmt_pipeline.zookeeper.keeper import Create, Keeper, RefusalKind, Refused

ROOT = "/rmt"
SECRET_PATH = f"{ROOT}/exchange_secret"
CLUSTER_PATH = f"{ROOT}/cluster_id"
ATTEMPTS_MAX = 10


def exchange_secret(keeper: Keeper, ids: IdSource) -> str:
    """What servers show each other when the configuration has no secret of its own.

    Whoever may read this ZooKeeper may read it. Raises Unavailable, ReplicaRetired, Corruption.
    """
    return _made_once(keeper, SECRET_PATH, ids.new_id() + ids.new_id())


def cluster_id(keeper: Keeper, ids: IdSource, known: str = "") -> str:
    """Tells one ZooKeeper from another, so that no data directory meets the wrong one. One that has
    none is new, or has lost everything: it gets the one that is `known`.
    """
    return _made_once(keeper, CLUSTER_PATH, known or ids.new_id())


def put_back(keeper: Keeper, cluster: str, secret: str) -> bool:
    """What all servers share, as this one knows it, in a ZooKeeper that has lost it. False when it
    is another one there. `secret`: "" when it is not in ZooKeeper.
    """
    there = [_made_once(keeper, CLUSTER_PATH, cluster) == cluster]
    if secret:
        there.append(_made_once(keeper, SECRET_PATH, secret) == secret)
    return all(there)


def _made_once(keeper: Keeper, path: str, mine: str) -> str:
    """The text at `path`; `mine` if nobody was faster.

    Creating is the only write and it is never repeated blindly: after an unknown outcome the
    next round reads first, and a create that lands late is what that round finds.
    """
    for _ in range(ATTEMPTS_MAX):
        found = _text(keeper, path)
        if found is not None:
            return found
        for node, data in ((ROOT, b""), (path, mine.encode())):
            with suppress(Refused, OutcomeUnknown):  # somebody else's, or maybe ours: read it
                keeper.multi([Create(node, data)])
        keeper.sync(path)
    raise Conflict(f"ZooKeeper's {path} could not be made in {ATTEMPTS_MAX} attempts")


def _text(keeper: Keeper, path: str) -> str | None:
    try:
        text = keeper.get(path)[0].decode("ascii")
    except Refused as refused:
        if refused.kind is not RefusalKind.NO_NODE:
            raise
        return None
    except UnicodeDecodeError as error:
        raise Corruption(f"ZooKeeper's {path} is not text: {error}") from error
    if not text:
        raise Corruption(f"ZooKeeper's {path} is empty; remove it to have a new one made")
    return text
