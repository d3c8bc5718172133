"""Scenarios about the loops of one process: they share a session and what it remembers."""

from collections.abc import Callable, Sequence
from typing import Any

from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.zookeeper.keeper import Op
from tests.simulation.scene import Scene, fetch_step, inserting, publishes
from tests.support.cluster import Context


def before(context: Context, name: str, is_it: Callable[[Any], bool], act: Any) -> None:
    """Do something right before the session's next request of this name with such an argument."""
    keeper, done = context.keeper(), []
    ask = getattr(keeper, name)

    def later(asked: Any, *rest: object) -> object:
        if not done and is_it(asked):
            done.append(asked)
            act()
        return ask(asked, *rest)

    setattr(keeper, name, later)


def until(context: Context, condition: Callable[[], object]) -> None:
    while not condition():
        context.clock.sleep_s(0.01)


def reads_claims(paths: Sequence[str]) -> bool:
    return any("/executing/" in path for path in paths)


def publishes_one(ops: Sequence[Op]) -> bool:
    return any(map(publishes, ops))


def test_a_part_that_another_thread_fetches_meanwhile_is_not_merged_over() -> None:
    """One thread looks what may be merged: the queue and the parts are listed, claims are being
    read. Then the fetching thread publishes the part in the middle, and looks at its queue again,
    which forgets the entries that are finished. The part was listed: it is in the way.
    """
    with Scene() as scene:
        scene.insert("r1", "w")

        def meanwhile(replica: str, context: Context, row: str) -> None:
            site = scene.cluster.sites[replica]
            client = scene.cluster.spawn(site, "client", inserting(row))
            until(context, lambda: not client.is_alive)

        def two_loops(context: Context) -> None:
            replica = context.replica()
            pull_log(replica)
            while fetch_step(context).did_something:
                pass
            meanwhile("r1", context, "x")
            meanwhile("r2", context, "y")
            pull_log(replica)
            is_made: list[bool] = []
            may_publish: list[bool] = []
            is_over: list[bool] = []

            def fetch() -> None:
                before(context, "multi", publishes_one, hold)
                fetch_step(context)
                fetch_step(context)
                is_over.append(True)

            def hold() -> None:
                is_made.append(True)
                until(context, lambda: may_publish)

            def finish_fetch() -> None:
                may_publish.append(True)
                until(context, lambda: is_over)

            context.process.spawn(fetch)
            until(context, lambda: is_made)
            before(
                context,
                "get_many",
                reads_claims,
                lambda: before(context, "get_many", reads_claims, finish_fetch),
            )
            optimize_partition(replica, "a", final=True, skip_merged=False)

        scene.do("r2", two_loops)
        scene.work("r2", "r1")
        for replica in ("r1", "r2"):
            assert (scene.rows(replica)) == ["w", "x", "y"]
