"""What a process of the same cluster may ask a server besides parts: to look at its tables now."""

import json
from http.client import HTTPException

from rmt_pipeline.exchange.connections import Peer, peer_connection
from rmt_pipeline.protocol.errors import Unavailable

CONNECT_S = 1.0


def reload_tables(peer: Peer, secret: str, *, timeout_s: float = 30.0) -> dict[str, str]:
    """After CREATE or DROP: returns when the server has looked at its catalog.

    Gives for each table, by `database.name`, why it is read-only; "" when it is active. Raises
    Unavailable when the server does not answer: it notices by itself when it runs again.
    """
    connection = peer_connection(peer, timeout_s=CONNECT_S)
    try:
        connection.connect()
        connection.sock.settimeout(timeout_s)
        headers = {"Authorization": f"Bearer {secret}"}
        connection.request("POST", "/reload", headers=headers)
        response = connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise Unavailable(f"{peer} answered {response.status}: {body.decode()[:500]}")
        tables = json.loads(body)["tables"]
        return {str(name): str(reason) for name, reason in tables.items()}
    except (OSError, HTTPException, ValueError, KeyError, AttributeError) as error:
        raise Unavailable(f"{peer} cannot be asked to look at its tables: {error!r}") from error
    finally:
        connection.close()
