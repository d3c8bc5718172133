"""`rmt export`: makes Delta and Iceberg tables over the files of a table's parts."""

from collections.abc import Sequence

from rmt_pipeline.cli.watch import typed_table
from rmt_pipeline.config import Config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.export.refresh import FORMATS, Exported, refresh


def run_export(
    config: Config,
    server: str,
    name: str,
    *,
    forms: Sequence[str],
    columns: Sequence[str],
    lease_s: float,
) -> int:
    """Bring the exports of a table up to date, and print the address that a reader opens."""
    with ServerContext(config, server, purpose="export") as context:
        found = typed_table(context, name)
        for form in FORMATS:
            if not forms or form in forms:
                print(_words(refresh(context, found, form, columns=columns, lease_s=lease_s)))
    return 0


def _words(exported: Exported) -> str:
    changed = (
        f"{exported.files_added} files more, {exported.files_removed} fewer"
        if exported.version
        else "nothing has changed"
    )
    rewritten = f"; rewritten: {', '.join(exported.converted)}" if exported.converted else ""
    return (
        f"{exported.format} {exported.place}: {exported.rows} rows in {exported.parts} parts; "
        f"{changed}{rewritten}"
    )
