"""The commands of a mutation as a client wrote them, ready for the log."""

from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.sql.run.upkeep import partition_id_of
from rmt_pipeline.syntax.mutation import (
    Command,
    PartitionId,
    PartitionValue,
    parse_commands,
    with_partition,
)
from rmt_pipeline.syntax.statements.nodes import PartitionByValue


def commands_for(text: str, definition: TableDefinition) -> list[Command]:
    """`DELETE WHERE …`, `UPDATE c = … WHERE …`, several with commas between. What goes to the log
    names a partition by its id: any replica can read that.

    Raises SyntaxProblem; BadValue for what is no value of the partition key.
    """
    return [_with_partition_id(command, definition) for command in parse_commands(text)]


def _with_partition_id(command: Command, definition: TableDefinition) -> Command:
    if not isinstance(command.partition, PartitionValue):
        return command
    found = partition_id_of(PartitionByValue(command.partition.text), definition)
    return with_partition(command, PartitionId(found))
