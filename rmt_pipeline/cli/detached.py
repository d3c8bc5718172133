"""`rmt detached`: what stands aside, and whether it may be deleted."""

from rmt_pipeline.cli.watch import opened_servers, tables_of
from rmt_pipeline.config import Config
from rmt_pipeline.replica.partitions.detached import DetachedDirectory, detached_directories


def run_detached(config: Config, server: str | None, name: str | None) -> int:
    """Each directory of one table, or of all, on one server or on all of this configuration."""
    with opened_servers(config, server, "detached") as contexts:
        for context, table in tables_of(contexts, name):
            found = (
                detached_directories(table.replica)
                if table.store.detached_parts.directories()
                else []
            )
            if not found and name is None:
                continue
            count = f"{len(found)} detached" if found else "nothing is detached"
            print(f"{table.definition.full_name} on {context.server.name}: {count}")
            now_s = context.clock.now_s()
            for one in found:
                print(f"  {_line(one, now_s)}")
    return 0


def _line(one: DetachedDirectory, now_s: float) -> str:
    about = [
        "another's" if one.name is None else one.name.reason or "no reason",
        "" if one.name is None else f"part {one.name.part}",
        "rows unknown" if one.rows is None else f"{one.rows} rows",
        f"{one.size_bytes} bytes",
        _age(now_s - one.modified_s),
    ]
    verdict = "safe to delete" if one.is_safe else "keep it"
    return f"{one.directory}: {', '.join(filter(None, about))}: {verdict}: {one.why}"


def _age(seconds: float) -> str:
    for unit_s, unit in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.0f} {unit} old"
    return f"{max(0.0, seconds):.0f} s old"
