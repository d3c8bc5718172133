"""The Delta form of an export: `_delta_log` in its directory, over the linked files of parts.

The log names files relative to the directory, so it may be read from wherever it is mounted. In a
Delta table a column has the same name in all files (also with column mapping), and a file that
lacks a column has NULL there.
"""

import json
from collections.abc import Collection, Sequence
from typing import Any

from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from rmt_pipeline.export.columns import Names, digest_of, exported_schema
from rmt_pipeline.export.files import ExportedFile, ExportFiles
from rmt_pipeline.protocol.errors import UserError

_OF_FILES = ("path", "num_records", "size_bytes")


class DeltaExport:
    """The Delta table of one export, opened while the export's lock is held."""

    old_names = False

    def __init__(self, files: ExportFiles, name: str, lease_s: float) -> None:
        self._files = files
        self._name = name
        self._lease_s = lease_s
        found = DeltaTable.is_deltatable(files.directory)
        self._table: Any = DeltaTable(files.directory) if found else None

    def live(self) -> dict[str, ExportedFile]:
        """The files of the current version, by their paths."""
        if self._table is None:
            return {}
        actions = self._table.get_add_actions()
        columns = (actions.column(name).to_pylist() for name in _OF_FILES)
        return {found[0]: ExportedFile(*found) for found in zip(*columns, strict=True)}

    def is_as(self, names: Names) -> bool:
        """Whether the Delta table has these columns."""
        wanted = Schema.from_arrow(exported_schema(names.columns))
        return self._table is not None and self._table.schema() == wanted

    def generation(self, names: Names, /) -> str:
        """A name for exports with these columns, which is part of the files' paths.

        When columns change, the library removes all present paths in the same commit. A commit that
        both adds and removes one path confuses readers that apply its actions in order, as Spark
        does: they would not find the file. So the new files need other paths.
        """
        return digest_of([(one.name, one.type) for one in exported_schema(names.columns)])

    def commit(
        self, names: Names, added: Sequence[ExportedFile], removed: Collection[str]
    ) -> str:
        """Make a new version in one commit; returns its name."""
        schema = Schema.from_arrow(exported_schema(names.columns))
        adds = [self._add(file) for file in added]
        if self._table is None:
            create_table_with_add_actions(
                self._files.directory,
                schema,
                adds,
                name=self._name,
                configuration={
                    "delta.deletedFileRetentionDuration": f"interval {self._lease_s:.0f} seconds"
                },
            )
        elif not self.is_as(names):  # a change of columns lists all files anew
            if self.live().keys() - removed:
                raise UserError(
                    f"another program changed the columns of {self._files.directory}: remove it, "
                    "and it is exported again"
                )
            self._table.create_write_transaction(adds, "overwrite", schema)
        else:
            goes = [
                RemoveAction(
                    path=path,
                    deletion_timestamp=self._now_ms,
                    data_change=True,
                    partition_values={},
                    size=file.size_bytes,
                )
                for path, file in self.live().items()
                if path in removed
            ]
            self._table.create_write_transaction([*adds, *goes], "append", schema)
        self._files.sync("_delta_log")
        self._table = DeltaTable(self._files.directory)
        return str(self._table.version())

    @property
    def _now_ms(self) -> int:
        return int(self._files.clock.now_s() * 1000)

    def _add(self, file: ExportedFile) -> Any:
        counts = json.dumps({"numRecords": file.rows})
        return AddAction(file.path, file.size_bytes, {}, self._now_ms, True, counts)

    def place(self) -> str:
        """The path that a reader opens."""
        return self._files.directory

    def forget(self, lease_s: float) -> None:
        """Nothing to do: the library's commits make checkpoints and remove the log of
        old versions.
        """

    def close(self) -> None:
        self._table = None
