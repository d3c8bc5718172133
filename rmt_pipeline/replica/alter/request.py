"""ALTER TABLE as a command: it is tried, written in one multi, and waited for (spec §8.1, §8.6).

    this replica has applied every ALTER before ──► commands on its definition ──► tried on the
    parts that are here ──► one multi: /metadata, /columns, the log entry, the mutation ──► waited

If another ALTER or mutation comes before the multi, everything begins again, up to ROUNDS_MAX
times.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from rmt_pipeline.protocol.alter.commands import (
    AlterCommand,
    ClearColumn,
    ModifyComment,
    ModifySettings,
    ResetSettings,
    alter_text,
)
from rmt_pipeline.protocol.alter.definition import Altered, apply_alter, refuse_broken_indices
from rmt_pipeline.protocol.alter.history import AlterRecord
from rmt_pipeline.protocol.errors import (
    NoNextSession,
    OutcomeUnknown,
    ReplicaRetired,
    RmtError,
    Unavailable,
    Unfinished,
    UserError,
)
from rmt_pipeline.protocol.log.codec import encode
from rmt_pipeline.protocol.log.entry import AlterMetadata
from rmt_pipeline.protocol.nodes.columns import columns_text, require_writable
from rmt_pipeline.protocol.nodes.formats import MutationEntry
from rmt_pipeline.protocol.nodes.metadata import metadata_text
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.alter.check import (
    CATCH_UP_S,
    CATCH_UP_SLICE_S,
    await_mutations,
    check_altered,
    check_rows_without,
    columns_used,
    keeps_rows,
    try_all_conversions,
)
from rmt_pipeline.replica.mutations.mutations import (
    allocate_numbers,
    load_mutations,
    release_numbers,
)
from rmt_pipeline.replica.mutations.request import wait_as_asked
from rmt_pipeline.replica.replica import Replica, asserting_active
from rmt_pipeline.replica.wait import wait_as_asked_for
from rmt_pipeline.syntax.rename import with_renamed
from rmt_pipeline.system import Clock, Waker
from rmt_pipeline.zookeeper.alter_transactions import (
    AlterTexts,
    AlterVersions,
    LogEnd,
    alter_versions,
    create_alters,
    fence_alter,
    submit_alter,
)
from rmt_pipeline.zookeeper.keeper import RefusalKind, Refused
from rmt_pipeline.zookeeper.paths import last_name, log_entry_name, sequence_number

ROUNDS_MAX = 20
SETTLE_PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 5.0, 5.0)  # while ZooKeeper does not answer

_OWN = ModifySettings | ResetSettings | ModifyComment

CommandsFor = Callable[[TableDefinition], Sequence[AlterCommand]]
"""The commands that were asked for, checked against the columns of this definition."""

EndOfLog = Callable[[Replica], LogEnd | None]
"""Checks just before the ALTER is submitted that the table is as the ALTER needs it, and returns
where the log ended then; None if the table may be in any state. Raises why it may not be altered.
"""


class CannotAssignAlter(UserError):
    """Other ALTERs were faster, or this replica is behind. Nothing was changed; try again."""

    code = "CANNOT_ASSIGN_ALTER"


@dataclass(frozen=True, slots=True)
class Submitted:
    """An ALTER that is in the log: its entry's path and text, and the id of its mutation, "" if it
    has none.
    """

    log_entry: str
    data: bytes
    mutation_id: str


def request_alter(
    living: Callable[[], Replica],
    commands: CommandsFor,
    query: QuerySettings,
    new_waker: Callable[[], Waker],
    end_of_log: EndOfLog = lambda _: None,
) -> Submitted | None:
    """ALTER the table on every replica, and wait as `alter_sync` says. None if there is nothing on
    which replicas must agree: settings and comments are each replica's own.

    `living` returns a Replica with a living session and the current definition. Raises a UserError
    for what can't be altered or converted, CannotAssignAlter, and what `end_of_log` raises: then
    nothing was changed. Raises Unfinished if waiting ended first; OutcomeUnknown.
    """
    for _ in range(ROUNDS_MAX):
        replica, seen = _caught_up(living, new_waker())
        before = replica.definition
        altered = apply_alter(before, commands(before), columns_used, with_renamed, keeps_rows)
        if altered.changes_nothing(before):
            return None
        check_altered(altered.definition)
        refuse_broken_indices(before, altered.definition, columns_used)
        check_rows_without(before, commands(before), altered, replica)
        if altered.is_local:
            _change_here(replica, commands(before))
            return None
        await_mutations(replica, altered, new_waker())
        try_all_conversions(replica, altered)
        seen = replace(seen, end=end_of_log(replica))
        submitted = _submit(living, replica, altered, commands(before), seen)
        if submitted is not None:
            own = [one for one in commands(before) if isinstance(one, _OWN)]
            if own:
                _change_own(replica, own)
            _wait(living, submitted, query, new_waker())
            return submitted
    raise CannotAssignAlter(
        f"{living()}: other ALTERs or mutations came first {ROUNDS_MAX} times. Nothing was "
        "changed; try again"
    )


def _change_here(replica: Replica, commands: Sequence[AlterCommand]) -> None:
    """Carry out commands that concern only this replica."""
    replica.update_definition(
        lambda now: (
            apply_alter(now, commands, columns_used, with_renamed, keeps_rows).definition
        )
    )


def _change_own(replica: Replica, commands: Sequence[AlterCommand]) -> None:
    """Carry out those commands of an ALTER that is in the log which concern only this replica.
    Raises Unfinished.
    """
    try:
        _change_here(replica, commands)
    except (RmtError, OSError) as error:
        raise Unfinished(
            f"{replica}: the ALTER is in the log and will be carried out on every replica; but "
            f"{alter_text(tuple(commands))}, which is this replica's own, was not done: {error}. "
            "ALTER that once more, by itself"
        ) from error


# --- before it is in the log ------------------------------------------------------------------


def _caught_up(living: Callable[[], Replica], waker: Waker) -> tuple[Replica, AlterVersions]:
    """This replica once it has applied every ALTER that exists, since the next one is decided on
    the result of the last. Also returns the versions to assert. Raises CannotAssignAlter if that
    takes too long.
    """
    replica = living()
    clock = replica.clock
    deadline_s = clock.monotonic_s() + CATCH_UP_S
    while True:
        seen = alter_versions(replica.keeper, replica.table, replica.paths)
        if seen.alters is None:
            # the table is older than this node; if it is refused, somebody made it just now
            with suppress(Refused):
                replica.keeper.multi(create_alters(replica.table))
            continue
        if seen.metadata == seen.applied == replica.definition.metadata_version:
            return replica, seen
        if clock.monotonic_s() >= deadline_s:
            raise CannotAssignAlter(
                f"{replica} has applied ALTER {seen.applied} of {seen.metadata}, and the next one "
                "is decided on what the last one made. Nothing was changed; try again when "
                "system.replication_queue has no ALTER_METADATA of the table any more"
            )
        waker.wait_s(CATCH_UP_SLICE_S)
        replica = living()


# --- into the log -----------------------------------------------------------------------------


def _submit(
    living: Callable[[], Replica],
    replica: Replica,
    altered: Altered,
    commands: Sequence[AlterCommand],
    seen: AlterVersions,
) -> Submitted | None:
    """Write the ALTER; None if something changed since it was decided: look again."""
    locks: dict[str, str] = {}
    if altered.mutation:
        found = allocate_numbers(replica, _partitions(altered.mutation))
        if found is None:
            return None
        locks = found
    try:
        request_id = replica.ids.new_id()
        texts = _texts(replica, altered, commands, request_id, locks)
        submitted = _send(living, replica, texts, seen, request_id)
    except BaseException:
        release_numbers(replica, list(locks.values()))
        raise
    if submitted is None:
        release_numbers(replica, list(locks.values()))
    else:
        release_numbers(replica, list(locks.values())[1:])  # the first went with what was sent
    return submitted


def _send(
    living: Callable[[], Replica],
    replica: Replica,
    texts: AlterTexts,
    seen: AlterVersions,
    request_id: str,
) -> Submitted | None:
    try:
        with asserting_active(replica, "it takes no ALTER"):
            created = replica.keeper.multi(
                submit_alter(replica.table, replica.paths, texts, seen)
            )
    except Refused as refused:
        if refused.kind in (RefusalKind.BAD_VERSION, RefusalKind.NODE_EXISTS):
            return None
        raise
    except OutcomeUnknown:
        return _settled(living, replica.clock, texts, seen, request_id)
    mutation_id = last_name(created[7]) if texts.mutation is not None else ""
    return Submitted(created[5], texts.entry, mutation_id)


def _partitions(mutation: Sequence[AlterCommand]) -> list[str] | None:
    """The ids of all partitions that the commands name; None if a command is for the whole
    table.
    """
    ids: set[str] = set()
    for command in mutation:
        if not isinstance(command, ClearColumn) or command.partition_id is None:
            return None
        ids.add(command.partition_id)
    return sorted(ids)


def _texts(
    replica: Replica,
    altered: Altered,
    commands: Sequence[AlterCommand],
    request_id: str,
    locks: dict[str, str],
) -> AlterTexts:
    now_s, definition = int(replica.clock.now_s()), altered.definition
    metadata, columns = metadata_text(definition), columns_text(definition.columns)
    entry = AlterMetadata(
        create_time=now_s,
        source_replica=replica.name,
        alter_version=definition.metadata_version,
        have_mutation=bool(altered.mutation),
        columns_text=columns,
        metadata_text=metadata,
    )
    record = AlterRecord(
        created_s=now_s,
        replica=replica.name,
        request_id=request_id,
        commands=alter_text(tuple(commands)),
        changes=altered.changes,
    )
    mutation = None
    if altered.mutation:
        wanted = _partitions(altered.mutation)
        numbers = {name: sequence_number(lock) for name, lock in locks.items()}
        mutation = MutationEntry(
            create_time=now_s,
            source_replica=replica.name,
            block_numbers=tuple(
                sorted(pair for pair in numbers.items() if wanted is None or pair[0] in wanted)
            ),
            commands=alter_text(altered.mutation),
            alter_version=definition.metadata_version,
        ).encode()
    texts = (metadata.encode(), columns.encode(), record.encode(), encode(entry))
    require_writable(definition.columns, (*texts, mutation or b""))
    return AlterTexts(*texts, mutation, next(iter(locks.values()), ""))


def _settled(
    living: Callable[[], Replica],
    clock: Clock,
    texts: AlterTexts,
    seen: AlterVersions,
    request_id: str,
) -> Submitted | None:
    """Find out about a submission that got no answer: where it is; None if it is not there, and
    never will be. Asks again, also in another session, until there is an answer. Raises
    OutcomeUnknown if there is none after SETTLE_PAUSES_S.
    """
    for pause_s in SETTLE_PAUSES_S:
        try:
            replica = living()
            return _find(replica, texts) if _is_there(replica, seen, request_id) else None
        except NoNextSession:
            break
        except (OutcomeUnknown, ReplicaRetired, Unavailable):
            clock.sleep_s(pause_s)
    raise OutcomeUnknown(
        f"whether ALTER {seen.metadata + 1} is in the log is not known: ZooKeeper did not answer. "
        "DESCRIBE TABLE shows it once it is applied; repeat it if it is not"
    )


def _is_there(replica: Replica, seen: AlterVersions, request_id: str) -> bool:
    """Whether the submission was carried out. A submission that is merely not found may still come;
    so this writes a fence, and only one of the two can succeed.
    """
    keeper, table = replica.keeper, replica.table
    try:
        keeper.multi(fence_alter(table, seen))
    except Refused:
        [read] = keeper.get_many([table.alter(seen.metadata + 1)])
        if read is None:
            return False
        return AlterRecord.decode(read[0], seen.metadata + 1).request_id == request_id
    return False


def _find(replica: Replica, texts: AlterTexts) -> Submitted:
    """The log entry and the mutation of a submission that was carried out without an answer."""
    keeper, table = replica.keeper, replica.table
    paths = [table.log_entry(name) for name in keeper.children(table.log)]
    reads = keeper.get_many(paths)
    found = [
        path
        for path, read in zip(paths, reads, strict=True)
        if read is not None and read[0] == texts.entry
    ]
    # If it has left the log, every replica has copied it. Then any entry that all have copied
    # will do to wait for, such as the very first one.
    log_entry = found[0] if found else table.log_entry(log_entry_name(0))
    written = None if texts.mutation is None else MutationEntry.decode(texts.mutation)
    ids = [one for one, entry in load_mutations(replica).entries.items() if entry == written]
    return Submitted(log_entry, texts.entry, ids[0] if ids else "")


# --- once it is in the log --------------------------------------------------------------------


def _wait(
    living: Callable[[], Replica], submitted: Submitted, query: QuerySettings, waker: Waker
) -> None:
    wait_as_asked_for(living, [(submitted.log_entry, submitted.data)], query, waker)
    if submitted.mutation_id and query.alter_sync:
        wait_as_asked(living, submitted.mutation_id, query, query.alter_sync, waker)
