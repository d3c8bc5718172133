"""Any text gives a value or a UserError; canonical texts and printed values read back."""

import string

import duckdb
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rmt_pipeline.protocol.errors import UnknownType, UserError
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.syntax.canonical import canonical, text_in_mutation
from rmt_pipeline.syntax.expression import parse_expression
from rmt_pipeline.syntax.mutation import DeleteRows, commands_text, parse_commands
from rmt_pipeline.syntax.nodes import Call, Lambda
from rmt_pipeline.syntax.types import arrow_schema, parse_type
from rmt_pipeline.translate.connection import open_connection, user_error
from rmt_pipeline.translate.evaluate import evaluate
from rmt_pipeline.translate.expression import compile_expression
from rmt_pipeline.translate.functions.registry import all_names
from rmt_pipeline.translate.select.query import translate_query
from rmt_pipeline.translate.select.sources import Relation
from rmt_pipeline.types.data_type import DataType
from rmt_pipeline.types.from_text import parse_value
from rmt_pipeline.types.to_text import column_values, formatter
from tests.support.edge_rows import COLUMNS
from tests.support.function_cases import CASES
from tests.support.queries import parse_query

NAMES = [column.name for column in COLUMNS]
WORDS = st.sampled_from(
    [
        *NAMES,
        *all_names(),
        *("(", ")", "(", ")", ",", "[", "]", "{", "}", ".", ";", "::", "->", "?", ":", "=="),
        *("+", "-", "*", "/", "%", "=", "!=", "<", "<=", ">", "||", "<=>", "AND", "OR", "NOT"),
        *("IS", "NULL", "IN", "LIKE", "BETWEEN", "CASE", "WHEN", "THEN", "ELSE", "END", "AS"),
        *(
            "INTERVAL",
            "DAY",
            "CAST",
            "DISTINCT",
            "OVER",
            "SELECT",
            "FROM",
            "t",
            "WHERE",
            "GROUP",
        ),
        *("BY", "ORDER", "LIMIT", "WITH", "JOIN", "ON", "USING", "UNION", "ALL", "HAVING"),
        *(
            "1",
            "0",
            "-1",
            "1.5",
            "1e400",
            "18446744073709551615",
            "0x1F",
            "''",
            "'a'",
            "'\\xff'",
        ),
        *("'2020-01-01'", "'Int8'", "'Array(String)'", "'day'", "'UTC'", "`x", "'", "--", "/*"),
        *("Int8", "Nullable", "Array", "Decimal(9, 2)", "é", "\0", "x", "y", "true"),
    ]
)
SENTENCES = st.lists(WORDS, max_size=14).map(" ".join)
ROWS = arrow_schema(COLUMNS).empty_table()


def resolve(database: str | None, table: str, final: bool) -> Relation:
    del database, table, final
    return Relation('"rows"', COLUMNS)


def computed(text: str) -> None:
    """Compiles and, when that worked, runs it; only a UserError may come out."""
    try:
        expression = compile_expression(text, COLUMNS, allow_nondeterministic=True)
        (array,) = evaluate([expression], ROWS)
    except UserError:
        return
    assert array.type == expression.type.arrow


@given(SENTENCES)
@settings(deadline=None, max_examples=400)
@example("((((((" * 1000)
@example("NOT " * 5000 + "1")
@example("-" * 5000 + "1")
@example("1" + "+1" * 20_000)
@example("[" * 2000)
@example("1::" * 500 + "Int8")
def test_any_words_are_computed_or_refused(text: str) -> None:
    computed(text)


@given(st.text(max_size=60))
@settings(deadline=None, max_examples=200)
def test_any_characters_are_computed_or_refused(text: str) -> None:
    computed(text)


@given(
    st.sampled_from(all_names()),
    st.lists(
        st.sampled_from(
            [*NAMES, "NULL", "1", "-1", "''", "'a'", "1.5", "[]", "[1]", "tuple(1)", "x -> x"]
        ),
        max_size=4,
    ),
)
@settings(deadline=None, max_examples=1000)
def test_any_function_with_any_arguments_is_computed_or_refused(
    name: str, arguments: list[str]
) -> None:
    computed(f"{name}({', '.join(arguments)})")


@given(SENTENCES)
@settings(deadline=None, max_examples=300)
@example("t AS t" + ", t" * 3000)
@example(" UNION ALL SELECT 1" * 300)
@example("1 FROM " + "(SELECT 1 FROM " * 100)
def test_any_query_is_translated_or_refused(text: str) -> None:
    try:
        query = translate_query(parse_query(f"SELECT {text}"), resolve)
    except UserError:
        return
    connection = open_connection()
    connection.register("rows", ROWS)
    try:
        connection.sql(f"SELECT * FROM ({query.sql}) LIMIT 10").fetchall()
    except duckdb.Error as problem:
        user_error(problem, text)
    finally:
        connection.close()


@given(SENTENCES | st.sampled_from([text for group in CASES.values() for text in group]))
@settings(deadline=None, max_examples=400)
def test_a_canonical_text_reads_back_as_the_same_expression(text: str) -> None:
    try:
        node = parse_expression(text)
    except UserError:
        return
    written = canonical(node)
    assert parse_expression(written) == node
    assert canonical(parse_expression(written)) == written
    stored = text_in_mutation(node)
    assert text_in_mutation(parse_expression(stored)) == stored
    assert meaning(stored) == meaning(written)


OPERANDS = st.sampled_from(
    [
        *("a", "t.1", "t.1.2", "ar[1]", "(1, 2).1", "5", "-5", "1.5", "'x'", "NULL", "true"),
        *("[1, 2]", "(1, 2)", "f(a)", "not(a)", "`not`", "`distinct`", "`in`", "`null`"),
    ]
)
FORMS = st.sampled_from(
    [
        *("NOT {}", "not({})", "-{}", "- ({})", "({})", "({})[{}]", "({}).1", "{} IS NULL"),
        *("{} + {}", "{} - {}", "{} * {}", "{} % {}", "{} DIV {}", "{} || {}", "{} = {}"),
        *("{} < {}", "{} LIKE {}", "{} NOT LIKE {}", "{} IN ({})", "{} NOT IN (1, {})"),
        *("{} IN {}", "{} BETWEEN {} AND {}", "{} IS DISTINCT FROM {}", "{} AND {}"),
        *("{} OR {}", "f(x -> {}, {})", "{} ? {} : {}", "{}::Int32", "{} IS NOT NULL"),
    ]
)


def _filled(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(FORMS, parts, parts, parts).map(lambda it: it[0].format(*it[1:]))


@given(st.recursive(OPERANDS, _filled, max_leaves=12))
@settings(deadline=None, max_examples=1000)
@example("0 = not(a) + 2")
@example("a LIKE not(a) - 5")
@example("a || NOT(a) % 2")
@example("(`distinct` = 5) IS NULL")
@example("- ((5)[a])")
@example("-((-5)[a])")
@example("a IN t.1 % 2")
@example("a IN not(a)")
@example("0 = not(a, b) + 2")
def test_the_texts_of_nested_operators_read_back_as_the_same_tree(text: str) -> None:
    try:
        node = parse_expression(text)
    except UserError:
        return
    assert parse_expression(canonical(node)) == node
    command = (DeleteRows(node),)
    (read,) = parse_commands(commands_text(command))  # refuses a text with another meaning
    assert isinstance(read, DeleteRows)
    assert _bare(read.condition) == _bare(node)


def _bare(node: object) -> object:
    """The tree as nested tuples, without what a mutation's text may change: whether a call was
    written as an operator, and the parentheses of IN with one value.
    """
    match node:
        case Call():
            arguments = [_bare(one) for one in node.arguments]
            if node.name in {"in", "notIn"}:
                match arguments[1]:
                    case ("tuple", only):
                        arguments[1] = only
            return (node.name, *arguments)
        case Lambda():
            return ("->", node.parameters, _bare(node.body))
        case _:
            return node


def meaning(text: str) -> str:
    """The SQL that an expression becomes; "" for one that is refused."""
    try:
        return compile_expression(text, COLUMNS, allow_nondeterministic=True).duckdb_sql
    except UserError:
        return ""


@given(st.text(alphabet=string.ascii_letters + "(),'= 0123456789`\\", max_size=40))
@settings(max_examples=300)
@example("Array(" * 3000)
@example("Enum8(" + "'a'=1," * 3000)
def test_any_text_is_a_type_or_refused(text: str) -> None:
    try:
        data_type = parse_type(text)
    except UnknownType:
        return
    assert parse_type(data_type.text) == data_type


TYPES = [parse_type(column.type) for column in COLUMNS] + [
    parse_type(text)
    for text in ("Int256", "Decimal(60, 5)", "IPv6", "Array(Array(String))", "DateTime64(6)")
]


@given(st.sampled_from(TYPES), st.text(max_size=40))
@settings(max_examples=500)
def test_any_text_is_a_value_or_a_reason(data_type: DataType, text: str) -> None:
    try:
        value = parse_value(data_type, text)
    except ValueError:
        return
    pa.array([value], data_type.arrow)


def printed(type_text: str, value: object) -> tuple[str, object]:
    """A value in TSV, and what that reads back as."""
    data_type = parse_type(type_text)
    (stored,) = column_values(pa.array([value], data_type.arrow))
    text = formatter(data_type, "nested")(stored)
    return text, parse_value(parse_type(f"Array({type_text})"), f"[{text}]")


@given(st.floats(allow_nan=False))
def test_a_float_reads_back_from_what_is_printed(value: float) -> None:
    assert printed("Float64", value)[1] == [value]


@given(st.floats(allow_nan=False, width=32))
def test_a_float32_reads_back_from_what_is_printed(value: float) -> None:
    _, back = printed("Float32", value)
    assert pa.array(back, pa.float32()).to_pylist() == [value]


@given(st.text())
def test_a_string_reads_back_from_what_is_printed(value: str) -> None:
    assert printed("String", value)[1] == [value]


@given(st.binary(min_size=4, max_size=4))
def test_bytes_read_back_from_what_is_printed(value: bytes) -> None:
    assert printed("FixedString(4)", value)[1] == [value]


@given(st.decimals(min_value=-(10**7), max_value=10**7, places=2))
def test_a_decimal_reads_back_from_what_is_printed(value: object) -> None:
    assert printed("Decimal(12, 2)", value)[1] == [value]


@given(st.integers(min_value=-(2**255), max_value=2**255 - 1))
def test_a_wide_number_reads_back_from_what_is_printed(value: int) -> None:
    stored = parse_type("Int256").wide_to_bytes(value)
    text, back = printed("Int256", stored)
    assert text == str(value)
    assert back == [stored]


@pytest.mark.parametrize(
    "name", ["v", "x", "e", "b", "p0", "i", "m", "c0", "rmt_rows", "select"]
)
def test_a_column_named_like_a_name_of_ours_is_a_column(name: str) -> None:
    """Names of lambdas' parameters and of relations in compiled SQL must not meet columns."""
    columns = (Column(name, "String"), Column("a", "Array(String)"))
    table = pa.table({name: ["12"], "a": pa.array([["7"]], pa.list_(pa.string()))})
    wanted: dict[str, object] = {
        f"arrayMap(y -> toInt32(y) + toInt32(`{name}`) + length(toString(a)), a)": [24],
        f"arrayMap((y, z) -> concat(y, z, `{name}`), a, a)": ["7712"],
        f"arraySort(y -> toInt8(y) - length(`{name}`), a)": ["7"],
        f"has(a, `{name}`)": 0,
        f"indexOf(arrayPushBack(a, `{name}`), `{name}`)": 2,
        f"countEqual([`{name}`, 'x'], `{name}`)": 1,
        f"arrayDistinct([`{name}`, 'x', `{name}`])": ["12", "x"],
        f"arrayCompact([`{name}`, `{name}`, 'x'])": ["12", "x"],
        f"hasAny(a, [`{name}`])": 0,
    }
    texts = list(wanted)
    found = evaluate([compile_expression(text, columns) for text in texts], table)
    assert [array.to_pylist()[0] for array in found] == [wanted[text] for text in texts]
