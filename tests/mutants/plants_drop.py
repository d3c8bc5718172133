"""How bugs are planted in the commands on partitions and parts."""

from dataclasses import replace
from typing import Any

import pytest

from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.queue.view import QueueView
from rmt_pipeline.replica import forget, reading
from rmt_pipeline.replica.partitions import drop, ids_left
from rmt_pipeline.replica.work import drop as work
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.zookeeper.keeper import Op, SetData
from rmt_pipeline.zookeeper.partition_transactions import Dropping
from tests.mutants.plants import Plant


def no_insert_is_cancelled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(drop, "cancel_inserts", lambda *_: None)


def the_log_does_not_move(patch: pytest.MonkeyPatch) -> None:
    """A merge may be assigned by who has not seen the drop."""
    right = drop.submit_drops

    def wrong(*args: Any, **kwargs: Any) -> list[Op]:
        ops = right(*args, **kwargs)
        return [op for op in ops if not (isinstance(op, SetData) and op.path.endswith("/log"))]

    patch.setattr(drop, "submit_drops", wrong)


def entries_inside_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QueueView, "entries_removed_by", lambda *_, **__: [])


def nothing_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ids_left, "what_to_forget_at_once", lambda *_: [])
    patch.setattr(work, "forget", lambda *_: None)


def one_partition_is_enough(patch: pytest.MonkeyPatch) -> None:
    """Of those that were asked for; the answer is as if all were gone."""
    right = drop._drop
    patch.setattr(drop, "_drop", lambda living, some, **how: right(living, some[:1], **how))


def nobody_waits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(drop, "wait_as_asked_for", lambda *_: None)


def nothing_is_detached(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartStore, "detach_copy", lambda *_, **__: None)


def all_ids_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Of the partition, whatever their blocks are."""
    patch.setattr(forget, "_is_of", lambda *_: True)


def the_range_ends(by: int) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        right = drop.drop_range

        def wrong(partition: str, delimiter: int) -> PartName:
            found = right(partition, delimiter)
            return replace(found, block_max=max(0, found.block_max + by))

        patch.setattr(drop, "drop_range", wrong)

    return plant


def what_was_replaced_is_read_from_the_disk(patch: pytest.MonkeyPatch) -> None:
    """As long as somebody reads it there."""
    right = reading.readable_parts

    def wrong(replica: Any) -> Any:
        found = right(replica)
        there = PartSet([*found.active, *replica.store.parts()])
        return replace(found, active=tuple(there))

    patch.setattr(reading, "readable_parts", wrong)


def parts_stay_promised(patch: pytest.MonkeyPatch) -> None:
    right = Dropping.finish

    def wrong(self: Dropping, parts: Any) -> list[Op]:
        return right(self, parts[1:])

    patch.setattr(Dropping, "finish", wrong)


def bytes_of_the_table_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartStore, "destroy", lambda _: None)


def disk_first(patch: pytest.MonkeyPatch) -> None:
    right = work._prepare

    def wrong(replica: Any, task: Any, found: Any) -> Any:
        for part in found.parts:
            replica.store.remove(part)
        return right(replica, task, found)

    patch.setattr(work, "_prepare", wrong)
