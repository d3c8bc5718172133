"""An insertion that is tried until it is done; or the error says whether its rows are in, and what
to do.
"""

from collections.abc import Callable

from rmt_pipeline.protocol.errors import OutcomeUnknown, RmtError, UserError
from rmt_pipeline.replica.insert.insert import Insertion
from rmt_pipeline.replica.insert.result import InsertResult, QuorumNotReached, retryable
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.tries import Tries
from rmt_pipeline.replica.upkeep.outdated_ids import forget_outdated_ids


def run_until_done(
    insertion: Insertion,
    table: str,
    tries: Tries,
    living: Callable[[], Replica],
    first: Replica | None = None,
) -> InsertResult:
    """Run the insertion, until it is done or the tries are used up. The session stays open after an
    answer that did not come: all tables of the process use it. The first try is made with `first`,
    if the caller has just got it. `table` names the table in errors. Raises OutcomeUnknown, with
    the remedy, and what `Insertion.run` raises.
    """
    replica = first
    while True:
        try:
            replica = replica or living()
            if insertion.identity.insert_id and replica.has_own_window:
                forget_outdated_ids(replica)
            return insertion.run(replica)
        except RmtError as error:
            if isinstance(error, UserError) or not retryable(error):
                raise
            ended = tries.pause(error, is_pending=insertion.is_pending)
            if ended is not None:
                raise _given_up(insertion, table, ended) from error
            replica = None


def _given_up(insertion: Insertion, table: str, error: RmtError) -> RmtError:
    if insertion.is_waiting and not insertion.is_pending:
        return QuorumNotReached(
            f"{table}: the rows are in the table; whether on as many replicas as insert_quorum "
            f"wants is not known ({error}). {_wait_again(insertion)}"
        )
    if not insertion.is_pending:
        return error
    return OutcomeUnknown(
        f"{table}: whether the insert landed is not known: ZooKeeper did not answer it, nor any "
        f"later try ({error}). {_remedy(insertion)}"
    )


def _told_by(insertion: Insertion) -> str:
    """How to find out what became of an insert. Without an identity it has no record."""
    insert_id = insertion.identity.insert_id
    return f"; `rmt inserts {insert_id}` tells what became of it" if insert_id else ""


def _wait_again(insertion: Insertion) -> str:
    """What to do when it is not known whether a quorum has the rows."""
    if insertion.identity.insert_id:
        return (
            "Insert the same data again (or with the same token): nothing is inserted twice, and "
            f"it is waited for{_told_by(insertion)}"
        )
    return (
        "Do not insert them again: deduplication is switched off for this insert or table, and "
        "they would be there twice. system.replicas.parts_awaiting_quorum says which parts wait"
    )


def _remedy(insertion: Insertion) -> str:
    """What to do when it is not known whether the rows are in the table."""
    if insertion.command_id:
        return "Repeat the ATTACH: nothing is attached twice"
    if insertion.identity.insert_id:
        return (
            "Insert the same data again (or with the same token): if it landed, that is answered "
            f"as a duplicate{_told_by(insertion)}"
        )
    parts = ", ".join(map(str, insertion.pending_parts))
    return (
        "Deduplication is switched off for this insert or table: inserted again, these rows could "
        f"be there twice. Look first whether system.parts has {parts}, or a part that covers it; "
        "with a token (insert_deduplication_token) the same insert can be sent again"
    )
