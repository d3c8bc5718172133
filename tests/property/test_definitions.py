"""What a table's definition says is stored as text. Replicas, and servers that start, carry out
what they read from it: a TTL that reads back as another one removes other rows.
"""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rmt_pipeline.protocol.alter.texts import definition_of_texts
from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.protocol.nodes.columns import columns_text
from rmt_pipeline.protocol.nodes.metadata import metadata_text
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.sql.define.show_create import create_query
from rmt_pipeline.sql.define.table import define_table
from rmt_pipeline.syntax.expression import parse_expression
from rmt_pipeline.syntax.rename import with_renamed
from rmt_pipeline.syntax.statements.nodes import CreateTable
from rmt_pipeline.syntax.statements.parse import parse
from rmt_pipeline.syntax.ttl import parse_ttl
from rmt_pipeline.translate.ttl import rules_of

COLUMNS = (
    "id UInt64, a Int64, `distinct` Int64, `not` UInt8, `in` Int64, s String, d DateTime, e Date, "
    "t Tuple(UInt8, UInt8), ar Array(Int64)"
)
NUMBERS = st.sampled_from(
    [
        "a",
        "`distinct`",
        "`not`",
        "`in`",
        "t.1",
        "ar[1]",
        "5",
        "-5",
        "not(a)",
        "(1, 2).1",
        "length(s)",
    ]
)
OF_NUMBERS = st.sampled_from(
    [
        *("NOT {}", "not({})", "-{}", "- ({})", "({})", "{} + {}", "{} - {}", "{} * {}"),
        *(
            "{} % 7",
            "{} DIV 3",
            "{} = {}",
            "{} < {}",
            "{} != {}",
            "{} IN (1, {})",
            "{} NOT IN (2)",
        ),
        *("{} BETWEEN {} AND {}", "{} AND {}", "{} OR {}", "{} ? {} : {}", "{}::Int64"),
        *("if({}, {}, {})", "[{}, {}][1]", "({}, {}).2", "{} IS NULL", "{} IS NOT NULL"),
        *(
            "arrayExists(x -> x = {}, ar)",
            "CASE WHEN {} THEN {} ELSE {} END",
            "s LIKE 'a' OR {}",
        ),
    ]
)


def _filled(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(OF_NUMBERS, parts, parts, parts).map(lambda it: it[0].format(*it[1:]))


EXPRESSIONS = st.recursive(NUMBERS, _filled, max_leaves=6)
TIMES = st.tuples(
    st.sampled_from(
        [
            *("d + INTERVAL {} DAY", "d + toIntervalDay({})", "d - INTERVAL 1 DAY", "e"),
            *(
                "if({}, d, d + INTERVAL 1 YEAR)",
                "toDateTime({})",
                "d + ({})",
                "INTERVAL 1 DAY + d",
            ),
        ]
    ),
    EXPRESSIONS,
).map(lambda it: it[0].format(it[1]))
TTLS = st.lists(
    st.tuples(
        st.sampled_from(["{}", "{} DELETE", "{} WHERE {}", "{} RECOMPRESS CODEC(ZSTD(9))"]),
        TIMES,
        EXPRESSIONS,
    ).map(lambda it: it[0].format(*it[1:])),
    min_size=1,
    max_size=3,
).map(", ".join)


def defined(text: str) -> TableDefinition:
    statement = parse(text)
    assert isinstance(statement, CreateTable)
    assert statement.syntax is not None
    return define_table(statement.table, statement.syntax, "d", flatten_nested=False)


@given(EXPRESSIONS, EXPRESSIONS, EXPRESSIONS, TIMES, TTLS)
@settings(deadline=None, max_examples=300)
@example("a", "a", "a", "d", "d + INTERVAL 1 DAY WHERE 0 = not(a) + 2")
@example("(a, id)", "a", "a", "d", "d")
@example("0 = not(a) + 2", "0 = not(a) + 2", "0 = not(a) + 2", "d", "d")
@example("a", "a", "a", "d", "d + " + " + ".join(["a"] * 80))
@example("a", " + ".join(["a"] * 80), "a", "d", "d")
def test_a_definition_reads_back_as_the_same(
    key: str, default: str, constraint: str, time: str, ttl: str
) -> None:
    text = (
        f"CREATE TABLE t ({COLUMNS}, v Int64 DEFAULT {default} COMMENT 'c' TTL {time},"
        f" INDEX i {key} TYPE minmax, CONSTRAINT c CHECK ({constraint}) = 1)"
        f" ENGINE = MergeTree PARTITION BY {key} ORDER BY ({key}) TTL {ttl}"
    )
    try:
        definition = defined(text)
    except UserError:
        return
    assert defined(create_query(definition)) == definition
    texts = metadata_text(definition), columns_text(definition.columns)
    assert definition_of_texts(definition, *texts, 0, ()) == definition
    rules_of(definition)
    columns = {column.name: column for column in definition.columns}
    assert parse_expression(columns["v"].default) == parse_expression(default)
    assert parse_expression(columns["v"].ttl) == parse_expression(time)
    if not key.startswith("("):  # which would be a list
        assert parse_expression(definition.partition_by[0]) == parse_expression(key)
    meant, read = parse_ttl(ttl), parse_ttl(definition.ttl)
    assert [(one.time, one.where) for one in read] == [(one.time, one.where) for one in meant]
    back = with_renamed(with_renamed(definition.ttl, "a", "interval"), "interval", "a")
    assert back == definition.ttl
