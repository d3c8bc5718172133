"""What the maintenance jobs have in common: what they work with, and the words of their answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import islice
from typing import Any, NoReturn

import dagster as dg

from rmt_pipeline.context import ServerContext
from rmt_pipeline.dagster.engine import table_named
from rmt_pipeline.dagster.record.ledger import Recorder, first_of
from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.replica.reading import ActivePart
from rmt_pipeline.sql.formats.rows import Done
from rmt_pipeline.sql.formats.write import write_rows
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.table import Table

PARTS_SHOWN_MAX = 1000
NAMED_MAX = 20
ANSWER_SHOWN_MAX = 10_000
"""How many characters of a statement's answer are shown."""

Told = Mapping[str, Any]
"""What a job has done, or would do, as metadata."""

_PARTS_SCHEMA = dg.TableSchema(
    columns=[
        dg.TableColumn("part", "string"),
        dg.TableColumn("partition", "string"),
        dg.TableColumn("rows", "int"),
        dg.TableColumn("bytes", "int"),
    ]
)


@dataclass(frozen=True, slots=True)
class Doing:
    """What a job's function works with: the context of its run, and the server."""

    context: dg.OpExecutionContext
    server: ServerContext

    def say(self, words: str, *values: object) -> None:
        self.context.log.info(words, *values)

    def table(self, name: str, field: str = "table") -> Table:
        try:
            return table_named(self.server, name)
        except RmtError as error:
            there = few_named([one.full_name for one in self.server.catalog.definitions()])
            why = str(error)
            end = "" if why.endswith("?") else "."
            refuse_value(field, name, f"{why}{end} There are: {there}")

    def parts(self, table: Table, partition: str) -> list[ActivePart]:
        """The active parts of a partition; all active parts if `partition` is empty."""
        return self.parts_of(table, partition) if partition else table.parts()

    def parts_of(
        self, table: Table, partition: str, field: str = "partition"
    ) -> list[ActivePart]:
        """The active parts of one partition. Fails, naming `field`, if it has none."""
        active = table.parts()
        found = [part for part in active if part.name.partition == partition]
        if not found:
            there = few_named(sorted({part.name.partition for part in active}))
            why = (
                f"{table.definition.full_name} has no rows in a partition of that id"
                if partition
                else "it is to be the id of a partition, and empty does not mean all"
            )
            refuse_value(field, partition, f"{why}. There are: {there}")
        return found

    def sql(self, statement: str) -> Told:
        """The answer to a statement, as metadata. Raises what the statement raises."""
        answer = Session(self.server).execute(statement)
        if isinstance(answer, Done):
            self.say("%s", answer.note or "done")
            return {"in words": answer.note}
        shown = BytesIO()
        write_rows(replace(answer, batches=islice(answer.batches, 1)), "TSVWithNames", shown)
        text = shown.getvalue().decode(errors="replace")[:ANSWER_SHOWN_MAX]
        self.say("%s", text)
        return {"answer": text}

    def recorder(self, table: Table) -> Recorder:
        return Recorder(self.context, table, self.server.server.name)

    def emptied(self, table: Table, gone: Sequence[ActivePart]) -> None:
        """Remove emptied partitions from Dagster's. Events about the drop are written by the worker
        of each server that carries it out, and by the log sensor for what this server did at once.
        """
        self.recorder(table).forget_empty({part.name.partition for part in gone})


@dataclass(frozen=True, slots=True)
class Verb:
    """What a job does. `do` carries the job out; the job is named after it and the server. `said`
    describes the job if the form's docstring does not.
    """

    do: Callable[[Doing, Any], Told]
    form: type[dg.Config]
    said: str = ""

    @property
    def name(self) -> str:
        return self.do.__name__.removeprefix("_")

    @property
    def description(self) -> str:
        return self.said or " ".join((self.form.__doc__ or "").split())


def refuse_value(field: str, value: object, why: str) -> NoReturn:
    """Fail the run, without another try, before anything was done, for the value of a field."""
    raise dg.Failure(f"{field} is {value!r}: {why}. Nothing was done", allow_retries=False)


def told_of(parts: Sequence[ActivePart]) -> Told:
    """What the run's metadata says of the parts that it is about."""
    records = [
        dg.TableRecord(
            {
                "part": str(part.name),
                "partition": part.name.partition,
                "rows": part.manifest.rows,
                "bytes": part.manifest.bytes_on_disk,
            }
        )
        for part in parts[:PARTS_SHOWN_MAX]
    ]
    return {
        "parts": len(parts),
        "rows": rows_in(parts),
        "bytes": sum(part.manifest.bytes_on_disk for part in parts),
        "which": dg.MetadataValue.table(records, schema=_PARTS_SCHEMA),
    }


def rows_in(parts: Sequence[ActivePart]) -> int:
    """The number of rows of all of these."""
    return sum(part.manifest.rows for part in parts)


def parts_in_words(parts: Sequence[ActivePart]) -> str:
    """How many rows and bytes they have, and the names of the first ones."""
    size_bytes = sum(part.manifest.bytes_on_disk for part in parts)
    named = few_named([part.name for part in parts])
    return f"{rows_in(parts)} rows in {len(parts)} parts, {size_bytes} bytes ({named})"


def few_named(found: Sequence[object]) -> str:
    """The first ones, and how many more; "none" if there is none."""
    return first_of(found, NAMED_MAX, between=", ") or "none"
