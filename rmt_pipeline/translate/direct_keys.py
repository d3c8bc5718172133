"""Common forms of keys that Arrow computes without DuckDB, with the same answers.

For a block of one row Arrow takes 0.03 ms, DuckDB about a millisecond.
"""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc


def _floor(unit: str) -> Callable[[pa.ChunkedArray], pa.ChunkedArray]:
    """Return a function for the first day of a period, which is 1970-01-01 for periods that began
    before it.
    """

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
