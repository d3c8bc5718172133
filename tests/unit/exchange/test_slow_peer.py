"""A peer that does not take what is sent to it holds nothing up for ever."""

import asyncio
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.requests import Request

from rmt_pipeline.exchange import wire
from rmt_pipeline.exchange.server import Broken, Exchange
from rmt_pipeline.protocol.parts.name import PartName
from tests.support.exchange import ENDPOINT, put
from tests.support.waiting import LIMIT_S

PART = PartName("2013", 1, 4, 2)


@pytest.mark.parametrize("message", ["http.response.start", "http.response.body"])
def test_a_peer_that_does_not_read_keeps_no_slot_and_no_pin(source, message):
    put(source, PART, {"data-00000.parquet": b"a" * 3_000_000})
    exchange = Exchange(
        lambda _: source, lambda *what: pytest.fail(str(what)), send_timeout_s=0.01
    )
    target = wire.request_target(ENDPOINT, PART)
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/",
        "query_string": urlsplit(target).query.encode(),
        "headers": [],
    }

    async def never(sent: Any = None) -> None:
        if sent is None or sent["type"] == message:
            await asyncio.Event().wait()

    async def answered() -> None:
        response = await exchange.answer(Request(scope))
        assert exchange.sends == 1
        await asyncio.wait_for(response(scope, never, never), LIMIT_S)

    with pytest.raises(Broken, match="has read nothing for"):
        asyncio.run(answered())
    assert exchange.sends == 0
    assert not source.is_pinned(PART)
