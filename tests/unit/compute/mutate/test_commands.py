"""A mutation's commands: what they mean, their one text, and what is refused."""

from dataclasses import replace

import pytest

from rmt_pipeline.protocol.errors import (
    NotImplementedStatement,
    NotReadBack,
    SyntaxProblem,
    UserError,
)
from rmt_pipeline.protocol.table import Column, Engine, TableDefinition
from rmt_pipeline.syntax import mutation
from rmt_pipeline.syntax.expression import parse_expression
from rmt_pipeline.syntax.mutation import (
    Assignment,
    DeleteRows,
    PartitionId,
    PartitionValue,
    UpdateColumns,
    commands_text,
    in_partition,
    parse_commands,
)
from rmt_pipeline.translate.expression import compile_expression
from rmt_pipeline.translate.mutation_rules import check_commands

X = parse_expression
TABLE = TableDefinition(
    database="default",
    name="t",
    columns=(
        Column("id", "Int64"),
        Column("day", "Date"),
        Column("v", "String"),
        Column("n", "Int32"),
        Column("maybe", "Nullable(Int32)"),
        Column("m", "Int64", "MATERIALIZED", "n + 1"),
        Column("a", "Int64", "ALIAS", "n + 2"),
        Column("ver", "UInt64"),
    ),
    engine=Engine("ReplacingMergeTree", "/z", "r1", version_column="ver"),
    order_by=("id",),
    partition_by=("toYYYYMM(day)",),
)
COLLAPSING = TableDefinition(
    database="default",
    name="c",
    columns=(Column("id", "Int64"), Column("sign", "Int8"), Column("n", "Int8")),
    engine=Engine("CollapsingMergeTree", "/z", "r1", sign_column="sign"),
    order_by=("id",),
)


@pytest.mark.parametrize(
    ("text", "commands", "canonical"),
    [
        (
            "delete where id=2 or v='e'",
            (DeleteRows(X("(id = 2) OR (v = 'e')")),),
            "DELETE WHERE (id = 2) OR (v = 'e')",
        ),
        (
            "UPDATE v='10', n = n+1 WHERE id=3",
            (
                UpdateColumns(
                    (Assignment("v", X("'10'")), Assignment("n", X("n + 1"))), X("id = 3")
                ),
            ),
            "UPDATE v = '10', n = n + 1 WHERE id = 3",
        ),
        (
            (
                "DELETE IN PARTITION ID '202401' WHERE 1, UPDATE n = if(id IN (1,2), 3, 4)"
                " IN PARTITION 202402 WHERE n BETWEEN 1 AND 2"
            ),
            (
                DeleteRows(X("1"), PartitionId("202401")),
                UpdateColumns(
                    (Assignment("n", X("if(id IN (1, 2), 3, 4)")),),
                    X("(n >= 1) AND (n <= 2)"),
                    PartitionValue(X("202402")),
                ),
            ),
            (
                "DELETE IN PARTITION ID '202401' WHERE 1, UPDATE n = if(id IN (1, 2), 3, 4)"
                " IN PARTITION 202402 WHERE (n >= 1) AND (n <= 2)"
            ),
        ),
        (
            "UPDATE `from` = 1 WHERE `where` = ','",
            (UpdateColumns((Assignment("from", X("1")),), X("`where` = ','")),),
            "UPDATE `from` = 1 WHERE `where` = ','",
        ),
    ],
)
def test_commands_have_one_canonical_text_which_means_the_same(text, commands, canonical):
    assert parse_commands(text) == commands
    assert commands_text(commands) == canonical
    assert parse_commands(canonical) == commands


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected DELETE or UPDATE"),
        ("DELETE", "expected WHERE"),
        ("DELETE WHERE", "expected an expression"),
        ("DELETE WHERE id = 1,", "expected DELETE or UPDATE"),
        ("UPDATE v WHERE 1", "expected `=`"),
        ("UPDATE v = WHERE 1", "expected an expression"),
        ("UPDATE v = 1", "expected WHERE"),
        ("UPDATE v = 1, v = 2 WHERE 1", "column v more than once"),
        ("DELETE WHERE id = 1) OR (1", "expected the end"),
        ("DELETE IN PARTITION ID 5 WHERE 1", "the id of a partition in single quotes"),
    ],
)
def test_a_text_that_is_no_command_is_refused_with_the_place(text, words):
    with pytest.raises(SyntaxProblem, match=words):
        parse_commands(text)


def test_other_alters_do_not_stand_beside_commands():
    with pytest.raises(NotImplementedStatement, match="ADD COLUMN can't stand beside"):
        parse_commands("DELETE WHERE 1, ADD COLUMN x Int8")


@pytest.mark.parametrize(
    ("condition", "stored"),
    [
        ("n IS NULL", "isNull(n)"),
        ("NOT n IS NOT NULL OR id = 1", "NOT isNotNull(n) OR (id = 1)"),
        ("NOT (id = 1) AND id < -n", "NOT (id = 1) AND (id < -n)"),
        ("(NOT id) = 1", "(NOT id) = 1"),
        ("-(id + n) * 2 = -(-n)", "(-(id + n) * 2) = -(-n)"),
        ("id IN (1)", "id IN 1"),
        ("v NOT IN ('a')", "v NOT IN 'a'"),
        ("v IN ('it\\'s, )')", "v IN 'it\\'s, )'"),
        ("day IN ('2024-01-02')", "day IN '2024-01-02'"),
        ("id NOT IN (7)", "id NOT IN 7"),
        ("id IN (-5)", "id IN -5"),
        ("NOT id IN (7)", "NOT (id IN 7)"),
        ("(id, v) IN ((1, 'a'))", "(id, v) IN (1, 'a')"),
        ("(id, v) NOT IN ((1, 'a'), (2, 'b'))", "(id, v) NOT IN ((1, 'a'), (2, 'b'))"),
        ("id = -(-3) AND -(5) < -n", "(id = - -3) AND (-(5) < -n)"),
        ("id = -(-3 + n)", "id = -(-3 + n)"),
        ("id = -(-3 IN (1))", "id = -(-3 IN 1)"),
        ("id IN (1, 2)", "id IN (1, 2)"),
        ("(id, n).1 = 1", "(id, n).1 = 1"),
        ("arrayExists(x -> -x, [n])", "arrayExists(x -> -x, [n])"),
        ("0 = not(id) + 2", "0 = ((NOT id) + 2)"),
        ("3 != NOT(id) - n", "3 != ((NOT id) - n)"),
        ("2 > (not(id)) % 2 AND n", "(2 > ((NOT id) % 2)) AND n"),
        ("id IN (id + 1) * 2", "id IN (id + 1) * 2"),
        ("plus(id, 1) = minus(n, 2)", "(id + 1) = (n - 2)"),
        ("and(id = 1, n = 2, id = 3)", "(id = 1) AND (n = 2) AND (id = 3)"),
        ("or(id = 1, n = 2) OR xor(id, n)", "((id = 1) OR (n = 2)) OR xor(id, n)"),
        ("like(v, 'a%') AND in(id, (1, 2))", "(v LIKE 'a%') AND (id IN (1, 2))"),
        ("tuple(id, n) = tuple(1, 2)", "(id, n) = (1, 2)"),
        ("tuple(id) = tuple(1)", "tuple(id) = tuple(1)"),
        ("has(array(id, 1), n) AND tupleElement((id, n), 1)", "has([id, 1], n) AND (id, n).1"),
        ("[id, n][id + 1] = arrayElement([id], 1)", "[id, n][(id + 1)] = [id][1]"),
        ("negate(id) < 0 AND not(n)", "(-id < 0) AND NOT n"),
        ("SUBSTRING(v, 2) = LOWER(v)", "substring(v, 2) = LOWER(v)"),
    ],
)
def test_a_command_is_stored_as_the_original_writes_it(condition, stored):
    text = f"DELETE WHERE {condition}"
    assert commands_text(parse_commands(text)) == f"DELETE WHERE {stored}"
    assert commands_text(parse_commands(f"DELETE WHERE {stored}")) == f"DELETE WHERE {stored}"
    typed, read = (compile_expression(each, TABLE.columns) for each in (condition, stored))
    assert read.duckdb_sql == typed.duckdb_sql, "and it means the same"


def test_a_command_whose_text_reads_back_as_something_else_is_refused():
    """A replica carries out the text. Here it has more parentheses than can be read."""
    deep = parse_commands(f"DELETE WHERE n{' + 1' * 100} = 0")
    with pytest.raises(NotReadBack, match=r"can't be stored: .* does not read back the same"):
        commands_text(deep)


def test_a_text_that_means_something_else_is_refused(monkeypatch):
    monkeypatch.setattr(mutation, "text_in_mutation", lambda node: "NOT (id + 2)")
    with pytest.raises(NotReadBack, match=r"NOT \(id \+ 2\)"):
        commands_text((DeleteRows(X("0 = id")),))


def test_a_command_is_for_its_partition_or_for_all():
    everywhere, one = parse_commands("DELETE WHERE 1, DELETE IN PARTITION ID 'a' WHERE 1")
    assert in_partition(everywhere, "b")
    assert in_partition(one, "a")
    assert not in_partition(one, "b")


@pytest.mark.parametrize(
    "text",
    [
        "DELETE WHERE id = 1 AND lower(v) LIKE 'a%'",
        "DELETE WHERE maybe IS NULL",
        "DELETE WHERE n",
        "UPDATE n = '5', v = toString(n), maybe = NULL WHERE day > '2024-01-01'",
    ],
)
def test_what_can_work_is_let_through(text):
    check_commands(parse_commands(text), TABLE)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("DELETE WHERE idd = 1", "UNKNOWN_IDENTIFIER", "no column 'idd'; close to it: id"),
        ("DELETE WHERE a = 1", "UNKNOWN_IDENTIFIER", "no column 'a'"),
        (
            "DELETE WHERE v",
            "ILLEGAL_TYPE_OF_COLUMN_FOR_FILTER",
            "type String, which is neither",
        ),
        ("DELETE WHERE fooo(id)", "UNKNOWN_FUNCTION", "no function 'fooo' in the allow-list"),
        ("DELETE WHERE day < today()", "BAD_ARGUMENTS", "gives another answer each time"),
        ("UPDATE n = toInt32(now()) WHERE 1", "BAD_ARGUMENTS", "gives another answer each"),
        (
            "UPDATE q = 1 WHERE 1",
            "NO_SUCH_COLUMN_IN_TABLE",
            "default.t has no column q; it has id",
        ),
        ("UPDATE id = 1 WHERE 1", "CANNOT_UPDATE_COLUMN", "id is in the sorting key"),
        ("UPDATE day = '2024-01-01' WHERE 1", "CANNOT_UPDATE_COLUMN", "in the partition key"),
        ("UPDATE ver = 1 WHERE 1", "CANNOT_UPDATE_COLUMN", "the engine's version column"),
        ("UPDATE m = 1 WHERE 1", "CANNOT_UPDATE_COLUMN", "m is MATERIALIZED.*always n \\+ 1"),
        ("UPDATE a = 1 WHERE 1", "CANNOT_UPDATE_COLUMN", "a is ALIAS"),
        ("UPDATE n = [1] WHERE 1", None, "cannot become a number"),
        ("UPDATE n = 'x' WHERE 1", "CANNOT_PARSE_TEXT", "UPDATE n = 'x': .*read x as Int32"),
        ("UPDATE n = NULL WHERE 1", "CANNOT_PARSE_TEXT", "UPDATE n = NULL: .*not Nullable"),
        ("UPDATE n = 1 / 0 WHERE 1", "CANNOT_PARSE_TEXT", "out of range"),
        ("DELETE WHERE id IN (SELECT 1)", "NOT_IMPLEMENTED", "subquery"),
        ("DELETE WHERE count() > 1", "ILLEGAL_TYPE_OF_ARGUMENT", "aggregate function"),
        ("DELETE IN PARTITION ID 'a/b' WHERE 1", "INVALID_PARTITION_VALUE", "letters, digits"),
        ("DELETE IN PARTITION ID '' WHERE 1", "INVALID_PARTITION_VALUE", "can't be the id"),
        ("UPDATE n = 1 IN PARTITION ID 'a_b' WHERE 1", "INVALID_PARTITION_VALUE", "'a_b'"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(text, code, words):
    """P32."""
    with pytest.raises(UserError, match=words) as refused:
        check_commands(parse_commands(text), TABLE)
    if code is not None:
        assert refused.value.code == code


def test_a_column_that_a_key_is_computed_from_is_not_updated():
    columns = (*TABLE.columns, Column("size", "UInt64", "MATERIALIZED", "length(v)"))
    table = replace(TABLE, columns=columns, order_by=("id", "size"))
    with pytest.raises(UserError, match=r"column size is computed from v, and is in the sort"):
        check_commands(parse_commands("UPDATE v = 'x' WHERE 1"), table)


def test_what_a_column_of_random_values_is_computed_from_is_not_updated():
    columns = (*TABLE.columns, Column("salted", "UInt64", "MATERIALIZED", "n + rand64()"))
    table = replace(TABLE, columns=columns)
    for allowed in (False, True):
        with pytest.raises(
            UserError, match=r"MATERIALIZED column salted follows from n and is n"
        ):
            check_commands(
                parse_commands("UPDATE n = 1 WHERE 1"), table, allow_nondeterministic=allowed
            )
    check_commands(parse_commands("UPDATE v = 'x' WHERE 1"), table)


def test_a_sign_is_not_updated():
    with pytest.raises(UserError, match="the engine's sign column"):
        check_commands(parse_commands("UPDATE sign = -1 WHERE 1"), COLLAPSING)


def test_a_setting_lets_functions_through_that_differ_between_replicas():
    commands = parse_commands("DELETE WHERE day < today()")
    check_commands(commands, TABLE, allow_nondeterministic=True)
