"""The names of types: the original's, other spellings of them, and those that are refused."""

import difflib

from rmt_pipeline.types.data_type import FLOATS, INTEGER_BITS

EXACT = (
    *INTEGER_BITS,
    *sorted(FLOATS),
    *("String", "UUID", "IPv4", "IPv6", "FixedString", "Enum8", "Enum16"),
    *("Nullable", "LowCardinality", "Array", "Tuple", "Map", "SimpleAggregateFunction"),
    "AggregateFunction",
)


_ANY_CASE = ("Bool", "Date", "Date32", "DateTime", "DateTime64", "Decimal", "Enum")


_NUMERIC_ALIASES = {
    "Int8": "BYTE,INT1,TINYINT",
    "Int16": "SMALLINT",
    "Int32": "INT,INTEGER,MEDIUMINT",
    "Int64": "BIGINT,SIGNED",
    "UInt8": "INT1 UNSIGNED,TINYINT UNSIGNED",
    "UInt16": "SMALLINT UNSIGNED,YEAR",
    "UInt32": "INT UNSIGNED,INTEGER UNSIGNED,MEDIUMINT UNSIGNED",
    "UInt64": "BIGINT UNSIGNED,UNSIGNED,BIT,SET",
    "Float32": "FLOAT,REAL,SINGLE",
    "Float64": "DOUBLE,DOUBLE PRECISION",
}


_OTHER_ALIASES = {
    "String": (
        "CHAR,VARCHAR,VARCHAR2,NCHAR,NVARCHAR,CHARACTER,CHAR VARYING,CHARACTER VARYING,TEXT,"
        "TINYTEXT,MEDIUMTEXT,LONGTEXT,CLOB,BLOB,TINYBLOB,MEDIUMBLOB,LONGBLOB,BYTEA,VARBINARY"
    ),
    "Bool": "BOOLEAN",
    "DateTime": "TIMESTAMP,DATETIME32",
    "Decimal": "DEC,NUMERIC,FIXED",
    "FixedString": "BINARY",
    "IPv4": "INET4",
    "IPv6": "INET6",
}


DECIMAL_DIGITS = {"DECIMAL32": 9, "DECIMAL64": 18, "DECIMAL128": 38, "DECIMAL256": 76}


_WITHOUT_REASON = {
    "Nested": "write its columns one by one, as in `n.a Array(...)`",
    "JSON": "use String or Map(String, String)",
    "Object": "use String or Map(String, String)",
    "Dynamic": "use String",
    "Variant": "use a Nullable column for each alternative",
    "BFloat16": "use Float32",
    "Time": "use Int32 (seconds) or DateTime",
    "Time64": "use Int64 or DateTime64",
    "Nothing": "no column can hold it",
    "Point": "use Tuple(Float64, Float64)",
}


def _spellings() -> dict[str, str]:
    spellings = {name.upper(): name for name in _ANY_CASE}
    for family, aliases in (_NUMERIC_ALIASES | _OTHER_ALIASES).items():
        for alias in aliases.split(","):
            spellings[alias] = family
            if family.startswith("Int"):
                spellings[f"{alias} SIGNED"] = family
    return spellings


SPELLINGS = _spellings()


TWO_WORDS = {spelling.split(" ")[0] for spelling in SPELLINGS if " " in spelling}


def unknown_type(word: str, text: str) -> str:
    whole = f" (in {shown_type(text)})" if word != text.strip() else ""
    if word in _WITHOUT_REASON:
        return f"columns of type {word} are not supported{whole}: {_WITHOUT_REASON[word]}"
    known = {name.lower(): name for name in (*EXACT, *_ANY_CASE, *SPELLINGS)}
    close = difflib.get_close_matches(word.lower(), known, n=3, cutoff=0.5)
    hint = (
        ", ".join(known[name] for name in close) or "see the list of types in the documentation"
    )
    return f"unknown type {word!r}{whole}; known ones close to it: {hint}"


def shown_type(text: str) -> str:
    return repr(text if len(text) <= 200 else f"{text[:200]}...")
