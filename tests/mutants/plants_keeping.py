"""How bugs are planted in what is set aside and comes back: ATTACH, FETCH, FREEZE."""

from itertools import count
from typing import Any

import pytest

from rmt_pipeline.replica.partitions import attach
from rmt_pipeline.store import frozen
from rmt_pipeline.store.fetching import Fetching


def a_new_id_each_time(patch: pytest.MonkeyPatch) -> None:
    numbers = count()
    patch.setattr(attach, "attach_block_id", lambda *_: f"a_{next(numbers)}")


def gone_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    right = attach._commit

    def wrong(replica: Any, commit: Any, some: Any, taken: Any, *rest: Any) -> Any:
        def late(insertion: Any) -> Any:
            for one in some:
                replica.store.detached_parts.remove(one.name)
            return commit(insertion)

        return right(replica, late, some, taken, *rest)

    patch.setattr(attach, "_commit", wrong)


def all_partitions_are_unfrozen(patch: pytest.MonkeyPatch) -> None:
    right = frozen._Home.take
    patch.setattr(frozen._Home, "take", lambda home, _: right(home, None))


def what_is_listed_no_more_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Fetching, "forget", lambda *_: None)
