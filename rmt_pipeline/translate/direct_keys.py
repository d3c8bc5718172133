"""Forms of keys that are so common that DuckDB's fixed cost of about a millisecond is worth
avoiding: Arrow computes them over a block of one row in 0.03 ms, with DuckDB's answers.
"""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc


def _floor(unit: str) -> Callable[[pa.ChunkedArray], pa.ChunkedArray]:
    """The first day of a period; of those that began before 1970 it is the first day there is."""

    def floor(array: pa.ChunkedArray) -> pa.ChunkedArray:
        days = pc.floor_temporal(array, unit=unit).cast(pa.date32())
        return pc.max_element_wise(days, pa.scalar(0, pa.date32()), skip_nulls=False)

    return floor


def _to_date(array: pa.ChunkedArray) -> pa.ChunkedArray:
    return array.cast(pa.date32(), safe=False)


def _yyyymm(array: pa.ChunkedArray) -> pa.ChunkedArray:
    year = pc.multiply(pc.year(array), pa.scalar(100, pa.int64()))
    return pc.add(year, pc.month(array)).cast(pa.uint32())


def _yyyymmdd(array: pa.ChunkedArray) -> pa.ChunkedArray:
    months = pc.multiply(_yyyymm(array).cast(pa.int64()), pa.scalar(100, pa.int64()))
    return pc.add(months, pc.day(array)).cast(pa.uint32())


def _year(array: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.year(array).cast(pa.uint16())


DIRECT: dict[str, Callable[[pa.ChunkedArray], pa.ChunkedArray]] = {
    "toYYYYMM": _yyyymm,
    "toYYYYMMDD": _yyyymmdd,
    "toYear": _year,
    "toDate": _to_date,
    "toMonday": _floor("week"),
    "toStartOfMonth": _floor("month"),
}
