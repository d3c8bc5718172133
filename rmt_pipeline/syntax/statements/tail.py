"""What several statements share: table names, SETTINGS, FORMAT, ON CLUSTER."""

from rmt_pipeline.protocol.errors import NotImplementedStatement
from rmt_pipeline.syntax.sql_cursor import Cursor
from rmt_pipeline.syntax.sql_tokens import Kind, unquote
from rmt_pipeline.syntax.statements.nodes import Answer, Settings, TableName


def table_name(cursor: Cursor) -> TableName:
    database, name = cursor.qualified_name("the name of a table")
    refuse_cluster(cursor)
    return TableName(database, name)


def refuse_cluster(cursor: Cursor) -> None:
    if cursor.at("ON", "CLUSTER"):
        raise NotImplementedStatement(
            "ON CLUSTER is not implemented: run the statement on each server"
        )


def settings_list(cursor: Cursor) -> Settings:
    """`name = value, …`, after the word SETTINGS or SET."""
    settings = [one_setting(cursor)]
    while cursor.accept_mark(","):
        settings.append(one_setting(cursor))
    return tuple(settings)


def one_setting(cursor: Cursor) -> tuple[str, str]:
    """`name = value`."""
    name = cursor.name("the name of a setting")
    cursor.expect_mark("=")
    sign = "-" if cursor.accept_mark("-") else ""
    if cursor.token.kind not in (Kind.NUMBER, Kind.STRING, Kind.WORD):
        raise cursor.expected(f"a value for the setting {name}")
    token = cursor.advance()
    if sign and token.kind is not Kind.NUMBER:
        raise cursor.expected("a number after `-`")
    words = {"TRUE": "1", "FALSE": "0"}
    return name, sign + words.get(token.upper, unquote(token))


def answer_tail(cursor: Cursor) -> Answer:
    """`[SETTINGS …] [FORMAT f] [SETTINGS …]` up to the end of the statement."""
    settings: Settings = ()
    format_name = None
    while not cursor.at_end:
        if cursor.accept("SETTINGS"):
            settings += settings_list(cursor)
        elif format_name is None and cursor.accept("FORMAT"):
            format_name = cursor.name("the name of a format")
        elif cursor.at("INTO", "OUTFILE"):
            raise NotImplementedStatement(
                "INTO OUTFILE is not implemented: redirect the output, with FORMAT or --format"
            )
        else:
            raise cursor.expected("SETTINGS, FORMAT or the end of the statement")
    return Answer(format_name, settings)


def at_answer_tail(cursor: Cursor) -> bool:
    """Whether SETTINGS, FORMAT or INTO OUTFILE starts here, and not a column of that name."""
    if cursor.at("SETTINGS"):
        return cursor.peek(1).kind is Kind.WORD and cursor.peek(2).text == "="
    if cursor.at("FORMAT"):
        after = cursor.peek(2)
        is_last = after.kind is Kind.END or after.upper == "SETTINGS"
        return cursor.peek(1).kind is Kind.WORD and is_last
    return cursor.at("INTO", "OUTFILE")


def query_text(cursor: Cursor) -> str:
    """The text of a query up to its tail. Brackets are matched, nothing else is looked at."""
    start = cursor.token.start
    while not cursor.at_end and not (cursor.last_stop > start and at_answer_tail(cursor)):
        if cursor.token.kind is Kind.MARK and cursor.token.text in "([{":
            cursor.group()
        elif cursor.token.kind is Kind.MARK and cursor.token.text in ")]}":
            raise cursor.expected("the rest of the query")
        else:
            cursor.advance()
    return cursor.source[start : cursor.last_stop]
