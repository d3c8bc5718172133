"""The commands of a mutation as a client wrote them, ready for the log."""

from collections.abc import Sequence

from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.sql.define.partition import partition_id_of
from rmt_pipeline.syntax.mutation import Command, PartitionId, PartitionValue, with_partition


def commands_for(commands: Sequence[Command], definition: TableDefinition) -> list[Command]:
    """The same commands, naming partitions by their ids: any replica can read that in the log.

    Raises BadValue for what is no value of the partition key.
    """
    return [_with_partition_id(command, definition) for command in commands]


def _with_partition_id(command: Command, definition: TableDefinition) -> Command:
    if not isinstance(command.partition, PartitionValue):
        return command
    return with_partition(command, PartitionId(partition_id_of(command.partition, definition)))
