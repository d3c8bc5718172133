"""What a process of the same cluster may ask a server besides parts: to look at its tables now."""

from contextlib import closing

from urllib3.exceptions import HTTPError

from rmt_pipeline.exchange.connections import Connections, Peer, Timeouts
from rmt_pipeline.protocol.errors import Unavailable


def reload_tables(peer: Peer, secret: str) -> dict[str, str]:
    """After CREATE or DROP: returns when the server has looked at its catalog.

    Gives for each table, by `database.name`, why it is read-only; "" when it is active. Raises
    Unavailable when the server does not answer: it notices by itself when it runs again.
    """
    with closing(Connections()) as connections:
        try:
            response = connections.post(peer, "/reload", secret, Timeouts())
            if response.status != 200:
                words = response.data.decode(errors="replace")[:500]
                raise Unavailable(f"{peer} answered {response.status}: {words}")
            tables = response.json()["tables"]
            return {str(name): str(reason) for name, reason in tables.items()}
        except (HTTPError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise Unavailable(
                f"{peer} cannot be asked to look at its tables: {error!r}"
            ) from error
