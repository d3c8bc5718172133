"""Which replica merges, when only one shall (spec §5.3.6): the same answer on all of them.

Nothing depends on the answer being the same: two replicas that see different others active both
merge, or both wait until the time is over, and end with equal parts either way.
"""

from collections.abc import Collection
from hashlib import sha256

from rmt_pipeline.protocol.parts import PartName


def chosen_replica(
    active: Collection[str], me: str, table_path: str, result: PartName
) -> str | None:
    """The active replica that merges into `result`; None when everybody does, because fewer than
    two are active, or this one (`me`) is not.
    """
    if len(active) < 2 or me not in active:
        return None
    digest = sha256(f"{table_path}/{result}".encode()).digest()
    return sorted(active)[int.from_bytes(digest[:8]) % len(active)]
