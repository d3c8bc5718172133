"""`rmt undo`: an insert that should not have been."""

from rmt_pipeline.cli.watch import opened_servers, tables_of
from rmt_pipeline.config import Config
from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.protocol.inserts.ids import insert_id_of_token
from rmt_pipeline.replica.partitions.undo import UndoPlan, UnknownInsert
from rmt_pipeline.table import Table


def run_undo(
    config: Config,
    server: str | None,
    table: str | None,
    insert_id: str,
    token: str,
    *,
    is_meant: bool,
) -> int:
    """Say what would go; with `is_meant`, have it go. The exit status is 1 when it can't be undone.
    Raises UserError when it is not clear which insert; what `Table.undo` raises.
    """
    if bool(insert_id) == bool(token):
        raise UserError("which insert? Give its ID, as `rmt inserts` shows it, or --token")
    wanted = insert_id_of_token(token) if token else insert_id
    with opened_servers(config, server, "undo") as contexts:
        found: dict[str, tuple[Table, UndoPlan]] = {}
        unknown: UnknownInsert | None = None
        for _, one in tables_of(contexts, table):
            path = one.definition.engine.zookeeper_path
            if path in found:
                continue  # another replica of it
            try:
                found[path] = one, one.plan_undo(wanted)
            except UnknownInsert as error:
                unknown = error
        if not found:
            raise unknown or UserError("there is no table")
        for one, plan in found.values():
            print(f"{one.definition.full_name}: {plan.words()}")
        if any(plan.refusal for _, plan in found.values()):
            return 1
        if not is_meant:
            print("nothing was changed: --yes undoes it")
            return 0
        if len(found) > 1:
            raise UserError(
                f"insert {wanted} is in {len(found)} tables: say which with --table. "
                "Nothing was changed"
            )
        [(one, _)] = found.values()
        print(f"{one.definition.full_name}: {one.undo(wanted).words()}")
    return 0
