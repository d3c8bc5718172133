"""Brings a Delta or Iceberg export up to date with the table's current rows.

1. The active parts are pinned, and their files were checked since they were last written to.
2. The files of each are linked into the export (`export.files`). A part that an ALTER's mutation
   has still to rewrite is written there anew, with the table's current columns.
3. One commit of the format adds the new files to its version, and removes those that are gone.
4. Links that no version has had for `lease_s` are removed.

A refresh that dies in between leaves the last version whole, and the next one goes on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from rmt_pipeline.compute.merge.job import SourcePart
from rmt_pipeline.compute.merge.plan import unit_source
from rmt_pipeline.compute.read.parts import converted_rows
from rmt_pipeline.context import ServerContext
from rmt_pipeline.export.columns import Names, exported_columns
from rmt_pipeline.export.files import ExportedFile, ExportFiles, name_of
from rmt_pipeline.files import escape_file_name
from rmt_pipeline.protocol.alter.history import stored_columns
from rmt_pipeline.protocol.errors import RmtError, UserError
from rmt_pipeline.replica.reading import ActivePart
from rmt_pipeline.store.disk import LocalDisk
from rmt_pipeline.syntax.types import arrow_schema
from rmt_pipeline.table import Table

EXPORTS = "exports"
Format = Literal["delta", "iceberg"]
FORMATS: tuple[Format, ...] = get_args(Format)
LEASE_S = 3600.0


@dataclass(frozen=True, slots=True)
class Exported:
    """The current version of an export, and how it differs from the one before."""

    format: Format
    place: str
    """The path that a reader opens: Delta's directory, or Iceberg's metadata file."""
    version: str
    """Empty if nothing has changed since the version before."""
    parts: int
    rows: int
    size_bytes: int
    files_added: int
    files_removed: int
    converted: tuple[str, ...]
    """Parts that were written anew for the export."""
    let_go: tuple[str, ...]
    """Directories that were removed because their lease was over."""


class _Open(Protocol):
    """An open export in some format: `DeltaExport` or `IcebergExport`."""

    old_names: bool

    def live(self) -> Mapping[str, ExportedFile]: ...
    def is_as(self, names: Names) -> bool: ...
    def generation(self, names: Names, /) -> str: ...
    def commit(
        self, names: Names, added: Sequence[ExportedFile], removed: Sequence[str]
    ) -> str: ...
    def place(self) -> str: ...
    def forget(self, lease_s: float) -> None: ...
    def close(self) -> None: ...


def refresh(
    server: ServerContext,
    table: Table,
    form: Format,
    *,
    columns: Sequence[str] = (),
    lease_s: float = LEASE_S,
) -> Exported:
    """Bring the export up to date; returns what a reader finds in it from now on.

    `columns` are the exported ones, all if empty. `lease_s` is for how long the files of a version
    stay after it was replaced. Raises what `Table.snapshot` raises; UserError for an unknown column
    or a missing library; NotExportable; ExportIsBusy; ExportIsBroken; DiskFull.
    """
    disk = LocalDisk(server.server.data)
    home = server.catalog.table_directory(table.definition).relative_to(server.catalog.data)
    # Readers of Delta decode "%" in paths. "~" occurs in no escaped name, so it can stand for "%".
    root = f"{EXPORTS}/{str(home).replace('%', '~')}/{form}"
    files = ExportFiles(disk, root, server.clock, server.ids)
    with files.held(), table.snapshot() as snapshot:
        with files.by_library():
            opened = _opened(files, table, form, lease_s, disk.local_path(EXPORTS))
        try:
            return _Refresh(table, files, opened, columns, lease_s).done(form, snapshot.parts)
        finally:
            opened.close()


def _opened(
    files: ExportFiles, table: Table, form: Format, lease_s: float, exports: str
) -> _Open:
    definition = table.definition
    try:
        if form == "delta":
            from rmt_pipeline.export.delta import DeltaExport  # noqa: PLC0415  start-up

            return DeltaExport(files, definition.full_name, lease_s)
        from rmt_pipeline.export.iceberg import CATALOG, IcebergExport  # noqa: PLC0415  start-up

        name = (escape_file_name(definition.database), escape_file_name(definition.name))
        return IcebergExport(files, f"{exports}/{CATALOG}", name)
    except ImportError as error:
        raise UserError(
            f"exporting to {form} needs a library that is not installed ({error}): "
            "pip install 'rmt-pipeline[export]'"
        ) from error


@dataclass(slots=True)
class _Refresh:
    table: Table
    files: ExportFiles
    opened: _Open
    columns: Sequence[str]
    lease_s: float

    def done(self, form: Format, parts: Sequence[ActivePart]) -> Exported:
        definition = self.table.definition
        names = Names.of(
            definition,
            exported_columns(definition, self.columns),
            others=self.opened.old_names,
        )
        converted: list[str] = []
        wanted: dict[str, ActivePart] = {}
        # Iceberg leaves empty files out of its lists.
        some = [part for part in parts if part.manifest.rows]
        with self.files.by_library():
            live = self.opened.live()
        there = {path.split("/")[1] for path in live}
        try:
            for part in sorted(some, key=lambda part: -part.manifest.metadata_version):
                wanted[self._in_place(part, names, converted)] = part
            added = [
                file
                for name in wanted
                if name not in there
                for file in self.files.files(name, names.meant)
            ]
        except RmtError:  # this may happen at every refresh: do not pile up links
            self.files.retire(there, self.lease_s)
            raise
        removed = [path for path in live if path.split("/")[1] not in wanted]
        version = ""
        with self.files.by_library():
            if added or removed or not self.opened.is_as(names):
                version = self.opened.commit(names, added, removed)
        if version:
            for part in wanted.values():  # a VACUUM may have removed new links
                self._in_place(part, names, converted)
        let_go = self.files.retire(wanted, self.lease_s)
        with self.files.by_library():
            self.opened.forget(self.lease_s)
            place = self.opened.place()
        return Exported(
            format=form,
            place=place,
            version=version,
            parts=len(parts),
            rows=sum(part.manifest.rows for part in parts),
            size_bytes=sum(part.manifest.bytes_on_disk for part in parts),
            files_added=len(added),
            files_removed=len(removed),
            converted=tuple(dict.fromkeys(converted)),
            let_go=tuple(let_go),
        )

    def _in_place(self, part: ActivePart, names: Names, converted: list[str]) -> str:
        """Link or rewrite the part's files; returns the name of their directory."""
        if names.takes(part.manifest):
            name = name_of(part.name, part.manifest, self.opened.generation(names))
            of_part = (self.table.store, part.name, part.manifest, name)
            if not self.files.has_links(*of_part):
                self.files.link(*of_part)
            return name
        definition = names.definition
        name = name_of(part.name, part.manifest, f"as-{names.conversion(part.manifest)}")
        if not self.files.has(name):
            directory = self.table.store.directory(part.name)
            source = unit_source(
                SourcePart(str(part.name), directory, part.manifest), definition
            )
            rows = converted_rows(source, stored_columns(definition))
            self.files.write(rows, arrow_schema(names.columns), name)
            converted.append(str(part.name))
        return name
