"""Statements about partitions and parts."""

import pytest

from rmt_pipeline.protocol.errors import SyntaxProblem
from rmt_pipeline.syntax.expression import parse_expression
from rmt_pipeline.syntax.mutation import PartitionId, PartitionValue
from rmt_pipeline.syntax.statements.nodes import (
    AllPartitions,
    AlterPartitions,
    Answer,
    AttachPartition,
    DropDetached,
    DropPartition,
    FetchPartition,
    FreezePartition,
    MovePartition,
    OnePart,
    PartitionFrom,
    TableName,
    Truncate,
    UnfreezePartition,
)
from rmt_pipeline.syntax.statements.parse import parse

T, S = TableName(None, "t"), TableName(None, "s")


def value(text):
    return PartitionValue(parse_expression(text))


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("DROP PARTITION 201905", [DropPartition(value("201905"))]),
        ("drop partition id 'abc'", [DropPartition(PartitionId("abc"))]),
        ("DROP PARTITION ALL", [DropPartition(AllPartitions())]),
        ("DROP PARTITION ('2019-05-01', 'x')", [DropPartition(value("('2019-05-01', 'x')"))]),
        ("DROP PARTITION tuple()", [DropPartition(value("tuple()"))]),
        ("DROP PARTITION toYYYYMM(today())", [DropPartition(value("toYYYYMM(today())"))]),
        ("DROP PART 'a_0_1_2'", [DropPartition(OnePart("a_0_1_2"))]),
        ("DETACH PARTITION 1", [DropPartition(value("1"), detach=True)]),
        ("DETACH PART 'a_0_0_0'", [DropPartition(OnePart("a_0_0_0"), detach=True)]),
        ("ATTACH PARTITION 1", [AttachPartition(value("1"))]),
        ("ATTACH PARTITION ALL", [AttachPartition(AllPartitions())]),
        ("ATTACH PART 'a_0_0_0'", [AttachPartition(OnePart("a_0_0_0"))]),
        ("REPLACE PARTITION 1 FROM d.s", [PartitionFrom(value("1"), TableName("d", "s"))]),
        ("ATTACH PARTITION 1 FROM s", [PartitionFrom(value("1"), S, attach=True)]),
        ("MOVE PARTITION ID 'x' TO TABLE s", [MovePartition(PartitionId("x"), S)]),
        ("DROP DETACHED PARTITION ID 'x'", [DropDetached(PartitionId("x"))]),
        ("DROP DETACHED PART 'broken_a_0_0_0'", [DropDetached(OnePart("broken_a_0_0_0"))]),
        ("FETCH PARTITION 1 FROM '/p'", [FetchPartition(value("1"), "/p")]),
        ("FETCH PART 'a_0_0_0' FROM '/p'", [FetchPartition(OnePart("a_0_0_0"), "/p")]),
        ("FREEZE", [FreezePartition(None)]),
        ("FREEZE PARTITION 1", [FreezePartition(value("1"))]),
        ("FREEZE PARTITION ALL", [FreezePartition(AllPartitions())]),
        ("FREEZE WITH NAME 'n'", [FreezePartition(None, "n")]),
        ("UNFREEZE WITH NAME 'n'", [UnfreezePartition(None, "n")]),
        (
            "FREEZE PARTITION ID 'x' WITH NAME 'n', UNFREEZE PARTITION 1 WITH NAME 'n'",
            [FreezePartition(PartitionId("x"), "n"), UnfreezePartition(value("1"), "n")],
        ),
        (
            "DROP PARTITION 1, DETACH PARTITION ID 'b'",
            [DropPartition(value("1")), DropPartition(PartitionId("b"), detach=True)],
        ),
    ],
)
def test_a_command_on_partitions(text, commands):
    assert parse(f"ALTER TABLE t {text}") == AlterPartitions(T, tuple(commands))


def test_what_a_command_waits_for_is_said_behind_it():
    parsed = parse("ALTER TABLE d.t DROP PARTITION 1 SETTINGS alter_sync = 2")
    command = DropPartition(value("1"))
    assert parsed == AlterPartitions(
        TableName("d", "t"), (command,), Answer(None, (("alter_sync", "2"),))
    )


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("TRUNCATE TABLE t", Truncate(T)),
        ("TRUNCATE t", Truncate(T)),
        ("TRUNCATE TABLE IF EXISTS t SYNC", Truncate(T, if_exists=True)),
        ("truncate t settings alter_sync = 0", Truncate(T, settings=(("alter_sync", "0"),))),
    ],
)
def test_truncate(text, statement):
    assert parse(text) == statement


@pytest.mark.parametrize(
    "text",
    [
        "DROP PART a_0_0_0",
        "DROP PARTITION",
        "DROP PARTITION 1, DROP COLUMN x",
        "DROP PARTITION 1 2",
        "DETACH PART",
        "REPLACE PARTITION 1",
        "REPLACE PARTITION ALL FROM s",
        "ATTACH PART 'a_0_0_0' FROM s",
        "MOVE PARTITION 1 TO s",
        "FETCH PARTITION 1",
        "FETCH PART '1_0_0_0' FROM s",
    ],
)
def test_what_is_no_command_on_partitions(text):
    with pytest.raises(SyntaxProblem):
        parse(f"ALTER TABLE t {text}")
