"""SYSTEM DROP REPLICA of all tables that have a replica of a name."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rmt_pipeline.protocol.errors import Conflict, RmtError, UserError
from rmt_pipeline.replica.life.drop import NoSuchReplica, drop_dead_replica
from rmt_pipeline.zookeeper.keeper import Keeper
from rmt_pipeline.zookeeper.paths import TablePaths


@dataclass(frozen=True, slots=True)
class Removed:
    """The paths of the tables that had the replica, and of those of them that are `gone`, because
    it was their last one.
    """

    tables: tuple[str, ...]
    gone: tuple[str, ...]


def drop_dead_replicas(
    living: Callable[[], Keeper], paths: Iterable[str], name: str
) -> Removed:
    """Remove the replica of this name of each of the tables at these paths that has it. One that is
    active, or is being removed by somebody else, stops no other.

    Raises NoSuchReplica if no table has it; else what `drop_dead_replica` raised first, with words
    that tell where the replica is removed.
    """
    removed: list[str] = []
    gone: list[str] = []
    missing: NoSuchReplica | None = None
    problem: RmtError | None = None
    for path in paths:
        try:
            was_last = drop_dead_replica(living(), TablePaths(path), name)
        except NoSuchReplica as error:
            missing = missing or error
            continue
        except (Conflict, UserError) as error:
            problem = problem or error
            continue
        except RmtError as error:  # ZooKeeper does not answer: nor will it for the others
            problem = problem or error
            break
        removed.append(path)
        gone += [path] if was_last else []
    if problem is not None:
        if removed:
            done = f"Of {', '.join(removed)} replica {name!r} is removed"
            problem.args = (f"{problem}. {done}; for the others say it again",)
        raise problem
    if missing is not None and not removed:
        raise missing
    return Removed(tuple(removed), tuple(gone))
