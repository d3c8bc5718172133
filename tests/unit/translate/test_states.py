"""-State, -Merge and finalizeAggregation: what is no state is refused by name."""

import pytest

from rmt_pipeline.protocol.errors import NotImplementedStatement, UserError
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.translate.select.query import translate_query
from rmt_pipeline.translate.select.sources import Relation
from tests.support.queries import parse_query

T = Relation(
    "t",
    (
        Column("s", "AggregateFunction(sum, Int64)"),
        Column("n", "Int64"),
        Column("a", "Array(Int8)"),
    ),
)


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        (
            "sumMerge(n)",
            UserError,
            r"sumMerge takes a state, AggregateFunction\(sum, …\), not Int64",
        ),
        (
            "avgMerge(s)",
            UserError,
            r"AggregateFunction\(avg, …\), not AggregateFunction\(sum, Int64\)",
        ),
        ("sumMerge(s, n)", UserError, "sumMerge takes one state, not 2 arguments"),
        ("sumMergeState(s)", NotImplementedStatement, "states of states are not supported"),
        ("corrState(n, n)", UserError, "AggregateFunction has no 'corr'; it has sum"),
        ("sumIfMerge(s)", UserError, r"AggregateFunction\(sumIf, …\), not AggregateF"),
        ("maxState(a)", UserError, r"a state of Array\(Int8\) is not supported"),
        (
            "maxState(s)",
            UserError,
            r"a state of AggregateFunction\(sum, Int64\) is not supported",
        ),
        ("finalizeAggregation(n)", UserError, "finalizeAggregation takes a state, not Int64"),
        ("max(s)", UserError, "max needs values with an order"),
    ],
)
def test_what_is_no_state_is_refused(query, error, message) -> None:
    with pytest.raises(error, match=message):
        translate_query(parse_query(f"SELECT {query} FROM t"), lambda *_: T)
