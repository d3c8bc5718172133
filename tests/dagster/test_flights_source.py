"""The demo's source: what the package holds is what the table can take."""

import datetime as dt

from examples.flights import source


def test_a_day_has_its_own_flights_only_and_all_of_them() -> None:
    rows = source.flights_of("2013-01-01")
    assert rows.num_rows == 842
    assert set(zip(*(rows[c].to_pylist() for c in ("year", "month", "day")), strict=True)) == {
        (2013, 1, 1)
    }


def test_the_days_of_the_year_are_every_flight_once() -> None:
    first = dt.date.fromisoformat(source.FIRST_DAY)
    end = dt.date.fromisoformat(source.END_DAY)
    days = [first + dt.timedelta(n) for n in range((end - first).days)]
    assert sum(source.flights_of(str(day)).num_rows for day in days) == source.FLIGHTS_COUNT


def test_missing_values_are_null_in_numbers_and_texts_alike() -> None:
    rows = source.flights_of("2013-01-02")
    assert rows["dep_time"].null_count > 0
    assert "NA" not in rows["tailnum"].to_pylist()
    for key in ("carrier", "flight", "time_hour"):
        assert rows[key].null_count == 0


def test_the_digest_follows_the_values() -> None:
    one, other = source.flights_of("2013-03-01"), source.flights_of("2013-03-02")
    assert source.digest(one) == source.digest(source.flights_of("2013-03-01"))
    assert source.digest(one) != source.digest(other)
    assert source.digest(one) != source.digest(one.slice(1))
