"""What ALTER makes of a definition, and what it refuses (spec §8.1)."""

from dataclasses import replace

import pytest

from rmt_pipeline.protocol.alter.commands import ModifyColumn, Place, alter_text
from rmt_pipeline.protocol.alter.definition import (
    Altered,
    declared_name,
    key_uses,
    place_in_keys,
)
from rmt_pipeline.protocol.errors import NotImplementedStatement, RmtError, UserError
from rmt_pipeline.protocol.table import Column, ColumnChange, TableDefinition
from rmt_pipeline.replica.alter.check import columns_used
from rmt_pipeline.sql.define.alter import alter_commands
from rmt_pipeline.syntax.mutation import parse_commands
from rmt_pipeline.syntax.statements.nodes import AlterTable
from rmt_pipeline.syntax.statements.parse import parse
from tests.unit.protocol.alter.altering import TABLE, alter, engine, names


def shown(table: TableDefinition) -> list[str]:
    return [
        " ".join(filter(None, (one.name, one.type, one.default_kind, one.default)))
        for one in table.columns
    ]


def test_columns_are_added_where_they_are_asked_for() -> None:
    altered = alter(
        "ADD COLUMN f String FIRST, ADD COLUMN c Int32 DEFAULT a * 2 AFTER a, ADD COLUMN z Date"
    )
    assert names(altered) == ["f", "a", "c", "b", "k", "m", "al", "n", "z"]
    assert shown(altered.definition)[2] == "c Int32 DEFAULT a * 2"
    assert altered.mutation == ()
    assert altered.changes == ()
    assert altered.definition.metadata_version == 4


def test_a_column_that_is_added_without_a_type_has_that_of_its_default() -> None:
    altered = alter("ADD COLUMN c DEFAULT a * 2, ADD COLUMN t ALIAS concat(b, 'x')")
    assert shown(altered.definition)[-2:] == [
        "c Int64 DEFAULT a * 2",
        "t String ALIAS concat(b, 'x')",
    ]


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("c EPHEMERAL", "column c needs a type"),
        ("c DEFAULT NULL", "no column can hold it"),
        ("c ALIAS [NULL]", "no column can hold it"),
        ("c MATERIALIZED []", "no column can hold it"),
    ],
)
def test_a_column_without_a_type_has_a_default_that_a_column_can_hold(
    column: str, words: str
) -> None:
    with pytest.raises(UserError, match=words):
        alter(f"ADD COLUMN {column}")


def test_a_name_that_goes_is_remembered_with_the_version_it_went_with() -> None:
    altered = alter("DROP COLUMN n, RENAME COLUMN k2 TO n", order_by=("a",))
    changes = (ColumnChange(4, "n"), ColumnChange(4, "k2", "n"))
    assert altered.changes == changes
    assert altered.definition.history == (ColumnChange(2, "old"), *changes)
    assert list(map(str, altered.mutation)) == ["DROP COLUMN n", "RENAME COLUMN k2 TO n"]


def test_what_is_computed_from_a_renamed_column_follows() -> None:
    altered = alter(
        "ADD COLUMN l Array(String) DEFAULT arrayMap(b -> concat(b, 'q'), [b]), RENAME COLUMN b TO"
        " `b c`, RENAME COLUMN m TO mm"
    )
    assert shown(altered.definition) == [
        *("a Int64", "b c String DEFAULT 'x'", "k String", "mm Int64 MATERIALIZED a + 1"),
        *("al String ALIAS `b c`", "n Nullable(Int32)"),
        "l Array(String) DEFAULT arrayMap(b -> concat(b, 'q'), [`b c`])",
    ]


def test_what_was_dropped_can_be_added_again_in_one_alter() -> None:
    altered = alter("DROP COLUMN n, ADD COLUMN n Int8")
    assert shown(altered.definition)[-1] == "n Int8"
    assert altered.changes == (ColumnChange(4, "n"),)


def test_another_type_is_a_mutation_and_another_default_is_none() -> None:
    altered = alter("MODIFY COLUMN n Int64 DEFAULT 7 COMMENT 'seven'")
    assert shown(altered.definition)[-1] == "n Int64 DEFAULT 7"
    assert altered.definition.columns[-1].comment == "seven"
    assert list(map(str, altered.mutation)) == ["MODIFY COLUMN n Int64"]
    assert alter("MODIFY COLUMN n DEFAULT 7").mutation == ()
    assert shown(alter("MODIFY COLUMN b REMOVE DEFAULT", drop="al").definition)[1] == "b String"


@pytest.mark.parametrize(
    ("before", "after", "is_rewritten"),
    [
        ("Enum8('a' = 1)", "Enum8('a' = 1, 'b' = 2)", False),
        ("Array(Enum8('a' = 1))", "Array(Enum8('z' = -1, 'a' = 1))", False),
        ("Enum8('a' = 1)", "Enum8('b' = 1, 'c' = 2)", True),
        ("Enum8('a' = 1, 'b' = 2)", "Enum8('a' = 1)", True),
        ("Enum8('a' = 1)", "Enum16('a' = 1)", True),
        ("Enum8('a' = 1)", "Nullable(Enum8('a' = 1))", True),
        ("Enum8('a' = 1)", "String", True),
    ],
)
def test_an_enum_with_further_elements_needs_no_new_parts(before, after, is_rewritten) -> None:
    columns = (*TABLE.columns, Column("e", before))
    altered = alter(f"MODIFY COLUMN e {after}", table=replace(TABLE, columns=columns))
    assert bool(altered.mutation) == is_rewritten
    assert not altered.is_local
    assert altered.definition.columns[-1].type == after


def test_a_modified_column_moves_where_it_is_asked_to() -> None:
    assert names(alter("MODIFY COLUMN n FIRST")) == ["n", "a", "b", "k", "m", "al"]
    assert names(alter("MODIFY COLUMN n Int64 AFTER a"))[:2] == ["a", "n"]


def test_a_cleared_column_stays_and_its_values_go() -> None:
    altered = alter("CLEAR COLUMN n IN PARTITION 'x'")
    assert altered.definition.metadata_version == TABLE.metadata_version + 1
    assert names(altered) == names(alter("MODIFY COLUMN n DEFAULT 1"))
    [command] = altered.mutation
    assert str(command).startswith("CLEAR COLUMN n IN PARTITION ID '")


@pytest.mark.parametrize(
    "text",
    [
        "MODIFY SETTING old_parts_lifetime = 33",
        "COMMENT COLUMN n 'hey', MODIFY COMMENT 'table'",
        "MODIFY COLUMN n COMMENT 'hey'",
    ],
)
def test_settings_and_comments_are_each_replicas_own(text: str) -> None:
    """Spec §8.1: they are not replicated."""
    altered = alter(text)
    assert altered.is_local
    assert altered.definition != TABLE
    assert altered.definition.metadata_version == TABLE.metadata_version


def test_a_comment_is_taken_away_on_every_replica() -> None:
    """As in the original, where a comment alone is given to one of them."""
    commented = alter("MODIFY COLUMN n COMMENT 'hey'").definition
    removed = alter("MODIFY COLUMN n REMOVE COMMENT", table=commented)
    assert not removed.is_local
    assert removed.definition.columns == TABLE.columns
    assert removed.definition.metadata_version == TABLE.metadata_version + 1


def test_a_comment_beside_another_change_goes_to_every_replica_with_it() -> None:
    altered = alter("MODIFY COLUMN n Nullable(Int64) COMMENT 'hey'")
    assert not altered.is_local
    [column] = [one for one in altered.definition.columns if one.name == "n"]
    assert (column.type, column.comment) == ("Nullable(Int64)", "hey")
    assert altered.definition.metadata_version == TABLE.metadata_version + 1


def test_settings_are_set_and_reset() -> None:
    altered = alter("MODIFY SETTING old_parts_lifetime = 33, parts_to_throw_insert = 5")
    assert dict(altered.definition.settings) == {
        "old_parts_lifetime": "33",
        "parts_to_throw_insert": "5",
    }
    reset = alter("RESET SETTING old_parts_lifetime, merge_selecting_sleep_ms")
    assert reset.definition.settings == ()
    some = alter("RESET SETTING old_parts_lifetime", table=altered.definition).definition
    assert some.settings == (("parts_to_throw_insert", "5"),)


def test_if_exists_and_if_not_exists_change_nothing_then() -> None:
    altered = alter(
        "DROP COLUMN IF EXISTS zz, ADD COLUMN IF NOT EXISTS n Int8, CLEAR COLUMN IF EXISTS zz,"
        " RENAME COLUMN IF EXISTS zz TO z, MODIFY COLUMN IF EXISTS zz Int8"
    )
    assert altered.changes_nothing(TABLE)
    assert alter("MODIFY COLUMN n Nullable(Int32)").changes_nothing(TABLE)


def test_what_replicas_have_to_do_says_no_if_exists() -> None:
    altered = alter("DROP COLUMN IF EXISTS n, CLEAR COLUMN IF EXISTS m")
    texts = list(map(str, altered.mutation))
    assert texts == ["DROP COLUMN n", "CLEAR COLUMN m"]
    assert [str(parse_commands(text)[0]) for text in texts] == texts


def test_the_sorting_key_grows_by_a_new_column_and_the_primary_key_stays() -> None:
    altered = alter("ADD COLUMN o Int32, MODIFY ORDER BY (a, o)")
    assert altered.definition.order_by == ("a", "o")
    assert altered.definition.primary_key == ("a",)
    assert altered.mutation == ()
    assert alter("MODIFY ORDER BY a").changes_nothing(TABLE)


def test_a_ttl_is_kept_in_its_canonical_text() -> None:
    altered = alter("ADD COLUMN d Date, MODIFY TTL d + INTERVAL 1 DAY, ADD COLUMN e Date")
    assert altered.definition.ttl == "d + toIntervalDay(1)"
    assert names(altered)[-2:] == ["d", "e"]
    table = replace(TABLE, ttl="d + toIntervalDay(1)")
    assert alter("REMOVE TTL", table=table).definition.ttl == ""
    with pytest.raises(UserError, match="has no TTL to remove"):
        alter("REMOVE TTL")


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("ADD COLUMN n Int32", "DUPLICATE_COLUMN", "has a column n already"),
        ("DROP COLUMN zz", "NOT_FOUND_COLUMN_IN_BLOCK", "has no column zz; it has a, b"),
        ("DROP COLUMN bb", "NOT_FOUND_COLUMN_IN_BLOCK", "did you mean b"),
        ("DROP COLUMN a", "ALTER_OF_COLUMN_IS_FORBIDDEN", "a is in the sorting key"),
        ("DROP COLUMN k", "ALTER_OF_COLUMN_IS_FORBIDDEN", "k is in the partition key"),
        ("CLEAR COLUMN a", "ALTER_OF_COLUMN_IS_FORBIDDEN", "a is in the sorting key"),
        ("RENAME COLUMN a TO a2", "ALTER_OF_COLUMN_IS_FORBIDDEN", "a is in the sorting key"),
        ("MODIFY COLUMN a Int32", "ALTER_OF_COLUMN_IS_FORBIDDEN", "MODIFY Int64 to Int32 of"),
        ("DROP COLUMN b", "ILLEGAL_COLUMN", "column al is ALIAS b"),
        ("CLEAR COLUMN al", "ILLEGAL_COLUMN", "it is ALIAS"),
        ("CLEAR COLUMN n IN PARTITION ID 'a/b'", "INVALID_PARTITION_VALUE", "'a/b' can't be"),
        ("MODIFY COLUMN n ALIAS a", "ILLEGAL_COLUMN", "n is stored and can't become ALIAS"),
        ("MODIFY COLUMN al REMOVE ALIAS", "ILLEGAL_COLUMN", "is ALIAS and can't become stored"),
        ("RENAME COLUMN n TO b", "DUPLICATE_COLUMN", "a column of that name already"),
        ("RENAME COLUMN zz TO n2", "NOT_FOUND_COLUMN_IN_BLOCK", "no column zz"),
        ("MODIFY COLUMN zz Int32", "NOT_FOUND_COLUMN_IN_BLOCK", "no column zz"),
        ("ADD COLUMN x Int8 AFTER zz", "NOT_FOUND_COLUMN_IN_BLOCK", "AFTER zz"),
        ("ADD COLUMN x NoType", "UNKNOWN_TYPE", "NoType"),
        ("ADD COLUMN x Int8 DEFAULT zz", "UNKNOWN_IDENTIFIER", "zz"),
        ("ADD COLUMN x Int8 DEFAULT 'abc'", "CANNOT_PARSE_TEXT", "can't become that"),
        ("MODIFY COLUMN b Int32", "CANNOT_PARSE_TEXT", "another default with its type"),
        ("MODIFY COLUMN n REMOVE DEFAULT", "BAD_ARGUMENTS", "has no DEFAULT to remove"),
        ("MODIFY COLUMN n REMOVE COMMENT", "BAD_ARGUMENTS", "has no COMMENT to remove"),
        ("MODIFY ORDER BY (a, n)", "BAD_ARGUMENTS", "only a column that the same ALTER adds"),
        ("MODIFY ORDER BY n", "BAD_ARGUMENTS", "does not begin with the primary key"),
        (
            "ADD COLUMN o Int8 DEFAULT 5, MODIFY ORDER BY (a, o)",
            "BAD_ARGUMENTS",
            "the new column o, which is DEFAULT 5",
        ),
        (
            "ADD COLUMN o Nullable(Int8), MODIFY ORDER BY (a, o)",
            "ILLEGAL_COLUMN",
            "a key is not Nullable",
        ),
        ("ADD INDEX i b TYPE minmax AFTER zz", "BAD_ARGUMENTS", "has no index zz"),
        ("MODIFY SETTING foo = 1", "UNKNOWN_SETTING", "foo"),
        ("MODIFY SETTING old_parts_lifetime = x", "BAD_ARGUMENTS", "'x' is not a value"),
        ("MODIFY SETTING index_granularity = 1", "READONLY_SETTING", "index_granularity"),
        ("RESET SETTING nonsense", "UNKNOWN_SETTING", "nonsense"),
        ("RESET SETTING index_granularity", "READONLY_SETTING", "index_granularity"),
        ("ADD COLUMN d String TTL a + 1", "BAD_TTL_EXPRESSION", "TTL"),
        ("MODIFY COLUMN a TTL toDate(k) + INTERVAL 1 DAY", "ILLEGAL_COLUMN", "no TTL"),
    ],
)
def test_what_contradicts_the_table_is_refused(text: str, code: str, message: str) -> None:
    """P35."""
    with pytest.raises(RmtError) as raised:
        alter(text)
    assert message in str(raised.value)
    assert raised.value.code == code


@pytest.mark.parametrize("column", ["ver", "del", "sign", "sum"])
def test_columns_that_the_engine_works_with_stay(column: str) -> None:
    """P35."""
    for verb in ("DROP COLUMN {}", "RENAME COLUMN {} TO x", "MODIFY COLUMN {} String"):
        with pytest.raises(RmtError, match="says where or how rows are kept"):
            alter(verb.format(column), table=engine())


@pytest.mark.parametrize(
    "change", ["COMMENT 'c'", "DEFAULT 'x'", "CODEC(ZSTD(3))", "String COMMENT 'c'"]
)
def test_text_among_the_columns_to_sum_may_change_all_but_its_type(change: str) -> None:
    """It is not summed, and stays as it is."""
    [*others, summed] = engine().columns
    table = replace(engine(), columns=(*others, replace(summed, type="String")))
    after = alter(f"MODIFY COLUMN sum {change}", table=table).definition.columns[-1]
    assert after != table.columns[-1]
    assert after.type == "String"
    with pytest.raises(RmtError, match="says where or how rows are kept"):
        alter("MODIFY COLUMN sum UUID", table=table)


def test_a_column_that_ttl_uses_stays() -> None:
    table = alter("ADD COLUMN d Date, MODIFY TTL d + INTERVAL 1 DAY").definition
    with pytest.raises(RmtError, match="d"):
        alter("DROP COLUMN d", table=table)


@pytest.mark.parametrize(
    "text",
    ["ADD COLUMN c Int64 DEFAULT e + 1", "MODIFY COLUMN n DEFAULT e", "CLEAR COLUMN made"],
)
def test_what_old_rows_have_no_input_for_is_refused(text: str) -> None:
    columns = (
        *TABLE.columns,
        Column("e", "Int64", "EPHEMERAL", "5"),
        Column("made", "Int64", "DEFAULT", "e + 2"),
    )
    table = TABLE.with_columns(columns)
    alter("ADD COLUMN f Int64 EPHEMERAL e + 1, MODIFY COLUMN made COMMENT 'x'", table=table)
    with pytest.raises(NotImplementedStatement, match="rows that are there have no e"):
        alter(text, table=table)


def test_the_last_stored_column_stays() -> None:
    table = TableDefinition("default", "t", TABLE.columns[-1:], TABLE.engine, ())
    with pytest.raises(RmtError, match="no column left"):
        alter("DROP COLUMN n", table=table)


def test_an_altered_table_is_what_the_next_command_sees() -> None:
    altered: Altered = alter(
        "ADD COLUMN x Int8, ADD COLUMN y Int16 DEFAULT x + 1, RENAME COLUMN n TO x2"
    )
    assert names(altered)[-3:] == ["x2", "x", "y"]


AS_TEXT = [
    "ADD COLUMN IF NOT EXISTS z Int64 DEFAULT a + 1 AFTER b",
    "ADD COLUMN z Int64 FIRST",
    "ADD COLUMN z String EPHEMERAL",
    "DROP COLUMN IF EXISTS n",
    "CLEAR COLUMN IF EXISTS n IN PARTITION ID 'x'",
    "CLEAR COLUMN n",
    "RENAME COLUMN IF EXISTS n TO `n 2`",
    "MODIFY COLUMN IF EXISTS n Int64 DEFAULT 7 COMMENT 'it\\'s' CODEC(ZSTD(1)) AFTER a",
    "MODIFY COLUMN n DEFAULT 5",
    "MODIFY COLUMN n CODEC(ZSTD(1)) FIRST",
    "MODIFY COLUMN b REMOVE DEFAULT",
    "MODIFY COLUMN n COMMENT 'x'",
    "MODIFY SETTING old_parts_lifetime = '33', parts_to_throw_insert = '5'",
    "RESET SETTING old_parts_lifetime, parts_to_throw_insert",
    "MODIFY ORDER BY (a, n)",
    "MODIFY TTL d + toIntervalDay(1)",
    "REMOVE TTL",
    "MODIFY COMMENT 'x'",
    "ADD INDEX IF NOT EXISTS x b TYPE minmax GRANULARITY 1 FIRST",
    "ADD INDEX x b TYPE minmax GRANULARITY 1 AFTER `j 2`",
    "ADD CONSTRAINT c CHECK a > 1",
    "DROP INDEX IF EXISTS `j 2`",
    "MATERIALIZE INDEX i",
]


@pytest.mark.parametrize("text", AS_TEXT)
def test_a_command_is_kept_as_the_text_that_it_is_read_from(text: str) -> None:
    """Its record says so, and the mutation that carries it out."""
    columns = *TABLE.columns, Column("d", "Date")
    table = replace(TABLE, columns=columns, indices=("i b TYPE minmax", "`j 2` b TYPE minmax"))
    statement = parse(f"ALTER TABLE t {text}")
    assert isinstance(statement, AlterTable)
    assert alter_text(tuple(alter_commands(statement.commands, table))) == text


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            ModifyColumn("n", ttl="d + toIntervalDay(1)"),
            "MODIFY COLUMN n TTL d + toIntervalDay(1)",
        ),
        (
            ModifyColumn("n", comment="", remove="COMMENT"),
            "MODIFY COLUMN n COMMENT '' REMOVE COMMENT",
        ),
        (ModifyColumn("n", type="Int8", place=Place("a")), "MODIFY COLUMN n Int8 AFTER a"),
        (ModifyColumn("n"), "MODIFY COLUMN n"),
    ],
)
def test_a_changed_column_as_text(given: ModifyColumn, text: str) -> None:
    assert str(given) == text
    assert not given.is_comment


DECLARED = replace(
    TABLE,
    indices=("i b TYPE minmax", "`j \\`2` n TYPE set(9)", "l lower(b) TYPE minmax"),
    projections=("p (SELECT a ORDER BY a)",),
    constraints=("c CHECK a > 1", "d CHECK length(k) > 0"),
)


def declared(altered: Altered) -> list[list[str]]:
    now = altered.definition
    return [
        [declared_name(text) for text in kind]
        for kind in (now.indices, now.projections, now.constraints)
    ]


@pytest.mark.parametrize(
    ("text", "indices", "projections", "constraints"),
    [
        ("ADD INDEX x b TYPE minmax", "i j`2 l x", "p", "c d"),
        ("ADD INDEX x b TYPE minmax FIRST", "x i j`2 l", "p", "c d"),
        ("ADD INDEX x b TYPE minmax AFTER i", "i x j`2 l", "p", "c d"),
        ("ADD INDEX x b TYPE minmax AFTER l", "i j`2 l x", "p", "c d"),
        ("ADD PROJECTION q (SELECT k ORDER BY k)", "i j`2 l", "p q", "c d"),
        ("ADD PROJECTION q (SELECT k ORDER BY k) FIRST", "i j`2 l", "q p", "c d"),
        ("ADD CONSTRAINT e CHECK a > 2", "i j`2 l", "p", "c d e"),
        ("DROP INDEX i", "j`2 l", "p", "c d"),
        ("DROP INDEX `j \\`2`", "i l", "p", "c d"),
        ("DROP PROJECTION p", "i j`2 l", "", "c d"),
        ("DROP CONSTRAINT c", "i j`2 l", "p", "d"),
        ("DROP INDEX i, ADD INDEX i k TYPE minmax", "j`2 l i", "p", "c d"),
    ],
)
def test_what_is_declared_beside_the_columns(
    text: str, indices: str, projections: str, constraints: str
) -> None:
    altered = alter(text, table=DECLARED)
    found = [" ".join(one.replace(" ", "") for one in kind) for kind in declared(altered)]
    assert found == [indices, projections, constraints]
    assert not altered.is_local
    assert altered.definition.metadata_version == TABLE.metadata_version + 1


@pytest.mark.parametrize(
    "text",
    [
        "ADD INDEX IF NOT EXISTS i k TYPE minmax",
        "DROP INDEX IF EXISTS x",
        "DROP PROJECTION IF EXISTS x",
        "MATERIALIZE INDEX i",
        "CLEAR INDEX IF EXISTS x",
        "MATERIALIZE PROJECTION p",
    ],
)
def test_what_leaves_the_declarations_as_they_are(text: str) -> None:
    assert alter(text, table=DECLARED).changes_nothing(DECLARED)


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("ADD INDEX i k TYPE minmax", "ILLEGAL_COLUMN", "has index i already"),
        ("ADD CONSTRAINT c CHECK a > 1", "ILLEGAL_COLUMN", "has constraint c already"),
        ("ADD PROJECTION p (SELECT k)", "ILLEGAL_PROJECTION", "has projection p already"),
        ("DROP INDEX x", "BAD_ARGUMENTS", "has no index x; there are: i, j `2, l"),
        ("MATERIALIZE INDEX x", "BAD_ARGUMENTS", "has no index x"),
        ("DROP PROJECTION x", "NO_SUCH_PROJECTION_IN_TABLE", "has no projection x"),
        (
            "DROP CONSTRAINT c, DROP CONSTRAINT d, DROP CONSTRAINT x",
            "BAD_ARGUMENTS",
            "are: none",
        ),
        ("DROP COLUMN k", "ALTER_OF_COLUMN_IS_FORBIDDEN", "k is in the partition key"),
    ],
)
def test_what_contradicts_the_declarations_is_refused(
    text: str, code: str, message: str
) -> None:
    with pytest.raises(RmtError) as raised:
        alter(text, table=DECLARED)
    assert message in str(raised.value)
    assert raised.value.code == code


def test_declarations_follow_a_column_that_is_renamed() -> None:
    altered = alter("RENAME COLUMN n TO m2, RENAME COLUMN b TO b2", table=DECLARED).definition
    assert altered.indices == (
        "i b2 TYPE minmax",
        "`j \\`2` m2 TYPE set(9)",
        "l lower(b2) TYPE minmax",
    )
    table = alter("ADD CONSTRAINT e CHECK length(b) > 0", table=TABLE).definition
    renamed = alter("RENAME COLUMN b TO b2", table=table).definition
    assert renamed.constraints == ("e CHECK length(b2) > 0",)


def test_a_column_that_a_constraint_uses_stays() -> None:
    table = alter("ADD CONSTRAINT e CHECK n > 0").definition
    alter("DROP COLUMN m", table=table)
    alter("CLEAR COLUMN n", table=table)
    with pytest.raises(RmtError, match="there is the CONSTRAINT e CHECK"):
        alter("DROP COLUMN n", table=table)


def test_a_column_that_is_computed_has_nothing_to_rewrite() -> None:
    """No part has it."""
    for text in (
        "DROP COLUMN al",
        "RENAME COLUMN al TO al2",
        "MODIFY COLUMN al FixedString(3)",
    ):
        altered = alter(text)
        assert (altered.changes, altered.mutation) == ((), ())
        assert not altered.changes_nothing(TABLE)


def test_a_column_that_was_dropped_and_added_in_one_alter_is_new_for_the_order() -> None:
    alter("ADD COLUMN o Int8, DROP COLUMN o, ADD COLUMN o Int8, MODIFY ORDER BY (a, o)")
    with pytest.raises(UserError, match="only a column that the same ALTER adds"):
        alter("ADD COLUMN o Int8, DROP COLUMN o, RENAME COLUMN n TO o, MODIFY ORDER BY (a, o)")


def test_only_expressions_at_the_end_of_the_order_are_left_out() -> None:
    table = replace(
        TABLE,
        columns=(*TABLE.columns, Column("x", "Int8"), Column("y", "Int8")),
        order_by=("a", "x", "y"),
        primary_key=("a",),
    )
    assert alter("MODIFY ORDER BY (a, x)", table=table).definition.order_by == ("a", "x")
    assert alter("MODIFY ORDER BY a", table=table).definition.primary_key == ("a",)
    for order in ("(a, y)", "(a, y, x)", "(a, x, x)"):
        with pytest.raises(UserError, match="only a column that the same ALTER adds"):
            alter(f"MODIFY ORDER BY {order}", table=table)


def test_a_column_of_nested_stays_in_its_group() -> None:
    table = alter("ADD COLUMN g Nested(x Int8, y String)").definition
    assert [one.name for one in table.columns][-2:] == ["g.x", "g.y"]
    assert names(alter("RENAME COLUMN g.x TO g.z", table=table))[-2:] == ["g.z", "g.y"]
    for text in (
        "RENAME COLUMN g.x TO x",
        "RENAME COLUMN n TO g.n",
        "RENAME COLUMN g.x TO h.x",
    ):
        with pytest.raises(UserError, match="stays in its group"):
            alter(text, table=table)
    with pytest.raises(NotImplementedStatement, match="of the whole Nested g"):
        alter("RENAME COLUMN g TO h", table=table)


def test_how_keys_and_the_engine_use_a_column() -> None:
    columns = [
        Column(name, "Int64") for name in ("a", "b c", "e.f", "p", "s", "v", "d", "g", "t", "n")
    ]
    table = replace(
        engine(),
        columns=tuple(columns),
        order_by=("a", "`b c`", "e.f", "negate(t)"),
        primary_key=("a",),
        partition_by=("p", "intDiv(t, 9)"),
        sample_by="intHash32(s)",
        engine=replace(
            engine().engine,
            version_column="v",
            is_deleted_column="d",
            sign_column="g",
            columns_to_sum=("n", "v"),
        ),
    )
    assert {one.name: key_uses(one.name, table, columns_used) for one in columns} == {
        "a": {"order"},
        "b c": {"order"},
        "e.f": {"order"},
        "p": {"partition"},
        "s": {"expression"},
        "v": {"version", "sum"},
        "d": {"engine"},
        "g": {"engine"},
        "t": {"expression"},
        "n": {"sum"},
    }
    assert {one.name: place_in_keys(one.name, table, columns_used) for one in columns} == {
        "a": "in the sorting key",
        "b c": "in the sorting key",
        "e.f": "in the sorting key",
        "p": "in the partition key",
        "s": "in the sampling key",
        "t": "in the partition key",
        **dict.fromkeys(("v", "d", "g", "n")),
    }
    only_primary = replace(table, order_by=(), sample_by="")
    assert key_uses("a", only_primary, columns_used) == {"order"}
    assert place_in_keys("a", only_primary, columns_used) == "in the primary key"
    assert key_uses("s", only_primary, columns_used) == frozenset()
    assert place_in_keys("s", only_primary, columns_used) is None
