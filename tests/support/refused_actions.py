"""What a replica is asked that can't be, or is not necessary: of tables, replicas and mutations."""

from collections.abc import Callable
from dataclasses import replace

from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import Column, TableDefinition
from rmt_pipeline.replica.life.create import create_replica
from rmt_pipeline.replica.life.drop import (
    drop_dead_replica,
    drop_put_away,
    drop_replica,
    drop_table_without_replicas,
    replica_czxid,
)
from rmt_pipeline.replica.mutations.mutations import (
    create_mutation,
    finalize_mutations,
    kill_mutation,
    load_mutations,
    status_by_pointer,
    wait_for_mutation,
)
from rmt_pipeline.replica.mutations.request import mutation_reports, wait_as_asked
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.zookeeper.keeper import Create, Delete, SetData
from rmt_pipeline.zookeeper.paths import TablePaths
from tests.support.actions import FIRST, NOW, Action, Did
from tests.support.local_replicas import Replicas
from tests.support.more_actions import (
    MUTATION,
    mutated_everywhere,
    mutated_on_r2,
    noting,
    of_partitions,
    only_r1,
    put_away,
)

# --- tables and replicas ---


def creates(
    name: str, change: Callable[[TableDefinition], TableDefinition] = lambda one: one
) -> Did:
    def act(replicas: Replicas) -> object:
        own = replicas["r1"].definition
        engine = replace(own.engine, replica=name)
        wanted = change(replace(own, engine=engine, uuid=f"another of {name}"))
        return create_replica(replicas["r1"].session, wanted, b"somebody")

    return act


def at_path(path: str) -> Callable[[TableDefinition], TableDefinition]:
    return lambda one: replace(one, engine=replace(one.engine, zookeeper_path=path))


def with_columns(*columns: Column) -> Callable[[TableDefinition], TableDefinition]:
    return lambda one: replace(one, columns=columns)


def without_answer_once(replicas: Replicas) -> None:
    """r4 was created, and whoever did so has not heard of it."""
    creates("r4")(replicas)


def half_dropped(replicas: Replicas) -> None:
    replicas.stop("r2")
    replicas.zookeeper.connect().multi([Delete(replicas["r2"].paths.host)])


def being_dropped(replicas: Replicas) -> None:
    """By a process that lives."""
    half_dropped(replicas)
    replicas["r3"].session.multi(
        [Create(replicas["r2"].paths.dropping, b"somebody", ephemeral=True)]
    )


def leftovers(replicas: Replicas) -> None:
    """Of a table whose removal has begun."""
    session, table = replicas.zookeeper.connect(), TablePaths("/other")
    session.multi([Create(path) for path in ("/other", table.dropped, "/other/log")])


def without_replicas(replicas: Replicas) -> None:
    creates("r1", at_path("/other"))(replicas)
    session, table = replicas.zookeeper.connect(), TablePaths("/other")
    for name in session.children(table.replicas):
        for at in sorted(
            (path for path in replicas.zookeeper.nodes if f"/other/replicas/{name}" in path),
            reverse=True,
        ):
            session.multi([Delete(at)])


def drops_dead(name: str) -> Did:
    return lambda of: drop_dead_replica(of["r1"].session, of["r1"].table, name)


# --- mutations ---


def waits_for(sync: int) -> Did:
    def act(replicas: Replicas) -> object:
        query = QuerySettings(
            receive_timeout=30, replication_wait_for_inactive_replica_timeout=5
        )
        return wait_as_asked(
            lambda: replicas["r1"], MUTATION, query, sync, noting(replicas, "r2", "r1")
        )

    return act


def mutated_and_r3_is_away(replicas: Replicas) -> None:
    mutated_on_r2(replicas)
    replicas.stop("r3")


def waits_for_all(replicas: Replicas) -> object:
    return wait_for_mutation(
        replicas["r1"],
        MUTATION,
        ["r1", "r2", "r3"],
        timeout_s=30.0,
        inactive_timeout_s=5.0,
        waker=noting(replicas, "r2", "r1"),
    )


def finalizes(replicas: Replicas) -> object:
    replica = replicas["r1"]
    return [finalize_mutations(replica, load_mutations(replica)) for _ in range(2)]


def not_active(replicas: Replicas) -> None:
    mutated_on_r2(replicas)
    replicas["r1"].session.multi([Delete(replicas["r1"].paths.is_active)])


def of_one_partition(replicas: Replicas) -> object:
    return create_mutation(replicas["r1"], "DELETE WHERE n = 1", ["1"])


def of_two_partitions(replicas: Replicas) -> object:
    return create_mutation(replicas["r1"], "DELETE WHERE n = 1", ["1", "2"])


def becomes_lost(replicas: Replicas) -> None:
    mutated_on_r2(replicas)
    replicas["r2"].session.multi([SetData(replicas["r1"].paths.is_lost, b"1")])


def by_pointer(replica: Replica) -> object:
    return status_by_pointer(replica, load_mutations(replica))


# --- clean-up ---


def cleans(replicas: Replicas) -> object:
    replicas.clock.passed_s += 200_000
    return [carry_out(replicas["r1"], plan_clean_up(replicas["r1"])) for _ in range(2)]


def many_inserts(replicas: Replicas) -> None:
    """More than are remembered, and more log than is kept for who is away."""
    replicas.set(
        replicated_deduplication_window=2,
        min_replicated_logs_to_keep=1,
        max_replicated_logs_to_keep=3,
    )
    replicas.stop("r3")
    for value in range(10, 16):
        replicas.insert("r1", value)
    replicas.work_off("r1", "r2")


def broken_and_unknown(replicas: Replicas) -> None:
    """A part of which nobody knows, one that was given up, and what a fetch has left."""
    store = replicas.stores["r1"]
    staged = store.begin("fetch", "x")
    staged.write("file", [b"bytes"])
    part = replicas.insert("r1", 9)
    replicas.work_off()
    replicas["r2"].session.multi([Delete(replicas["r1"].paths.part(part))])
    replicas["r1"].memory.queue = type(replicas["r1"].memory.queue)()


REFUSED = [
    Action("a replica that is there is created", creates("r2")),
    Action("a replica is created once more", creates("r4"), without_answer_once),
    Action("a replica that is half dropped is created", creates("r2"), half_dropped),
    Action("a replica that is being dropped is created", creates("r2"), being_dropped),
    Action(
        "a replica is created with another column",
        creates("r4", with_columns(Column("n", "Int8"))),
    ),
    Action(
        "a replica is created with more columns",
        creates("r4", with_columns(Column("n", "UInt64"), Column("m", "Int8"))),
    ),
    Action("a table is created below another", creates("r4", at_path("/tables/t/x"))),
    Action("a table is created above another", creates("r4", at_path("/tables"))),
    Action("a table is created", creates("r1", at_path("/a/b/c"))),
    Action(
        "a table is created over what is removed", creates("r1", at_path("/other")), leftovers
    ),
    Action(
        "a table is created over one without replicas",
        creates("r2", at_path("/other")),
        without_replicas,
    ),
    Action("a table is created in the place of those put away", creates("r1"), put_away),
    Action("an active replica is dropped as dead", drops_dead("r2")),
    Action("a replica that is not there is dropped as dead", drops_dead("r9")),
    Action("a replica without a name is dropped as dead", drops_dead("")),
    Action("a replica that is half dropped is dropped as dead", drops_dead("r2"), half_dropped),
    Action(
        "a replica that is being dropped is dropped as dead", drops_dead("r2"), being_dropped
    ),
    Action(
        "the last replica is dropped",
        lambda of: drop_replica(of["r1"].session, of["r1"].table, "r1"),
        only_r1,
    ),
    Action(
        "a replica of another day is dropped",
        lambda of: drop_replica(of["r1"].session, of["r1"].table, "r2", made_in=1),
    ),
    Action(
        "one that was not put away is dropped",
        lambda of: drop_put_away(of["r1"].session, of["r1"].table, "r2", 0),
    ),
    Action(
        "one that is half dropped is put away",
        lambda of: drop_put_away(of["r1"].session, of["r1"].table, "r2", None),
        half_dropped,
    ),
    Action(
        "when a replica was made",
        lambda of: replica_czxid(of["r1"].session, of["r2"].definition) > 0,
    ),
    Action(
        "a table with replicas is removed",
        lambda of: drop_table_without_replicas(of["r1"].session, of["r1"].table),
    ),
    Action("a mutation of one partition", of_one_partition, makes=of_partitions),
    Action("a mutation of two partitions", of_two_partitions, makes=of_partitions),
    Action(
        "a mutation that is not there is killed",
        lambda of: kill_mutation(of["r1"], "0000000009"),
    ),
    Action("a mutation is waited for here", waits_for(1), mutated_on_r2),
    Action("a mutation is waited for everywhere", waits_for(2), mutated_and_r3_is_away),
    Action("a mutation is waited for where somebody is", waits_for(3), mutated_and_r3_is_away),
    Action("a mutation is waited for in vain", waits_for_all, mutated_and_r3_is_away),
    Action("mutations are noted as finished twice", finalizes, mutated_everywhere),
    Action("mutations of who is lost are noted", finalizes, becomes_lost),
    Action(
        "mutations of who is not active are told",
        lambda of: mutation_reports(of["r1"]),
        not_active,
    ),
    Action(
        "mutations are told by the pointer", lambda of: by_pointer(of["r1"]), mutated_everywhere
    ),
    Action("a clean-up after many inserts", cleans, many_inserts),
    Action("a clean-up of what nobody knows", cleans, broken_and_unknown),
    Action(
        "a part that is not there is dropped",
        lambda of: of.table("r1").drop_part(PartName("all", 7, 7, 0), settings=NOW),
    ),
    Action(
        "a part is dropped while it is mutated",
        lambda of: of.table("r1").drop_part(FIRST, settings=NOW),
        mutated_on_r2,
    ),
]
