"""Units inside a task of somebody else's scheduler: results instead of exceptions.

A unit that fails must not take the other units of its task with it, nor have its task retried:
the same bytes would fail again. What comes back is plain data, from which the driver makes the
error.
"""

import pickle
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from rmt_pipeline.compute.merge.unit import run_unit
from rmt_pipeline.compute.mutate.units import MutateUnit
from rmt_pipeline.compute.rows.source import BrokenSource
from rmt_pipeline.compute.units import Unit, UnitFailed, UnitResult
from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.system import Clock, SystemClock

RESULT_SCHEMA = pa.schema([pa.field("result", pa.binary(), nullable=False)])


def try_unit(unit: Unit, clock: Clock) -> UnitResult:
    """What became of the unit, whatever became of it."""
    try:
        if isinstance(unit, MutateUnit):
            # For start-up time.
            from rmt_pipeline.compute.mutate.unit import run_mutation  # noqa: PLC0415  DuckDB

            return run_mutation(unit, clock)
        return run_unit(unit, clock)
    except BrokenSource as error:
        return UnitFailed(unit.merge, unit.ordinal, "Corruption", str(error), str(error.part))
    except RmtError as error:
        return UnitFailed(unit.merge, unit.ordinal, type(error).__name__, str(error))
    except Exception as error:  # noqa: BLE001  reported, not swallowed
        message = f"{type(error).__name__}: {error}"
        return UnitFailed(unit.merge, unit.ordinal, "RmtError", message)


def try_units(units: Sequence[Unit], clock: Clock) -> Iterator[UnitResult]:
    """What became of each, in order. Those of mutations that have nothing to do are told apart
    together, where that is cheaper.
    """
    mutations = [unit for unit in units if isinstance(unit, MutateUnit)]
    nothing: frozenset[tuple[int, int]] = frozenset()
    if len(mutations) > 1:
        # For start-up time.
        from rmt_pipeline.compute.mutate.together import untouched  # noqa: PLC0415  DuckDB

        nothing = untouched(mutations)
    for unit in units:
        if isinstance(unit, MutateUnit) and (unit.merge, unit.ordinal) in nothing:
            from rmt_pipeline.compute.mutate.unit import nothing_done  # noqa: PLC0415  start-up

            yield nothing_done(unit)
        else:
            yield try_unit(unit, clock)


def pack(tasks: Sequence[Sequence[Unit]]) -> list[bytes]:
    """The units of each task as bytes for `run_tasks`."""
    return [pickle.dumps(tuple(units)) for units in tasks]


def run_tasks(
    packed: Sequence[bytes], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The body of a Spark task: `batches` hold numbers of tasks (the first column); out come
    pickled results.
    """
    pa.set_cpu_count(1)  # Spark counts one core per task; Arrow would take them all
    pa.set_io_thread_count(1)
    clock = SystemClock()
    for batch in batches:
        for number in batch.column(0).to_pylist():
            units = pickle.loads(packed[number])  # noqa: S301  our own driver's bytes
            for done in try_units(units, clock):
                result = pickle.dumps(done)
                yield pa.record_batch([pa.array([result], pa.binary())], schema=RESULT_SCHEMA)


def unpack(results: pa.Table) -> list[UnitResult]:
    """What `run_tasks` gave."""
    return [pickle.loads(row) for row in results.column("result").to_pylist()]  # noqa: S301
