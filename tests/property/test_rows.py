"""Laws of what merges do to rows."""

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracle.rows import MergeRules, Row, comparable, merge_rows

COLUMNS = (
    ("k", "Int8"),
    ("p", "Int8"),
    ("n", "Int8"),
    ("v", "UInt8"),
    ("d", "UInt8"),
    ("s", "Int8"),
)
KINDS = {
    "MergeTree": MergeRules("MergeTree", ("k",), COLUMNS),
    "Replacing": MergeRules("ReplacingMergeTree", ("k",), COLUMNS),
    "Replacing(v)": MergeRules("ReplacingMergeTree", ("k",), COLUMNS, version_column="v"),
    "Replacing(v, d)": MergeRules(
        "ReplacingMergeTree", ("k",), COLUMNS, version_column="v", is_deleted_column="d"
    ),
    "Summing": MergeRules("SummingMergeTree", ("k",), COLUMNS, columns_to_sum=("n",)),
    "Aggregating": MergeRules(
        "AggregatingMergeTree",
        ("k",),
        (("k", "Int8"), ("n", "SimpleAggregateFunction(max, Int8)"), *COLUMNS[3:]),
    ),
}
rows = st.fixed_dictionaries(
    {
        "k": st.integers(0, 3),
        "p": st.integers(0, 5),
        "n": st.integers(-128, 127),
        "v": st.integers(0, 3),
        "d": st.integers(0, 1),
        "s": st.sampled_from([1, -1]),
    }
)


def part(found: list[Row], rules: MergeRules) -> list[Row]:
    """Rows as an insert stores them: sorted."""
    return sorted(found, key=lambda row: comparable([row[name] for name in rules.equality]))


sources = st.lists(st.lists(rows, max_size=5), min_size=1, max_size=4)


@given(st.sampled_from(sorted(KINDS)), sources)
@settings(max_examples=300)
def test_a_merge_gives_sorted_rows_of_the_keys_it_was_given(
    kind: str, found: list[list[Row]]
) -> None:
    """P25."""
    rules = KINDS[kind]
    parts = [part(one, rules) for one in found]
    merged = merge_rows(parts, rules)
    keys = [row["k"] for row in merged]
    assert keys == sorted(keys)
    given_keys = {row["k"] for one in parts for row in one}
    assert set(keys) <= given_keys
    if kind != "MergeTree":
        assert len(keys) == len(set(keys))
    if kind != "Summing":
        assert set(keys) == given_keys


@given(sources)
def test_a_plain_merge_conserves_every_row(found: list[list[Row]]) -> None:
    """P25. The reason why row hashes of sources add up to that of the result."""
    rules = KINDS["MergeTree"]
    parts = [part(one, rules) for one in found]
    before = Counter(tuple(row.items()) for one in parts for row in one)
    assert Counter(tuple(row.items()) for row in merge_rows(parts, rules)) == before


@given(st.sampled_from(sorted(KINDS)), sources, st.integers(0, 4))
@settings(max_examples=400)
def test_merging_in_two_steps_is_merging_in_one(
    kind: str, found: list[list[Row]], cut: int
) -> None:
    """P26. For a reader with FINAL; a row that sums up to nothing may leave its first rows'
    other columns behind, so sums are compared alone.
    """
    rules = KINDS[kind]
    parts = [part(one, rules) for one in found]
    begin, end = cut % len(parts), len(parts)
    inner = merge_rows(parts[begin:end], rules)
    final = replace(rules, final=True)
    in_two = merge_rows([*parts[:begin], inner], final)
    in_one = merge_rows(parts, final)
    if kind == "Summing":
        in_two = [{"k": row["k"], "n": row["n"]} for row in in_two]
        in_one = [{"k": row["k"], "n": row["n"]} for row in in_one]
    assert in_two == in_one


@given(st.sampled_from(sorted(KINDS)), st.lists(rows, max_size=8))
def test_merging_what_is_merged_changes_nothing(kind: str, found: list[Row]) -> None:
    """P25. A part alone, merged by OPTIMIZE FINAL, keeps its rows."""
    rules = KINDS[kind]
    once = merge_rows([part(found, rules)], rules)
    assert merge_rows([once], rules) == once


versions = MergeRules(
    "VersionedCollapsingMergeTree", ("k",), COLUMNS, version_column="v", sign_column="s"
)


@given(sources, st.randoms(use_true_random=False))
@settings(max_examples=200)
def test_versions_collapse_to_the_same_signs_in_any_order(
    found: list[list[Row]], drawn
) -> None:
    """P26. Which of equal rows survives may differ, how many of which sign may not."""
    parts = [part(one, versions) for one in found]
    shuffled = list(parts)
    drawn.shuffle(shuffled)
    in_two = merge_rows([merge_rows(shuffled[:2], versions), *shuffled[2:]], versions)

    def signs(merged: list[Row]) -> Counter:
        return Counter((row["k"], row["v"], row["s"]) for row in merged)

    assert signs(in_two) == signs(merge_rows(parts, versions))


collapsing = MergeRules("CollapsingMergeTree", ("k",), COLUMNS, sign_column="s")


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 99)), max_size=8), st.integers(1, 6)
)
@settings(max_examples=200)
def test_a_history_of_states_collapses_to_the_last_ones(
    changes: list[tuple[int, int]], cut: int
) -> None:
    """P26. Each change of a key cancels its last state and writes a new one, in any parts."""
    state: dict[int, int] = {}
    stream: list[Row] = []
    for key, value in changes:
        if key in state:
            stream.append({"k": key, "n": state[key], "s": -1})
        stream.append({"k": key, "n": value, "s": 1})
        state[key] = value
    rules = replace(collapsing, columns=(("k", "Int8"), ("n", "Int8"), ("s", "Int8")))
    parts = [
        sorted(stream[begin : begin + cut], key=lambda row: row["k"])
        for begin in range(0, len(stream), cut)
    ]
    end = [{"k": key, "n": state[key], "s": 1} for key in sorted(state)]
    assert merge_rows(parts, rules) == end
    in_two = merge_rows([*parts[:1], merge_rows(parts[1:], rules)], replace(rules, final=True))
    assert in_two == end
