"""ALTER TABLE by a simulated client: columns come and go; rows are what they were."""

from collections.abc import Callable

from rmt_pipeline.protocol.alter.commands import AddColumn, AlterCommand, DropColumn
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.replica.alter.request import request_alter
from tests.simulation.ledger import Ledger
from tests.support.cluster import Context, SimWaker


def add_column(name: str) -> AlterCommand:
    return AddColumn(Column(name, "Int64"), if_not_exists=True)


def drop_column(name: str) -> AlterCommand:
    return DropColumn(name, if_exists=True)


def alter(
    *commands: AlterCommand, wait_s: float = 20.0, ledger: Ledger | None = None
) -> Callable[[Context], None]:
    """What a client's process does; it waits until this replica has taken the ALTER up: a command
    that changes nothing, for those before it.
    """
    query = QuerySettings(alter_sync=1, receive_timeout=wait_s)

    def run(context: Context) -> None:
        request_alter(
            context.replica, lambda _: commands, query, lambda: SimWaker(context.process.world)
        )
        if ledger is not None:
            version = context.definition.metadata_version
            ledger.structure_kept = max(ledger.structure_kept, version)

    return run
