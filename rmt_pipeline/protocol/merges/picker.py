"""Which replica merges, if only one of them is to do it and the others fetch the result (spec
§5.3.6). Replicas that see the same replicas active choose the same one.

They need not agree: replicas that see different ones active may both merge, or both wait until the
time is over. Their parts are equal in any case.
"""

from collections.abc import Collection

from rmt_pipeline.protocol.city_hash import city_hash_64
from rmt_pipeline.protocol.parts.name import PartName


def chosen_replica(
    active: Collection[str], me: str, table_path: str, result: PartName
) -> str | None:
    """The active replica that merges into `result`; None if each replica merges for itself, because
    fewer than two are active, or this one (`me`) is not.
    """
    if len(active) < 2 or me not in active:
        return None
    return sorted(active)[city_hash_64(f"{table_path}{result}".encode()) % len(active)]
