"""The names of inserts: which rows, of which partitions, an asset has stored already."""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import dagster as dg
import pyarrow as pa

from rmt_pipeline.compute.inputs.memory import require_own_names
from rmt_pipeline.dagster.rows.given import in_arrow, in_dicts
from rmt_pipeline.protocol.errors import UnknownType
from rmt_pipeline.protocol.inserts.ids import insert_id_of_token
from rmt_pipeline.store.hashes.rows import hash_table
from rmt_pipeline.table import Table


def insert_token(
    context: dg.OutputContext, table: Table, keys: Sequence[str], which: str, *before: str
) -> str:
    """The insert's name, or the one that earlier builds gave it if the table knows it by that: so a
    run that began with such a build and is retried stores its rows once. `which` tells the insert
    from others of these partitions, and `before` is what did in earlier builds.

    The oldest of these names is another insert's if the run that stored under it was for another
    partition.
    """
    asset = context.asset_key
    names = [insert_name(asset, keys, one) for one in (which, *before)]
    oldest = f"{asset.to_user_string()}/{_ends(keys)}/{(which, *before)[-1]}"
    if {*names, oldest} == {names[0]}:
        return names[0]
    ids = {one: insert_id_of_token(one) for one in (*names, oldest)}
    known = {one.insert_id: one.record for one in table.inserts(list(ids.values()))}
    for name in names:
        if ids[name] in known:
            return name
    if ids[oldest] not in known:
        return names[0]
    run = context.step_context.instance.get_run_by_id(known[ids[oldest]].run_id)
    of = None if run is None else run.tags.get("dagster/partition")
    return oldest if of in (None, *keys) else names[0]


def insert_name(asset: dg.AssetKey, keys: Sequence[str], which: str) -> str:
    """The name of an insert of these partitions; `which` tells it from their others. Where a slash
    is no delimiter, the number of the partition's characters is added: else partition `b/c` of
    asset `a` would have the name of partition `c` of asset `a/b`, and of equal rows those of one
    of them would be taken for the other's, and not stored.
    """
    partition, escaped = _ends(keys), asset.to_escaped_user_string()
    name = f"{escaped}/{partition}/{which}"
    is_plain = "/" not in partition and escaped == asset.to_user_string()
    return name if is_plain else f"{name}/{len(partition)}"


def _ends(keys: Sequence[str]) -> str:
    return "…".join(dict.fromkeys([keys[0], keys[-1]])) if keys else ""


def row_digests(given: Any) -> tuple[str, ...]:
    """32 hexadecimal digits of a hash over columns and values, however they are chunked and in
    whatever order the rows and columns come: a query without ORDER BY gives the same rows in
    another one when its run is repeated. And those of earlier builds, by the order of rows.
    """
    rows = in_arrow(given)
    if rows is None:
        return _digests_of_texts(given)
    require_own_names(rows.column_names)
    try:
        found = hash_table(rows)
    except UnknownType:  # a type that the table will convert, such as decimals of 256 bits
        names, texts = rows.column_names, list(map(repr, rows.to_pylist()))
        whole = repr((sorted(names), sorted(texts)))
        return _digits(whole), _digits(repr((names, rows.to_pylist())))
    count, names = str(found.rows), rows.column_names
    return (
        _digits("\n".join(["rows", *sorted(names), count, f"{found.row_hash:032x}"])),
        _digits("\n".join([*names, count, f"{found.content_hash:032x}"])),
    )


def _digests_of_texts(rows: Any) -> tuple[str, ...]:
    """`row_digests` of rows that are no columns of Arrow's types. Earlier builds took a value that
    a row lacks for NULL, and left out what the first row lacks.
    """
    whole = _digits(repr(sorted(map(_text, in_dicts(rows)))))
    if isinstance(rows, list) and all(row.keys() <= rows[0].keys() for row in rows):
        with suppress(pa.ArrowException, OverflowError):
            return whole, *row_digests(pa.Table.from_pylist(rows))
    return (whole,)


def _text(value: Any) -> str:
    """A text that every other value has another of: those of numpy's arrays leave out digits, and
    elements of long ones.
    """
    if hasattr(value, "tolist"):
        return f"{getattr(value, 'dtype', '')}{_text(value.tolist())}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(sorted(f'{key!r}: {_text(value[key])}' for key in value))}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    return repr(value)


def _digits(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
