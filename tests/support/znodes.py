"""Reads the recorded tree of a real table: path, data version, data as a bytes literal."""

import ast
from pathlib import Path


def recorded_nodes(path: Path) -> dict[str, bytes]:
    """Data by path, relative to the table's path."""
    nodes = {}
    for line in path.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        full_path, _, literal = line.split("\t")
        relative = "/".join(full_path.split("/")[5:])
        data = ast.literal_eval(literal)
        assert isinstance(data, bytes)
        nodes[relative] = data
    return nodes
