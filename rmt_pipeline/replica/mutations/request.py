"""ALTER TABLE … DELETE and UPDATE: checking a mutation, writing it, and waiting for it (spec §7.1,
§7.7).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rmt_pipeline.compute.jobs.mutate import try_first_rows
from rmt_pipeline.compute.merge.job import SourcePart
from rmt_pipeline.compute.mutate.job import MutateJob
from rmt_pipeline.protocol.errors import (
    Corruption,
    OutcomeUnknown,
    ReplicaRetired,
    RmtError,
    TableIsReadOnly,
    TooManyMutations,
    Unavailable,
    UnknownColumn,
)
from rmt_pipeline.protocol.log.entry import MutatePart, sources_of
from rmt_pipeline.protocol.mutations import Mutations
from rmt_pipeline.protocol.nodes.records import Attempts
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.missing import why_missing
from rmt_pipeline.replica.mutations.mutations import (
    MutationStatus,
    MutationUnsettled,
    SentMutation,
    create_mutation,
    load_mutations,
    settle_mutation,
    status_by_pointer,
    status_of_mutations,
    wait_for_mutation,
)
from rmt_pipeline.replica.replica import Replica, not_active
from rmt_pipeline.replica.tries import Tries
from rmt_pipeline.replica.wait import Waited, after_the_commit
from rmt_pipeline.syntax.mutation import Command, affected_partitions, commands_text
from rmt_pipeline.system import Waker
from rmt_pipeline.translate.mutation_rules import check_commands
from rmt_pipeline.zookeeper.snapshot import (
    QueueSnapshot,
    active_parts,
    noted_mutations,
    queue_snapshot,
)

STUCK_TRIES = 8
"""Of one part: about ten seconds of trying (spec §7.7: 30 tries, a second apart)."""


@dataclass(frozen=True, slots=True)
class PartFailure:
    """The last time that a part could not be mutated here; `time_s` is since the epoch."""

    part: PartName
    tries: int
    time_s: int
    reason: str


@dataclass(frozen=True, slots=True)
class MutationReport:
    """A mutation as this replica sees it, and what failed here last. `missing`: why a part that it
    has to change can't be fetched or made; "" if there is no such part. `in_progress`: the parts
    that are being mutated here now.
    """

    status: MutationStatus
    failure: PartFailure | None
    missing: str = ""
    in_progress: tuple[PartName, ...] = ()

    @property
    def waits_for(self) -> str:
        return self.missing or self.status.waits_for


def request_mutation(
    living: Callable[[], Replica], commands: Sequence[Command], query: QuerySettings
) -> str:
    """Write a mutation, if its commands can work; returns its id. Otherwise it is refused, and
    nothing is changed.

    `living` returns a Replica with a living session. Raises UserError for commands that are not
    allowed or can't be computed, TooManyMutations, TableIsReadOnly; MutationUnsettled if after
    `insert_keeper_max_retries` tries ZooKeeper has not said whether it was created.
    """
    replica = living()
    check_commands(
        commands,
        replica.definition,
        allow_nondeterministic=query.allow_nondeterministic_mutations,
    )
    if replica.keeper.exists(replica.paths.is_active) is None:
        raise not_active(replica, "it takes no mutations")
    throttle_mutation(replica)
    partitions = affected_partitions(commands)
    _try(replica, commands, partitions)
    return _create(living, commands_text(tuple(commands)), partitions, query)


def _create(
    living: Callable[[], Replica],
    commands: str,
    partitions: Sequence[str] | None,
    query: QuerySettings,
) -> str:
    """Create the mutation once, however often that is tried: a try that got no answer is settled
    before the next one.
    """
    replica = living()
    what = f"the mutation of {replica.definition.full_name}"
    tries = Tries(what, query, replica.clock)
    unsettled: SentMutation | None = None
    while True:
        try:
            replica = living()
            mutation_id = None if unsettled is None else settle_mutation(replica, unsettled)
            unsettled = None
            return mutation_id or create_mutation(replica, commands, partitions)
        except (OutcomeUnknown, ReplicaRetired, Unavailable) as error:
            if isinstance(error, MutationUnsettled):
                unsettled = error.sent
            ended = tries.pause(error, is_pending=unsettled is not None)
            if ended is not None:
                raise _given_up(ended, unsettled) from error


def _given_up(error: RmtError, unsettled: SentMutation | None) -> RmtError:
    if unsettled is not None and not isinstance(error, MutationUnsettled):
        return MutationUnsettled(
            f"whether the mutation was created is not known: {error}", unsettled
        )
    return error


def throttle_mutation(replica: Replica) -> None:
    """Sleep if this replica has at least `number_of_mutations_to_delay` unfinished mutations; the
    more there are, the longer (spec §7.1 item 0).

    Raises TooManyMutations from `number_of_mutations_to_throw` on.
    """
    settings = replica.settings
    delay, throw = settings.number_of_mutations_to_delay, settings.number_of_mutations_to_throw
    if not delay and not throw:
        return
    ids = replica.keeper.children(replica.table.mutations)
    finished = noted_mutations(replica.keeper, replica.paths).finished
    unfinished = sum(one not in finished for one in ids)
    if throw and unfinished >= throw:
        raise TooManyMutations(
            f"{replica} has {unfinished} unfinished mutations, number_of_mutations_to_throw is "
            f"{throw}: wait until some are done (rmt mutations, system.mutations), KILL those that "
            "fail, or put several commands into one ALTER"
        )
    if delay and unfinished >= delay:
        share = min(1.0, (unfinished - delay) / max(throw - delay, 1))
        least_ms, most_ms = settings.min_delay_to_mutate_ms, settings.max_delay_to_mutate_ms
        replica.clock.sleep_s((least_ms + (most_ms - least_ms) * share) / 1000)


def _try(
    replica: Replica, commands: Sequence[Command], partitions: Sequence[str] | None
) -> None:
    """Try the commands on the first rows of one part, after the mutations that it still lacks. So a
    command that can't be computed is found before every replica tries it for ever.
    """
    mutations = load_mutations(replica)
    for part in PartSet(active_parts(replica.keeper, replica.paths)):
        if partitions is not None and part.partition not in partitions:
            continue
        pending = [entry.commands for _, entry in mutations.between(part, 2**62)]
        try:
            with replica.store.pin([part]):
                manifest = replica.store.manifest(part)
                if manifest.rows == 0:
                    continue
                job = MutateJob(
                    result=str(part),
                    source=SourcePart(str(part), replica.store.directory(part), manifest),
                    staging="",
                    definition=replica.definition,
                    commands=(*pending, commands_text(tuple(commands))),
                    mutations=(),
                    create_time_s=0,
                )
                try_first_rows(job)
        except Corruption:
            continue  # merged away just now, or broken: who carries it out has it fetched again
        except UnknownColumn:
            # `commands` fit the definition. So an earlier mutation needs an ALTER that this replica
            # has yet to apply, and what that mutation does to the rows can't be computed here.
            if not pending:
                raise
        return


def wait_as_asked(
    living: Callable[[], Replica],
    mutation_id: str,
    query: QuerySettings,
    sync: int,
    waker: Waker,
) -> None:
    """Wait as `mutations_sync` says: 0 not at all, 1 for this replica, 2 for all, 3 for the active
    ones. `living` returns a Replica with a living session.

    Raises Unfinished with the reason if a part fails here again and again, or if it takes longer
    than `receive_timeout`; UnknownMutation if the mutation is killed meanwhile.
    """
    if sync == 0:
        return
    waited = Waited()

    def wait(replica: Replica) -> None:
        wait_for_mutation(
            replica,
            mutation_id,
            waited.replicas(replica, sync),
            timeout_s=query.receive_timeout,
            inactive_timeout_s=query.replication_wait_for_inactive_replica_timeout,
            waker=waker,
            why_stuck=lambda: _why_stuck(replica, mutation_id),
            waited=waited,
        )

    after_the_commit(
        living,
        wait,
        waker,
        f"mutation {mutation_id} was created and is carried out, see system.mutations",
    )


def _why_stuck(replica: Replica, mutation_id: str) -> str:
    mutations = load_mutations(replica)
    failure = _failures(replica, mutations, _queued(replica)).get(mutation_id)
    if failure is None or failure.tries < STUCK_TRIES:
        return ""
    return f"{failure.part} failed {failure.tries} times, last because: {failure.reason}"


def mutation_reports(replica: Replica) -> list[MutationReport]:
    """All mutations, by id."""
    mutations = load_mutations(replica)
    if not mutations.entries:
        return []
    try:
        statuses = status_of_mutations(replica, mutations)
    except TableIsReadOnly:
        statuses = status_by_pointer(replica, mutations)
    if all(one.is_done for one in statuses):
        return [MutationReport(one, None) for one in statuses]
    snapshot = _queued(replica)
    failures = _failures(replica, mutations, snapshot)
    claimed = {
        source
        for node, entry in snapshot.entries.items()
        if node in snapshot.claims and isinstance(entry, MutatePart)
        for source in sources_of(entry)
    }
    here = set(active_parts(replica.keeper, replica.paths))
    todo = {part for one in statuses for part in one.parts_to_do}
    missing = why_missing(replica, todo - here)
    return [
        MutationReport(
            one,
            failures.get(one.mutation_id),
            next((missing[part] for part in one.parts_to_do if part in missing), ""),
            tuple(part for part in one.parts_to_do if part in claimed),
        )
        for one in statuses
    ]


def _queued(replica: Replica) -> QueueSnapshot:
    return queue_snapshot(replica.keeper, replica.paths, replica.memory.queue)


def _failures(
    replica: Replica, mutations: Mutations, snapshot: QueueSnapshot
) -> dict[str, PartFailure]:
    """For each mutation, the queued part of it that failed last."""
    queued = [
        (node, entry)
        for node, entry in snapshot.entries.items()
        if isinstance(entry, MutatePart)
    ]
    reads = replica.keeper.get_many([replica.paths.attempts_of(node) for node, _ in queued])
    found: dict[str, PartFailure] = {}
    for (_, entry), read in zip(queued, reads, strict=True):
        if read is None:
            continue
        attempts = Attempts.read(read[0])
        failure = PartFailure(
            entry.source, attempts.tries, attempts.last_attempt_s, attempts.last_exception
        )
        for mutation_id, _ in mutations.between(entry.source, entry.result.data_version):
            known = found.get(mutation_id)
            if known is None or known.time_s <= failure.time_s:
                found[mutation_id] = failure
    return found
