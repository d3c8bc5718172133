"""Adds up the results of a merge's units to its outcome, and checks that no row was lost."""

import datetime as dt
import decimal
import math
from collections.abc import Sequence
from typing import Any

from rmt_pipeline.compute.merge.job import MergeDone, MergeFailure, MergeJob, MergeOutcome
from rmt_pipeline.compute.rows.conform import is_current
from rmt_pipeline.compute.units import (
    Shape,
    UnitDone,
    UnitFailed,
    UnitResult,
    joined_bounds,
)
from rmt_pipeline.protocol import errors
from rmt_pipeline.protocol.alter.history import stored_as
from rmt_pipeline.protocol.errors import Corruption, RmtError
from rmt_pipeline.protocol.log.entry import MERGE_TTL_DELETE, MERGE_TTL_RECOMPRESS
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.protocol.ttl import NO_TTL, PartTtl, added
from rmt_pipeline.store.manifest import KeyBound, KeyValue, Manifest, PartColumn, PartFile
from rmt_pipeline.store.parquet import WRITER

MODULUS = 1 << 128
KERNEL_VERSION = 6  # bump it when the same sources would give other bytes
ENGINE_VERSION = f"kernel {KERNEL_VERSION}, {WRITER}"
KEY_TEXT_MAX = 1000  # characters of a bound; longer bounds are left out


def outcome_of(job: MergeJob, shape: Shape, results: Sequence[UnitResult]) -> MergeOutcome:
    """The outcome of a merge, from the results of all its units."""
    failed = first_failure(results)
    if failed is not None:
        return MergeFailure(job, error_of(failed), failed.part)
    done = sorted(
        (result for result in results if isinstance(result, UnitDone)),
        key=lambda unit: unit.ordinal,
    )
    made = added_up(job, shape, done)
    if (problem := not_conserved(shape, made)) is not None:
        return MergeFailure(job, Corruption(f"merge into {job.result}: {problem}"))
    return made


def first_failure(results: Sequence[UnitResult]) -> UnitFailed | None:
    """The failure to report for the job; None if no unit failed. A failure that names a broken
    source comes first, since it explains those of other units.
    """
    failures = (result for result in results if isinstance(result, UnitFailed))
    return min(failures, key=lambda failed: (not failed.part, failed.ordinal), default=None)


def error_of(failed: UnitFailed) -> RmtError:
    """The error that a unit reported, as if it had been raised here."""
    kind = getattr(errors, failed.error, RmtError)
    assert issubclass(kind, RmtError)
    return kind(failed.message)


def added_up(job: MergeJob, shape: Shape, units: Sequence[UnitDone]) -> MergeDone:
    """The sum of the units' results. It is not checked yet."""
    columns = dict.fromkeys((column.name for column in shape.columns), 0)
    for unit in units:
        for name, value in unit.column_hashes:
            columns[name] = (columns[name] + value) % MODULUS
    files = tuple(PartFile(*_file(unit)) for unit in units if unit.file is not None)
    partition = job.sources[0].manifest
    manifest = Manifest(
        columns=tuple(PartColumn(column.name, column.type) for column in shape.columns),
        rows=sum(unit.rows for unit in units),
        bytes_on_disk=sum(file.size for file in files),
        partition_id=partition.partition_id,
        partition=partition.partition,
        key_bounds=_key_bounds(units),
        files=files,
        row_hash=sum(unit.row_hash for unit in units) % MODULUS,
        column_hashes=columns,
        content_hash=sum(unit.content_hash for unit in units) % MODULUS,
        created_s=job.create_time_s,
        bytes_uncompressed=sum(unit.bytes_uncompressed for unit in units),
        sources=tuple(source.name for source in job.sources),
        engine_version=ENGINE_VERSION,
        metadata_version=job.definition.metadata_version,
        ttl=_ttl(job, shape, units),
    )
    return MergeDone(
        job=job,
        manifest=manifest,
        rows_in=sum(unit.rows_in for unit in units),
        seconds=sum(unit.seconds for unit in units),
        warnings=tuple(dict.fromkeys(text for unit in units for text in unit.warnings)),
    )


def _ttl(job: MergeJob, shape: Shape, units: Sequence[UnitDone]) -> PartTtl:
    if not shape.ttl:
        return NO_TTL
    before = [source.manifest.ttl for source in job.sources]
    now_s = job.create_time_s
    return PartTtl(
        times=added(times for unit in units for times in unit.ttl),
        codec=shape.codec,
        deleted_s=now_s
        if job.merge_type == MERGE_TTL_DELETE
        else max(one.deleted_s for one in before),
        recompressed_s=now_s
        if job.merge_type == MERGE_TTL_RECOMPRESS
        else max(one.recompressed_s for one in before),
    )


def _file(unit: UnitDone) -> tuple[str, int, str]:
    assert unit.file is not None
    return unit.file.name, unit.file.size, unit.file.hash


def not_conserved(shape: Shape, made: MergeDone) -> str | None:
    """What the merge lost or changed that should have stayed, in words; None if nothing.

    A merge that keeps every row must conserve the rows and the sum of each column; any other merge
    must at least have read every row. Columns that a source has with another type, or not at all,
    have no sum to compare with.
    """
    manifests = [source.manifest for source in made.job.sources]
    result = made.manifest
    rows = sum(manifest.rows for manifest in manifests)
    if made.rows_in != rows:
        return f"{made.rows_in} rows were read, the sources have {rows}. Nothing was published"
    if not shape.conserves_rows:
        return None
    if result.rows != rows:
        return f"{result.rows} rows were written, {rows} were read. Nothing was published"
    definition = made.job.definition
    if all(is_current(definition, each.columns, each.metadata_version) for each in manifests):
        expected = sum(manifest.row_hash for manifest in manifests) % MODULUS
        if result.row_hash != expected:
            return (
                f"the row hash is {result.row_hash:032x}, the sources' sum {expected:032x}. "
                "Nothing was published; check the sources"
            )
    sums = [column_sums(definition, manifest) for manifest in manifests]
    for column in sorted(shape.columns, key=lambda column: column.name):
        name = column.name
        if all(name in of_source for of_source in sums):
            total = sum(of_source[name] for of_source in sums) % MODULUS
            if result.column_hashes[name] != total:
                return f"column {name} is not what it was. Nothing was published"
    return None


def column_sums(definition: TableDefinition, manifest: Manifest) -> dict[str, int]:
    """The hash sums of a part's columns, by their current names, without columns that the part has
    with another type or not at all.
    """
    types = {column.name: column.type for column in definition.columns}
    return {
        one.column: manifest.column_hashes[one.name]
        for one in stored_as(definition, manifest.columns, manifest.metadata_version)
        if one.type == types[one.column]
    }


def _key_bounds(units: Sequence[UnitDone]) -> tuple[KeyBound, ...]:
    bounds: dict[str, tuple[Any, Any]] = {}
    for unit in units:
        for name, least, greatest in unit.key_bounds:
            before = bounds.get(name, (None, None))
            bounds[name] = joined_bounds(before, (least, greatest))
    return tuple(KeyBound(name, *json_bounds(found)) for name, found in bounds.items())


def json_bounds(bounds: tuple[Any, Any]) -> tuple[KeyValue, KeyValue]:
    """Two bounds as they stand in a manifest. None and None if one is too long or can't stand
    there.
    """
    least, greatest = (_json_value(value) for value in bounds)
    return (None, None) if least is None or greatest is None else (least, greatest)


def _json_value(value: Any) -> KeyValue:
    match value:
        case bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case str():
            return value if len(value) <= KEY_TEXT_MAX else None
        case dt.datetime() | dt.date():
            return value.isoformat()
        case decimal.Decimal():
            return str(value)
        case bytes():
            return value.hex()
        case _:
            return None
