"""The forms that a person fills in, run as Dagster runs them, over a fake ZooKeeper."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.snap import JobSnap
from dagster._core.snap.snap_to_yaml import default_values_yaml_from_type_snap

from rmt_pipeline.context import ServerContext
from rmt_pipeline.dagster import RmtIOManager, names
from rmt_pipeline.dagster.engine import EngineResource
from rmt_pipeline.dagster.location import machinery, rmt_resources
from rmt_pipeline.dagster.maintenance import jobs as maintenance
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.table import Table
from rmt_pipeline.zookeeper.keeper import Create
from tests.support.local_replicas import DirectPeers
from tests.support.local_session import create, local_session
from tests.support.local_work import working

TABLE = (
    "CREATE TABLE {name} (p UInt8, n UInt64) "
    "ENGINE = ReplicatedMergeTree('/tables/{name}', 'r1') PARTITION BY p ORDER BY n"
)


class World:
    """A server with tables `t` and `other`, whose queues are worked, and what Dagster knows."""

    def __init__(self, session: Session, instance: dg.DagsterInstance) -> None:
        self.server: ServerContext = session.context.server
        self.instance = instance
        self.jobs = {job.name: job for job in maintenance.maintenance_jobs("r1")}

    def table(self, name: str = "t") -> Any:
        return self.server.table(name)

    def insert(self, *pairs: tuple[int, int], table: str = "t") -> str:
        result = self.table(table).insert([{"p": p, "n": n} for p, n in pairs])
        return str(result.insert_id)

    def rows(self, table: str = "t") -> list[tuple[int, int]]:
        found = self.table(table).dataset().to_table().to_pylist()
        return sorted((row["p"], row["n"]) for row in found)

    def run(self, job: str, **config: Any) -> dg.ExecuteInProcessResult:
        """As from the launchpad; without any value as it stands when it is opened."""
        name = f"{job}_r1"
        return self.jobs[name].execute_in_process(
            run_config={"ops": {f"work_{name}": {"config": config}}} if config else {},
            resources={
                "engine": EngineResource(),
                maintenance.STORES_NOTHING: dg.mem_io_manager,
            },
            instance=self.instance,
            raise_on_error=False,
        )

    def told(self, job: str, **config: Any) -> dict[str, Any]:
        """The metadata of a run that succeeds."""
        result = self.run(job, **config)
        assert result.success, self.failure_of(result)
        [output] = result.filter_events(lambda event: event.is_successful_output)
        metadata = output.step_output_data.metadata
        return {key: value.value for key, value in metadata.items()}

    def failure(self, job: str, **config: Any) -> str:
        result = self.run(job, **config)
        assert not result.success
        return self.failure_of(result)

    @staticmethod
    def failure_of(result: dg.ExecuteInProcessResult) -> str:
        [event] = result.filter_events(lambda event: event.is_step_failure)
        data = event.step_failure_data
        failure = data.user_failure_data
        return str(failure.description if failure else data.error)

    def partitions(self, table: str = "default.t") -> list[str]:
        found = self.instance.get_dynamic_partitions(names.partitions_name(table))
        return sorted(found)

    def values(self, column: str, table: str = "t") -> list[Any]:
        found = self.table(table).dataset().to_table().to_pylist()
        return [row[column] for row in sorted(found, key=lambda row: row["n"])]

    def commands(self, table: str = "t") -> list[str]:
        """What the log sensor tells of."""
        events = self.table(table).store.part_log.events()
        noted = {event.entry_id: event.command for event in events if event.command}
        return list(noted.values())

    def events(self, table: str = "default.t") -> list[tuple[str | None, str, int]]:
        """Of the partitions' asset: partition, command, and by how many rows."""
        key = names.partitions_key(table, "r1")
        found = self.instance.fetch_observations(key, limit=100).records
        told = []
        for record in reversed(found):
            observation = record.asset_observation
            assert observation is not None
            metadata = {name: value.value for name, value in observation.metadata.items()}
            assert metadata["user"]
            told.append(
                (observation.partition, metadata["command"], metadata["rows more or fewer"])
            )
        return told


@pytest.fixture
def world(tmp_path, monkeypatch) -> Iterator[World]:
    with local_session(tmp_path) as session, dg.DagsterInstance.ephemeral() as instance:
        tables = [create(session, TABLE.format(name=name)) for name in ("t", "other")]
        server = session.context.server

        @contextmanager
        def opened(
            self: EngineResource, name: str, purpose: str = ""
        ) -> Iterator[ServerContext]:
            assert name == "r1"
            yield server

        monkeypatch.setattr(EngineResource, "server", opened)
        with (
            working(server, tables[0], select=False),
            working(server, tables[1], select=False),
        ):
            yield World(session, instance)


def test_every_field_of_every_form_explains_itself() -> None:
    forms = [verb.form for verb in maintenance.VERBS]
    silent = [
        f"{form.__name__}.{name}"
        for form in forms
        for name, field in form.model_fields.items()
        if len(field.description or "") < 20
    ]
    assert silent == []
    assert all(form.__doc__ for form in forms)
    loses = {"optimize", "mutate", "drop_partitions", "detach_partitions", "replace_partition"}
    loses |= {"move_partition", "restore_replica", "drop_replica", "undo_insert"}
    loses |= {"drop_part", "truncate", "drop_detached", "unfreeze"}
    loses |= {"clear_column", "drop_table", "statement"}
    dry = {
        verb.name
        for verb in maintenance.VERBS
        if (field := verb.form.model_fields.get("dry_run")) is not None
        and field.default is True
    }
    assert dry == loses


def test_a_form_has_all_its_fields_and_nothing_else_when_it_is_opened() -> None:
    """What the launchpad writes down for a person who opens it, in a location with resources."""
    resources = {**rmt_resources(), "io_manager": RmtIOManager(server="r1")}
    defs = dg.Definitions.merge(machinery("r1"), dg.Definitions(resources=resources))
    for verb in maintenance.VERBS:
        job = f"{verb.name}_r1"
        form = yaml.safe_load(opened_form(defs, job))
        assert list(form) == ["ops"]
        assert set(form["ops"][f"work_{job}"]["config"]) == set(verb.form.model_fields)


def opened_form(defs: dg.Definitions, job: str) -> str:
    snapshot = JobSnap.from_job_def(defs.resolve_job_def(job))
    schema = snapshot.config_schema_snapshot
    root = schema.get_config_snap(snapshot.mode_def_snaps[0].root_config_key)
    return default_values_yaml_from_type_snap(schema, root)


def test_a_form_that_nobody_filled_in_names_a_field_and_does_nothing(world: World) -> None:
    world.insert((1, 1))
    for verb in maintenance.VERBS:
        failure = world.failure(verb.name)
        assert failure.split(" is ")[0] in verb.form.model_fields, (verb.name, failure)
        assert "Nothing was done" in failure
    assert world.rows() == [(1, 1)]
    assert world.events() == []


def test_a_field_that_is_left_out_of_a_run_config_is_missed(world: World) -> None:
    with pytest.raises(
        dg.DagsterInvalidConfigError, match='Missing required config entry "commands"'
    ):
        world.run("mutate", table="t")


def test_a_partition_is_dropped_when_it_is_meant(world: World) -> None:
    world.insert((1, 1), (1, 2), (2, 3))
    told = world.told("drop_partitions", table="t", partitions=["1"])
    assert (told["dry run"], told["rows"], told["parts"]) == (True, 2, 1)
    [record] = told["which"].records
    assert record.data["part"] == "1_0_0_0"
    assert world.rows() == [(1, 1), (1, 2), (2, 3)]
    assert world.events() == []
    world.instance.add_dynamic_partitions("t_partition", ["1", "2"])
    twice = ["1", "1"]
    told = world.told("drop_partitions", table="default.t", partitions=twice, dry_run=False)
    assert (told.get("dry run"), told["rows"]) == (None, 2)
    assert world.rows() == [(2, 3)]
    assert world.events() == []  # whoever carries it out tells of it (`test_ledger`)
    assert world.partitions() == ["2"]


WRONG: list[tuple[str, dict[str, Any], str, str]] = [
    ("drop_partitions", {"table": "t", "partitions": ["9"]}, "partitions is '9'", "are: 1, 2"),
    ("drop_partitions", {"table": "no", "partitions": ["1"]}, "table is 'no'", "default.t"),
    ("drop_partitions", {"table": "t", "partitions": [""]}, "partitions is ''", "are: 1, 2"),
    ("detach_partitions", {"table": "t", "partitions": ["1", ""]}, "partitions is ''", "all"),
    (
        "move_partition",
        {"table": "t", "partition": "", "to_table": "other"},
        "partition is ''",
        "does not mean all. There are: 1, 2",
    ),
    (
        "replace_partition",
        {"table": "t", "partition": "", "from_table": "t"},
        "partition is ''",
        "does not mean all",
    ),
    ("optimize", {"table": "t", "partition": "x"}, "partition is 'x'", "There are: 1, 2"),
    (
        "optimize",
        {"table": "tt"},
        "table is 'tt'",
        "did you mean 't'? There are: default.other",
    ),
    (
        "optimize",
        {"table": "t", "deduplicate": True, "deduplicate_by": ["m"]},
        "deduplicate_by is 'm'",
        "There are: p, n",
    ),
    (
        "optimize",
        {"table": "t", "deduplicate_by": ["n"]},
        "deduplicate_by is ['n']",
        "deduplicate to be switched on",
    ),
    ("mutate", {"table": "t", "commands": "DELETE n"}, "commands is 'DELETE n'", "SYNTAX"),
    (
        "mutate",
        {"table": "t", "commands": "DELETE WHERE m = 1"},
        "commands is 'DELETE WHERE m = 1'",
        "m",
    ),
    (
        "move_partition",
        {"table": "t", "partition": "1", "to_table": "no"},
        "to_table is 'no'",
        "default.other",
    ),
    (
        "replace_partition",
        {"table": "t", "partition": "1", "from_table": "other"},
        "partition is '1'",
        "default.other has no rows",
    ),
    ("freeze", {"table": "t", "partition": "x"}, "partition is 'x'", "There are: 1, 2"),
    ("fetch_partition", {"table": "t", "from_path": "/p"}, "partition is ''", "or one part"),
    (
        "fetch_partition",
        {"table": "t", "from_path": "/nosuch", "partition": "1"},
        "from_path is '/nosuch'",
        "there is no table at /nosuch",
    ),
    (
        "fetch_partition",
        {"table": "t", "from_path": "/tables/other", "part": "x"},
        "part is 'x'",
        "not the name of a part",
    ),
    ("attach_partition", {"table": "t", "partition": "1"}, "partition is '1'", "detached"),
    ("attach_partition", {"table": "t", "part": "1_0_0_0"}, "part is '1_0_0_0'", "detached"),
    (
        "attach_partition",
        {"table": "t", "partition": "1", "part": "1_0_0_0"},
        "part is '1_0_0_0'",
        "not both",
    ),
    (
        "drop_detached",
        {"table": "t", "partition": "1", "everything": True},
        "partition is '1'",
        "or switch on everything",
    ),
    ("drop_detached", {"table": "t"}, "partition is ''", "or switch on everything"),
    ("drop_detached", {"table": "t", "everything": True}, "partition is ''", "nothing of it"),
    ("clear_column", {"table": "t", "column": "m"}, "column is 'm'", "There are: p, n"),
    (
        "clear_column",
        {"table": "t", "column": "n", "partition": "x"},
        "partition is 'x'",
        "There are: 1, 2",
    ),
    ("drop_table", {"table": "no"}, "table is 'no'", "default.other"),
    ("undrop_table", {"table": "no"}, "table is 'no'", "no"),
    ("drop_replica", {"replica": "r1"}, "replica is 'r1'", "DROP TABLE"),
    ("drop_replica", {"replica": "r7"}, "replica is 'r7'", "no table has one"),
    ("drop_replica", {"replica": ""}, "replica is ''", "no name of a node"),
    ("drop_replica", {"replica": "r1/parts"}, "replica is 'r1/parts'", "has a slash"),
    ("undo_insert", {"table": "t", "insert_id": "i"}, "insert_id is 'i'", "knows no insert"),
]


def test_a_wrong_value_is_named_and_nothing_is_done(world: World) -> None:
    world.insert((1, 1), (2, 2))
    replica = world.table().replica
    log = replica.keeper.children(replica.table.log)
    for job, config, field, words in WRONG:
        form = {verb.name: verb.form for verb in maintenance.VERBS}[job]
        meant = {"dry_run": False} if "dry_run" in form.model_fields else {}
        failure = world.failure(job, **config, **meant)
        assert field in failure
        assert words in failure
        assert "Nothing was done" in failure
    config = {"table": "t", "partitions": ["1"], "dry_run": False, "alter_sync": 4}
    failure = world.failure("drop_partitions", **config)
    assert "alter_sync is 4: Input should be less than or equal to 3. Nothing" in failure
    assert replica.keeper.children(replica.table.log) == log
    assert world.rows() == [(1, 1), (2, 2)]
    assert world.events() == []


def test_rows_are_mutated_after_a_plan(world: World) -> None:
    world.insert((1, 1), (1, 2), (2, 3))
    told = world.told("mutate", table="t", commands="DELETE WHERE n = 2")
    assert told["dry run"] is True
    assert (told["rows that match"], told["parts to rewrite"]) == (1, 1)
    assert world.rows() == [(1, 1), (1, 2), (2, 3)]
    commands = "DELETE WHERE n = 2"
    told = world.told("mutate", table="t", commands=commands, dry_run=False, mutations_sync=0)
    [mutation] = world.table().mutations()
    assert told["mutation"] == mutation.status.mutation_id
    assign_mutations(world.table().replica)  # as the mutation sensor does
    world.table().sync()
    assert world.rows() == [(1, 1), (2, 3)]


def test_a_partition_is_merged_into_one_part(world: World) -> None:
    world.insert((1, 1))
    world.insert((1, 2))
    assert world.told("optimize", table="t", partition="1", final=True)["parts"] == 2
    told = world.told("optimize", table="t", partition="1", final=True, dry_run=False)
    assert told["parts"] == "1_0_1_1"
    assert [str(part.name) for part in world.table().parts()] == ["1_0_1_1"]


def test_what_is_detached_comes_back(world: World) -> None:
    world.insert((1, 1), (2, 2))
    world.told("detach_partitions", table="t", partitions=["1"], dry_run=False)
    assert world.rows() == [(2, 2)]
    assert world.told("attach_partition", table="t", dry_run=True)["parts"] == "1_0_0_0"
    assert world.told("attach_partition", table="t", partition="1")["rows"] == 1
    assert world.rows() == [(1, 1), (2, 2)]
    assert world.events() == []
    assert world.commands() == ["ATTACH PARTITION"]


def test_one_part_goes_and_then_all(world: World) -> None:
    world.insert((1, 1), (2, 2))
    world.insert((1, 3))
    config = {"table": "t", "part": "1_0_0_0", "detach": True}
    assert world.told("drop_part", **config)["rows"] == 1
    assert len(world.rows()) == 3
    world.told("drop_part", **config, dry_run=False)
    assert world.rows() == [(1, 3), (2, 2)]
    assert "There are: 1_1_1_0" in world.failure("drop_part", **config)
    assert world.told("truncate", table="t")["rows"] == 2
    world.told("truncate", table="t", dry_run=False)
    assert (world.rows(), world.partitions()) == ([], [])
    assert world.told("drop_detached", table="t", partition="1")["which"] == "1_0_0_0"
    world.told("drop_detached", table="t", name="1_0_0_0", dry_run=False)
    assert "nothing of it" in world.failure("drop_detached", table="t", name="1_0_0_0")
    assert world.events() == []
    assert world.commands() == ["DROP DETACHED PARTITION"]


def test_one_detached_part_is_attached_and_all_others_removed(world: World) -> None:
    world.insert((1, 1), (2, 2), (3, 3))
    world.told("detach_partitions", table="t", partitions=["1", "2", "3"], dry_run=False)
    assert world.told("attach_partition", table="t", part="2_0_0_0")["rows"] == 1
    assert world.rows() == [(2, 2)]
    removing = {"table": "t", "everything": True}
    assert world.told("drop_detached", **removing)["which"] == "1_0_0_0, 3_0_0_0"
    assert world.told("drop_detached", **removing, dry_run=False)["removed"] == 2
    assert world.table().store.detached_parts.names() == []


def test_a_column_of_a_partition_is_cleared(world: World) -> None:
    Session(world.server).execute("ALTER TABLE t ADD COLUMN v UInt8 DEFAULT 7")
    rows = [{"p": 1, "n": 1, "v": 1}, {"p": 2, "n": 2, "v": 2}]
    world.table().insert(rows)
    clear = {"table": "t", "column": "v", "partition": "1", "alter_sync": 0}
    assert world.told("clear_column", **clear)["rows"] == 1
    assert world.values("v") == [1, 2]
    world.told("clear_column", **clear, dry_run=False)
    assign_mutations(world.table().replica)  # as the mutation sensor does
    world.table().sync()
    assert world.values("v") == [7, 2]
    assert world.commands() == ["CLEAR COLUMN v"]


def test_a_table_is_dropped_and_taken_back(world: World) -> None:
    world.insert((1, 1))
    assert world.told("drop_table", table="t")["rows"] == 1
    assert world.rows() == [(1, 1)]
    assert world.told("drop_table", table="t", dry_run=False)["rows"] == 1
    assert "does not exist" in world.failure("truncate", table="t")
    assert world.told("undrop_table", table="default.t")["rows"] == 1
    assert world.rows() == [(1, 1)]
    assert "is 'default.t'" in world.failure("undrop_table", table="default.t")


def test_a_statement_without_a_form_of_its_own_is_carried_out(world: World) -> None:
    renamed = "RENAME TABLE other TO another"
    assert world.told("statement", statement=renamed)["kind"] == "RenameTables"
    world.told("statement", statement=renamed, dry_run=False)
    asked = "SELECT name FROM system.tables WHERE database = 'default' ORDER BY name"
    told = world.told("statement", statement=asked, dry_run=False)
    assert told["answer"] == "name\nanother\nt\n"
    assert "SYNTAX_ERROR" in world.failure("statement", statement="RENAME it")
    assert "UNKNOWN_TABLE" in world.failure(
        "statement", statement="DROP TABLE no", dry_run=False
    )


def test_another_tables_partition_is_attached_beside_what_is_there_once(world: World) -> None:
    world.insert((1, 1))
    world.insert((1, 7), table="other")
    config = {"table": "t", "partition": "1", "from_table": "other"}
    assert world.told("attach_partition_from", **config)["rows"] == 1
    assert world.told("attach_partition_from", **config)["already"] == 1
    assert world.rows() == [(1, 1), (1, 7)]


def test_a_partition_is_replaced_and_moved(world: World) -> None:
    world.insert((1, 1), (1, 2))
    world.insert((1, 7), table="other")
    config = {"table": "t", "partition": "1", "from_table": "other"}
    assert world.told("replace_partition", **config)["rows that would come"] == 1
    assert world.rows() == [(1, 1), (1, 2)]
    told = world.told("replace_partition", **config, dry_run=False)
    assert (told["rows"], told["rows that went"]) == (1, 2)
    assert world.rows() == [(1, 7)]
    config = {"table": "t", "partition": "1", "to_table": "other"}
    assert world.told("move_partition", **config)["rows"] == 1
    world.told("move_partition", **config, dry_run=False)
    assert (world.rows(), world.rows("other")) == ([], [(1, 7), (1, 7)])
    assert world.commands() == ["REPLACE PARTITION", "MOVE PARTITION"]
    assert world.commands("other") == ["MOVE PARTITION"]
    assert world.events() == world.events("default.other") == []


def test_an_insert_is_undone_once_and_can_be_made_again(world: World) -> None:
    world.insert((1, 1))
    wrong = world.insert((1, 2), (3, 3))
    assert world.told("undo_insert", table="t", insert_id=wrong)["rows"] == 2
    assert world.rows() == [(1, 1), (1, 2), (3, 3)]
    told = world.told("undo_insert", table="t", insert_id=wrong, dry_run=False)
    assert (told["rows"], told["parts"]) == (2, "1_1_1_0, 3_0_0_0")
    assert world.rows() == [(1, 1)]
    command = f"UNDO INSERT {wrong}"
    assert world.events() == [("1", command, -1), ("3", command, -1)]
    assert world.partitions() == ["1"]
    assert "knows no insert" in world.failure("undo_insert", table="t", insert_id=wrong)
    assert world.insert((1, 2), (3, 3)) == wrong
    assert world.rows() == [(1, 1), (1, 2), (3, 3)]


def test_what_was_merged_with_others_is_not_undone(world: World) -> None:
    world.insert((1, 1))
    wrong = world.insert((1, 2))
    world.told("optimize", table="t", final=True, dry_run=False)
    failure = world.failure("undo_insert", table="t", insert_id=wrong, dry_run=False)
    assert "were merged with those of other inserts into 1_0_1_1" in failure
    assert world.rows() == [(1, 1), (1, 2)]


def test_partitions_are_frozen(world: World) -> None:
    assert world.told("freeze", table="t", name="monday") == {"parts": 0}
    world.insert((1, 1), (2, 2))
    told = world.told("freeze", table="t", partition="1", name="monday")
    assert (told["parts"], told["which"], told["snapshot"]) == (1, "1_0_0_0", "monday")
    manifest = Path(told["directory"]) / "1_0_0_0" / "part.json"
    assert manifest.exists()
    assert world.told("freeze", table="t")["which"] == "1_0_0_0, 2_0_0_0"
    world.told("drop_partitions", table="t", partitions=["1"], dry_run=False)
    assert manifest.exists()
    assert world.commands() == ["FREEZE PARTITION", "FREEZE PARTITION"]
    assert world.events() == []
    unfreeze = {"table": "t", "name": "monday"}
    assert world.told("unfreeze", **unfreeze)["which"] == "1_0_0_0"
    assert manifest.exists()
    world.told("unfreeze", **unfreeze, dry_run=False)
    assert not manifest.exists()
    assert "name is 'monday'" in world.failure("unfreeze", **unfreeze)


def test_another_tables_partition_is_fetched_and_attached(world: World, monkeypatch) -> None:
    peers = DirectPeers({"r1": world.table("other").store})
    monkeypatch.setattr(Table, "_new_peers", lambda _: nullcontext(peers))
    world.insert((1, 1), (2, 2), table="other")
    path = "/tables/other"
    assert world.told("fetch_partition", table="t", from_path=path, partition="1") == {
        "parts": 1,
        "which": "1_0_0_0",
        "brought by an earlier try": "none",
    }
    told = world.told("fetch_partition", table="t", from_path=path, part="2_0_0_0")
    assert told["which"] == "2_0_0_0"
    assert world.rows() == []
    world.told("attach_partition", table="t")
    assert world.rows() == [(1, 1), (2, 2)]


def test_a_table_is_checked_and_synced(world: World) -> None:
    world.insert((1, 1))
    world.insert((2, 2))
    told = world.told("check_table", table="t")
    assert (told["parts"], told["broken"]) == (2, 0)
    assert world.told("sync_replica", table="t", timeout_s=5.0)["entries at first"] == 0
    assert world.told("restore_replica", table="t")["ZooKeeper has the table"] is True


def test_a_broken_part_fails_the_check(world: World) -> None:
    world.insert((1, 1))
    [file] = world.table().files()
    path = Path(file)
    path.write_bytes(path.read_bytes()[:20] + b"\xff\xff" + path.read_bytes()[22:])
    failure = world.failure("check_table", table="t")
    assert "1 of 1 parts are broken: 1_0_0_0" in failure


def test_what_a_dead_server_left_is_removed(world: World) -> None:
    replica = world.table().replica
    dead = replica.table.replica("r9")
    for path in (dead.root, dead.queue, dead.parts, dead.host, dead.is_lost):
        replica.keeper.multi([Create(path)])
    told = world.told("drop_replica", replica="r9")
    assert told == {"dry run": True, "tables": 1, "of": "default.t"}
    assert replica.keeper.exists(dead.root) is not None
    world.told("drop_replica", replica="r9", dry_run=False)
    assert replica.keeper.exists(dead.root) is None
