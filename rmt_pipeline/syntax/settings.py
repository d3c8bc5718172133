"""The parser of settings: `name = value, …` after SET or SETTINGS."""

from rmt_pipeline.syntax.cursor import Cursor

Settings = tuple[tuple[str, str], ...]
"""Names and values in the order given; values are text, without quotes."""


def settings_clause(c: Cursor) -> Settings:
    """Read the settings after the word SETTINGS or SET."""
    return c.several(one_setting)


def one_setting(c: Cursor) -> tuple[str, str]:
    """Read one `name = value`. `true` and `false` become 1 and 0."""
    name = c.identifier("the name of a setting")
    c.expect("=")
    sign = "-" if c.take("-") else ""
    if c.current.kind not in ("number", "string", "word"):
        raise c.expected(f"a value for the setting {name}")
    token = c.advance()
    if sign and token.kind != "number":
        raise c.expected("a number after `-`")
    words = {"TRUE": "1", "FALSE": "0"}
    return name, sign + words.get(token.upper, token.value)
