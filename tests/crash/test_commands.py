"""Each command on partitions and parts has scenarios that interrupt it everywhere: who adds one is
told here that it has none.
"""

from typing import get_args

import pytest

from rmt_pipeline.syntax.statements import definition, nodes
from tests.crash import test_between_tables
from tests.crash.scenarios import SCENARIOS

BETWEEN = set(test_between_tables.COMMANDS)
COMMANDS: dict[type, set[str]] = {
    nodes.DropPartition: {
        "drop partitions",
        "drop partitions and see to ids",
        "drop a part",
        "carry out a drop",
        "carry out a detach on the follower",
    },
    nodes.Truncate: {"drop partitions"},
    nodes.AttachPartition: {
        "attach what is detached",
        "attach on the follower",
        "attach what was detached",
    },
    nodes.DropDetached: {"drop what is detached"},
    nodes.PartitionFrom: {
        "replace partitions and see to ids",
        "replace partitions",
        "attach from a table",
        "replace",
        "attach",
    },
    nodes.MovePartition: {"move"},
    nodes.FetchPartition: {"fetch from another table"},
    nodes.FreezePartition: {"freeze"},
    nodes.UnfreezePartition: {"unfreeze"},
    definition.ClearColumnSyntax: {
        "clear a column of a partition",
        "rewrite for a column that is cleared",
    },
}
"""Scenarios of `SCENARIOS`, or of `test_between_tables`."""


def test_every_command_is_interrupted_somewhere() -> None:
    commands = {nodes.Truncate, definition.ClearColumnSyntax, *get_args(nodes.PartitionCommand)}
    assert COMMANDS.keys() == commands


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_its_scenarios_are_there(command: type) -> None:
    assert COMMANDS[command]
    assert COMMANDS[command] <= {*SCENARIOS, *BETWEEN}
