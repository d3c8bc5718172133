"""Writes a table's definition as a CREATE TABLE, for SHOW CREATE TABLE and system.tables."""

from collections.abc import Iterator, Sequence

from rmt_pipeline.protocol.nodes.metadata import INDEX_GRANULARITY
from rmt_pipeline.protocol.table import Column, TableDefinition
from rmt_pipeline.types.escapes import in_backticks, quote_name, quote_text


def create_query(definition: TableDefinition, *, lines: bool = False) -> str:
    """Return the CREATE TABLE of a table on one line or, with `lines`, laid out as by SHOW CREATE
    TABLE. It can be parsed again.

    Macros are not expanded.
    """
    name = f"{quote_name(definition.database)}.{quote_name(definition.name)}"
    columns = [_column_text(column) for column in definition.columns]
    columns += [f"INDEX {text}" for text in definition.indices]
    columns += [f"PROJECTION {text}" for text in definition.projections]
    columns += [f"CONSTRAINT {text}" for text in definition.constraints]
    one_line, several_lines = ", ".join(columns), ",\n    ".join(columns)
    body = f"\n(\n    {several_lines}\n)\n" if lines else f" ({one_line}) "
    clauses = [f"ENGINE = {_engine(definition)}", *_clauses(definition)]
    if definition.comment:
        clauses.append(f"COMMENT {quote_text(definition.comment)}")
    return f"CREATE TABLE {name}{body}" + ("\n" if lines else " ").join(clauses)


def engine_text(definition: TableDefinition) -> str:
    """Return the engine with its keys and settings, as system.tables shows it."""
    return " ".join([_engine(definition), *_clauses(definition)])


def clause_text(expressions: Sequence[str]) -> str:
    """Return a key as a clause has it: `a`, `(a, b)`, `tuple()`."""
    if len(expressions) == 1:
        return expressions[0]
    return f"({', '.join(expressions)})" if expressions else "tuple()"


def _column_text(column: Column) -> str:
    parts = [in_backticks(column.name), column.type]
    if column.default_kind:
        parts += [column.default_kind, *([column.default] if column.default else [])]
    if column.comment:
        parts.append(f"COMMENT {quote_text(column.comment)}")
    if column.codec:
        parts.append(f"CODEC({column.codec})")
    if column.ttl:
        parts.append(f"TTL {column.ttl}")
    return " ".join(parts)


def _engine(definition: TableDefinition) -> str:
    engine = definition.engine
    columns = [
        engine.sign_column,
        engine.version_column,
        engine.is_deleted_column,
    ]
    arguments = []
    if not engine.is_private:
        path, replica = engine.typed_path, engine.typed_replica
        arguments = [
            quote_text(path or engine.zookeeper_path),
            quote_text(replica or engine.replica),
        ]
    arguments += [quote_name(name) for name in columns if name]
    if engine.columns_to_sum:
        arguments.append(f"({', '.join(map(quote_name, engine.columns_to_sum))})")
    return f"{engine.name}({', '.join(arguments)})" if arguments else engine.name


def _clauses(definition: TableDefinition) -> Iterator[str]:
    if definition.engine.is_plain:
        return
    if definition.partition_by:
        yield f"PARTITION BY {clause_text(definition.partition_by)}"
    if definition.primary_key is not None:
        yield f"PRIMARY KEY {clause_text(definition.primary_key)}"
    yield f"ORDER BY {clause_text(definition.order_by)}"
    if definition.sample_by:
        yield f"SAMPLE BY {definition.sample_by}"
    if definition.ttl:
        yield f"TTL {definition.ttl}"
    settings = dict(definition.settings)
    settings.setdefault("index_granularity", str(INDEX_GRANULARITY))  # as in the original
    pairs = (f"{name} = {_setting_value(value)}" for name, value in settings.items())
    yield f"SETTINGS {', '.join(pairs)}"


def _setting_value(value: str) -> str:
    is_number = value.lstrip("-").replace(".", "", 1).isdigit()
    return value if is_number else quote_text(value)
