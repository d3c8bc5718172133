"""Statements about mutations."""

import pytest

from rmt_pipeline.protocol.errors import SyntaxProblem
from rmt_pipeline.syntax.expression import parse_expression
from rmt_pipeline.syntax.mutation import parse_commands
from rmt_pipeline.syntax.statements.nodes import Answer, KillMutation, MutateRows, TableName
from rmt_pipeline.syntax.statements.parse import parse


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        (
            "ALTER TABLE d.t DELETE WHERE id = 2 OR v = 'e'",
            MutateRows(TableName("d", "t"), parse_commands("DELETE WHERE id = 2 OR v = 'e'")),
        ),
        (
            "alter table t update v = f(1, 2), w = w + 1 where x, delete where y in (1, 2)",
            MutateRows(
                TableName(None, "t"),
                parse_commands(
                    "update v = f(1, 2), w = w + 1 where x, delete where y in (1, 2)"
                ),
            ),
        ),
        (
            "ALTER TABLE t DELETE IN PARTITION ID 'a' WHERE 1 SETTINGS mutations_sync = 2",
            MutateRows(
                TableName(None, "t"),
                parse_commands("DELETE IN PARTITION ID 'a' WHERE 1"),
                (("mutations_sync", "2"),),
            ),
        ),
        (
            "DELETE FROM t WHERE settings = 'a'",
            MutateRows(
                TableName(None, "t"),
                parse_commands("DELETE WHERE settings = 'a'"),
                is_lightweight=True,
            ),
        ),
        (
            "DELETE FROM d.t IN PARTITION 3 WHERE x SETTINGS mutations_sync = 0",
            MutateRows(
                TableName("d", "t"),
                parse_commands("DELETE IN PARTITION 3 WHERE x"),
                (("mutations_sync", "0"),),
                is_lightweight=True,
            ),
        ),
        (
            "KILL MUTATION WHERE mutation_id = '0000000001' AND table = 't'",
            KillMutation(parse_expression("mutation_id = '0000000001' AND table = 't'")),
        ),
        (
            "KILL MUTATION WHERE database IN ('a', 'b') TEST FORMAT TSV",
            KillMutation(
                parse_expression("database IN ('a', 'b')"), is_test=True, answer=Answer("TSV")
            ),
        ),
        ("KILL MUTATION WHERE test SYNC", KillMutation(parse_expression("test"), sync=True)),
        ("KILL MUTATION WHERE test ASYNC", KillMutation(parse_expression("test"), sync=False)),
    ],
)
def test_a_statement_says_what_was_asked(text, statement):
    assert parse(text) == statement


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("DELETE FROM t", SyntaxProblem, "DELETE FROM t WHERE 1 deletes every row"),
        ("DELETE t WHERE 1", SyntaxProblem, "expected FROM"),
        ("KILL MUTATION", SyntaxProblem, "expected WHERE"),
        ("KILL MUTATION WHERE", SyntaxProblem, "expected an expression"),
        ("KILL QUERY", SyntaxProblem, "expected WHERE"),
        ("ALTER TABLE t DELETE WHERE (1", SyntaxProblem, "expected `,` or"),
    ],
)
def test_a_statement_that_is_wrong_is_refused(text, kind, words):
    with pytest.raises(kind, match=words):
        parse(text)
