"""Settings of an insert that ask for something this version does not have: refused, not ignored."""

from rmt_pipeline.protocol.errors import NotImplementedStatement
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.settings.setting import BadSetting


def require_supported(query: QuerySettings) -> None:
    """Raises NotImplementedStatement naming the setting; BadSetting for a quorum of nonsense."""
    quorum = query.insert_quorum
    if quorum != "auto" and not (quorum.isascii() and quorum.isdigit()):
        raise BadSetting(f"insert_quorum = {quorum!r} is neither a number of replicas nor auto")
    if quorum == "auto" or int(quorum) > 1:  # of one: whoever inserts has the parts
        raise NotImplementedStatement(
            f"insert_quorum = {quorum} is not supported yet: an insert is answered when this "
            "replica has it, and the others fetch it. Set insert_quorum to 0 and, to wait for "
            "another replica, use SYSTEM SYNC REPLICA there; nothing was inserted"
        )
