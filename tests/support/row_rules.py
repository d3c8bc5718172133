"""Rows as tuples for tests of the row oracle."""

from tests.oracle.rows import MergeRules, merge_rows


def rules(kind: str, columns: str, order_by: str = "k", **more) -> MergeRules:
    """`columns` as in "k String, n Int64"; types may have commas in parentheses."""
    found = tuple(tuple(column.strip().split(" ", 1)) for column in columns.split("; "))
    return MergeRules(kind=kind, order_by=tuple(order_by.split()), columns=found, **more)


def merge(given: MergeRules, *sources: list[tuple], **more) -> list[tuple]:
    names = [name for name, _ in given.columns]
    merged = merge_rows(
        [[dict(zip(names, row, strict=True)) for row in source] for source in sources],
        given,
        **more,
    )
    return [tuple(row[name] for name in names) for row in merged]
