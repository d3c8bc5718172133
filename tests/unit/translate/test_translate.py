"""Expressions: what is refused before anything is run, and with which words."""

from fractions import Fraction

import pytest

from rmt_pipeline.protocol.errors import (
    BadValue,
    NotImplementedStatement,
    SyntaxProblem,
    UnknownColumn,
    UnknownFunction,
    UnknownTable,
    UnknownType,
    UserError,
)
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.syntax.nodes import NamedTable, SampleClause
from rmt_pipeline.translate.expression import compile_expression
from rmt_pipeline.translate.select.query import translate_query
from rmt_pipeline.translate.select.sources import Relation
from tests.support.queries import parse_query

COLUMNS = (
    Column("id", "Int64"),
    Column("create_time", "DateTime"),
    Column("name", "String"),
    Column("point", "Tuple(x Float64, y Float64)"),
    Column("with space", "UInt8"),
    Column("day", "Date"),
    Column("n.a", "Array(Int64)"),
)


def test_a_plain_column_is_told_from_an_expression() -> None:
    assert compile_expression("id", COLUMNS).is_plain_column
    assert compile_expression("`with space`", COLUMNS).is_plain_column
    assert not compile_expression("id + 0", COLUMNS).is_plain_column
    assert not compile_expression("point.x", COLUMNS).is_plain_column


def test_the_columns_that_an_expression_uses_are_known() -> None:
    expression = compile_expression("point.x > id AND name LIKE 'a%' AND id = 1", COLUMNS)
    assert expression.columns_used == ("point", "id", "name")
    assert expression.canonical == "(point.x > id) AND (name LIKE 'a%') AND (id = 1)"
    assert not expression.is_constant
    assert compile_expression("1 + 1", COLUMNS).is_constant


def test_a_nested_column_is_found_by_its_dotted_name() -> None:
    assert compile_expression("n.a", COLUMNS).columns_used == ("n.a",)
    assert compile_expression("length(n.a)", COLUMNS).type.text == "UInt64"


def test_compiling_the_canonical_text_gives_the_same_expression() -> None:
    written = compile_expression("toYYYYMM(create_time)=202001 or not(id<5)", COLUMNS)
    assert compile_expression(written.canonical, COLUMNS) == written


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("create_tim", UnknownColumn, "create_time"),
        ("toYYYYMMM(day)", UnknownFunction, "toYYYYMM"),
        ("read_csv('/etc/passwd')", UnknownFunction, "read_csv"),
        ("getenv('HOME')", UnknownFunction, "getenv"),
        ("now()", UserError, "replicas would differ"),
        ("sum(id)", UserError, "aggregate"),
        ("row_number() OVER ()", UserError, "row_number"),
        ("(SELECT 1)", NotImplementedStatement, "subquery"),
        ("id IN (SELECT 1)", NotImplementedStatement, "subquery"),
        ("id +", SyntaxProblem, "the end"),
        ("id id", SyntaxProblem, "expected the end"),
        ("(id", SyntaxProblem, "expected `,` or `)`"),
        ("'open", SyntaxProblem, "never closed"),
        ("CAST(id AS Strng)", UnknownType, "String"),
        ("substring(name)", UserError, "2 to 3 arguments"),
        ("id = 'x'", BadValue, "not an integer"),
        ("day = '2020-13-01'", BadValue, "no day"),
        ("name + 1", UserError, "numbers, not String"),
        ("if(name, 1, 2)", UserError, "condition"),
        ("if(id, 'a', 1)", UserError, "String, UInt8"),
        ("id.x", UserError, "no tuple"),
        ("point.z", UserError, "no element 'z'"),
        ("match(name, id)", UserError, "constant string"),
        ("x -> x", UserError, "lambda"),
        ("*", UserError, "no place"),
        ("{p:Int8}", UserError, "parameter"),
    ],
)
def test_a_refusal_says_what_and_why(text: str, error: type[UserError], words: str) -> None:
    with pytest.raises(error) as refusal:
        compile_expression(text, COLUMNS)
    assert words in str(refusal.value)


def test_the_refusal_of_a_part_names_the_part() -> None:
    with pytest.raises(UserError, match="toHour"):
        compile_expression("id = 1 AND toHour(day) = 5", COLUMNS)


def test_an_expression_that_would_explode_is_refused() -> None:
    text = "id"
    for _ in range(30):
        text = f"lower(upper(toString({text})))"
    with pytest.raises(UserError):
        compile_expression(text, COLUMNS)


def test_what_is_not_deterministic_may_be_allowed() -> None:
    assert compile_expression("now()", (), allow_nondeterministic=True).type.text == "DateTime"


# Queries.


def resolve(source: NamedTable) -> Relation:
    if source.table != "t":
        raise UnknownTable(f"there is no table {source.table}")
    return Relation("t", (*COLUMNS, Column("twice", "Int64", "ALIAS", "id * 2")))


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT nosuch FROM t", "nosuch"),
        ("SELECT id FROM nosuch", "no table nosuch"),
        ("SELECT id, count() FROM t", "GROUP BY"),
        ("SELECT id FROM t WHERE count() > 1", "aggregate"),
        ("SELECT id FROM t WHERE row_number() OVER () > 1", "window"),
        ("SELECT sum(sum(id)) FROM t", "aggregate function inside"),
        ("SELECT id FROM t AS a, t AS b, t AS c", "several tables"),
        ("SELECT * FROM file('/etc/passwd')", "table function"),
        ("SELECT id FROM t LIMIT -1", "constant whole number"),
        ("SELECT id FROM t ORDER BY 5", "no column 5"),
        ("SELECT id FROM t UNION SELECT 1", "UNION ALL"),
        ("SELECT id FROM t UNION ALL SELECT 1, 2", "1 and 2 columns"),
        ("SELECT id FROM t HAVING id > 1", "write WHERE"),
        ("SELECT * EXCEPT (nosuch) FROM t", "nosuch"),
        ("SELECT columns('(') FROM t", "regular expression"),
        ("SELECT sum(id) OVER w FROM t", "no window 'w'"),
        ("SELECT 1 INTO OUTFILE 'x'", "INTO OUTFILE"),
    ],
)
def test_a_query_is_refused_before_it_runs(query: str, words: str) -> None:
    with pytest.raises(UserError) as refusal:
        translate_query(parse_query(query), resolve)
    assert words in str(refusal.value)


def test_the_star_leaves_out_alias_columns_that_can_be_named() -> None:
    names = [
        column.name
        for column in translate_query(parse_query("SELECT * FROM t"), resolve).columns
    ]
    assert names == [column.name for column in COLUMNS]
    twice = translate_query(parse_query("SELECT twice FROM t"), resolve)
    assert [(column.name, column.type.text) for column in twice.columns] == [("twice", "Int64")]


def test_final_and_sample_are_told_to_the_resolver() -> None:
    asked = []

    def remember(source: NamedTable) -> Relation:
        asked.append((source.database, source.table, source.final, source.sample))
        return resolve(source)

    tenth = SampleClause(Fraction(1, 10), Fraction(1, 2))
    translate_query(parse_query("SELECT id FROM db.t FINAL"), remember)
    translate_query(parse_query("SELECT id FROM t AS a SAMPLE 1/10 OFFSET 0.5"), remember)
    assert asked == [("db", "t", True, None), (None, "t", False, tenth)]


@pytest.mark.parametrize(
    ("innermost", "around"),
    [
        ("n.a", "arrayMap((a, b) -> a + b, {}, [1])"),
        ("id", "CASE {} WHEN 1 THEN 2 WHEN 5 THEN 3 ELSE 4 END"),
    ],
)
def test_what_is_nested_is_not_repeated_more_than_it_must_be(
    innermost: str, around: str
) -> None:
    """Each level may have the one below twice in it: the whole is not too large then."""
    expression = innermost
    for _ in range(9):
        expression = around.format(f"({expression})")
    assert compile_expression(expression, COLUMNS)


@pytest.mark.parametrize("more", ["", " AND id > 1", " AND (id > 1 AND name != '')"])
@pytest.mark.parametrize("kind", ["Int64", "Nullable(Int64)"])
def test_where_in_a_query_is_a_join_to_duckdb(kind: str, more: str) -> None:
    """It is twenty times faster so, and can leave row groups out."""
    columns = (*COLUMNS, Column("one", kind))
    names = ", ".join(f'NULL AS "{each.name}"' for each in columns)
    relation = Relation(f"(SELECT {names})", columns)
    query = f"SELECT id FROM t WHERE one IN (SELECT number FROM numbers(9)){more}"
    translated = translate_query(parse_query(query), lambda _: relation)
    assert "CASE" not in translated.sql.partition("WHERE")[2]


def test_aliases_in_a_long_chain_end_in_time() -> None:
    items = ["1 AS a0"] + [f"a{n} + a{n} AS a{n + 1}" for n in range(60)]
    with pytest.raises(UserError, match="too large"):
        translate_query(parse_query(f"SELECT {', '.join(items)}"), resolve)


def test_named_queries_see_those_before_them_and_not_themselves() -> None:
    query = translate_query(
        parse_query("WITH x AS (SELECT 1 AS a), y AS (SELECT a FROM x) SELECT a FROM y"),
        resolve,
    )
    assert [column.name for column in query.columns] == ["a"]
    with pytest.raises(UnknownTable):
        translate_query(parse_query("WITH x AS (SELECT * FROM x) SELECT * FROM x"), resolve)
