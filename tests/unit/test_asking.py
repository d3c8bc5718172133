"""The benchmarks' counter names each request that a session of ours sends, by its bytes."""

from typing import Any

import pytest
from kazoo.protocol import serialization
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from benchmarks.asking import named
from rmt_pipeline.zookeeper.kazoo_keeper import _AddWatch, _Multi, _ReadMany
from rmt_pipeline.zookeeper.keeper import Check, Create, Delete, SetData


class Client:
    chroot = "/ours"


def sent(request: Any) -> str:
    return named(request.type, request.serialize())


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (serialization.GetData("/t/log", None), "get t/log"),
        (serialization.GetData("/t/log", print), "get t/log"),
        (serialization.Exists("/t/replicas/r1", None), "exists replicas/r#"),
        (serialization.GetChildren("/t/log", None), "list t/log"),
        (serialization.GetChildren2("/t/log", print), "list with stat t/log"),
        (serialization.Sync("/t"), "sync /t"),
        (serialization.Ping, "ping"),
        (serialization.Close, "close"),
        (_AddWatch(Client(), "/t/log", None), "watch that stays t/log"),  # type: ignore[arg-type]
        (
            _ReadMany(
                [
                    serialization.GetData("/t/log", None),
                    serialization.GetChildren("/t/r/queue", None),
                    serialization.GetData("/t/log/log-0000000012", None),
                ]
            ),
            "read many: get t/log, list r/queue, get log/log-#",
        ),
    ],
)
def test_each_request_has_a_name(request_: Any, name: str) -> None:
    assert sent(request_) == name


def test_a_multi_is_named_by_its_operations() -> None:
    ops = [
        Check("/t/r/is_active"),
        Create("/t/log/log-", b"text", sequence=True),
        Create("/t/r/parts/all_0_0_0"),
        SetData("/t/r/log_pointer", b"7", 3),
        Delete("/t/r/queue/queue-0000000001"),
    ]
    acl = [*OPEN_ACL_UNSAFE, *OPEN_ACL_UNSAFE]
    assert sent(_Multi(ops, "", acl)) == (
        "multi: check r/is_active, create log/log-, create parts/all_#, set r/log_pointer, "
        "delete queue/queue-#"
    )


def test_a_multi_has_the_bytes_that_kazoo_would_send() -> None:
    ops = [
        Check("/t/r/is_active"),
        Create("/t/r/parts/é", ephemeral=True),
        Create("/t/mutations/", b"text", sequence=True),
        SetData("/", b"", 3),
        Delete("/t/r/queue/queue-0000000001", 5),
    ]
    for root in ("", "/ours"):
        for acl in (OPEN_ACL_UNSAFE, CREATOR_ALL_ACL):
            by_kazoo = serialization.Transaction(
                [
                    serialization.CheckVersion(f"{root}/t/r/is_active", -1),
                    serialization.Create(f"{root}/t/r/parts/é", b"", acl, 1),
                    serialization.Create(f"{root}/t/mutations/", b"text", acl, 2),
                    serialization.SetData(root or "/", b"", 3),
                    serialization.Delete(f"{root}/t/r/queue/queue-0000000001", 5),
                ]
            )
            assert _Multi(ops, root, acl).serialize() == bytes(by_kazoo.serialize())
