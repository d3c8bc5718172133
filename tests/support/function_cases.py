"""Reads function_cases.txt: groups of expressions over the edge rows."""

import re
from itertools import product
from pathlib import Path

_GROUP = re.compile(r"== ([^:]+)(?:: (.+))?")


def read_cases() -> dict[str, list[str]]:
    """Each group's expressions, with columns in the places of {0} and {1}."""
    cases: dict[str, list[str]] = {}
    rows: list[tuple[str, ...]] = [()]
    text = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        header = _GROUP.fullmatch(line)
        if header is not None:
            sides = [side.split() for side in (header[2] or "").split("*")]
            rows = list(product(*sides)) if header[2] else [()]
            group = cases.setdefault(header[1], [])
        elif line and not line.startswith("#"):
            group += [line.format(*row) if row else line for row in rows]
    return cases


CASES = read_cases()
