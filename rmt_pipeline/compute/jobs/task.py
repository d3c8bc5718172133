"""Running units within a Spark task, with results instead of exceptions.

A unit that fails must not end the other units of its task, nor have Spark retry the task: the same
bytes would fail again. Its result is plain data, from which the driver makes the error.
"""

import atexit
import gc
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
    """Run a unit; any error becomes a UnitFailed."""
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
    """Run units; yields their results in order. Units of mutations that have nothing to do are
    found first, several at once where that is cheaper.
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
    """The units of each task as bytes, for `run_tasks`."""
    return [pickle.dumps(tuple(units)) for units in tasks]


def begin_task() -> None:
    """Prepare this Python worker of Spark for a task.

    Spark keeps the worker for its next task, and collects garbage in between, while that task may
    be waiting. Looking through the modules that are loaded took 27 ms each time; now they are left
    out of it.
    """
    pa.set_cpu_count(1)  # Spark counts on one core per task; Arrow would use them all
    pa.set_io_thread_count(1)
    if not gc.get_freeze_count():
        gc.freeze()
        atexit.register(gc.unfreeze)  # DuckDB complains of objects that are left at the end


def run_tasks(
    packed: Sequence[bytes], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The body of a Spark task: takes `batches` with the numbers of tasks in their first column,
    and yields the pickled results of these tasks' units.
    """
    begin_task()
    clock = SystemClock()
    for batch in batches:
        for number in batch.column(0).to_pylist():
            units = pickle.loads(packed[number])  # noqa: S301  our own driver's bytes
            for done in try_units(units, clock):
                result = pickle.dumps(done)
                yield pa.record_batch([pa.array([result], pa.binary())], schema=RESULT_SCHEMA)


def unpack(results: pa.Table) -> list[UnitResult]:
    """The results that `run_tasks` yielded."""
    return [pickle.loads(row) for row in results.column("result").to_pylist()]  # noqa: S301
