"""Parts of URLs, found by the text alone. Where there is no such part it is empty."""

from rmt_pipeline.translate.base.casts import nullable_like
from rmt_pipeline.translate.base.function import Build, function, template, text
from rmt_pipeline.translate.base.typed import STRING, Typed, string_sql

_SCHEME = "[a-zA-Z][a-zA-Z0-9+.*-]*"
_HOST = rf"^(?:{_SCHEME}://|//)?(?:[^:@/?#\s]*@)?([^:@/?#\s]*\.[^:@/?#\s]*)(?:[:/?#]|$)"


def _found(pattern: str, sql: str = "{0}") -> str:
    """Return SQL of what the group of a pattern finds, '' if the pattern does not match."""
    return f"regexp_extract({sql}, {string_sql(pattern)}, 1, 's')"


def _cut(pattern: str, kept: str = "", sql: str = "{0}") -> str:
    return f"regexp_replace({sql}, {string_sql(pattern)}, {string_sql(kept)}, 's')"


_DOMAIN = _found(_HOST)
_BEHIND_SLASHES = _cut(rf"^(?:{_SCHEME}:)?//")
DOMAIN_WITHOUT_WWW = _cut(r"^www\.", sql=_DOMAIN)
_PARTS = {
    "protocol": _found(f"^({_SCHEME}):(?://.|/?[^/])"),
    "domain": _DOMAIN,
    "domainWithoutWWW": DOMAIN_WITHOUT_WWW,
    "topLevelDomain": _found(r"\.([^.0-9][^.]*)$", _DOMAIN),
    "path": _found("^[^/?#]*(/[^?#]*)", _BEHIND_SLASHES),
    "pathFull": _found("^[^/?#]*(/.*)", _BEHIND_SLASHES),
    "queryString": _found(r"^[^?]*\?([^#]*)"),
    "fragment": _found("^[^#]*#(.*)"),
    "queryStringAndFragment": f"({_found(r'^[^?#]*[?](.*)')} || {_found('^[^?#]*(#.*)')})",
    "cutWWW": _cut(r"^([^/]+:)//www\.", r"\1//"),
    "cutQueryString": _cut(r"\?[^#]*"),
    "cutFragment": _cut("#.*"),
    "cutQueryStringAndFragment": _cut("[?#].*"),
}


def _parameter(arguments: list[Typed]) -> Typed:
    """`extractURLParameter(url, name)`: the first value of a parameter, behind ? or #."""
    url, name = (text(each) for each in arguments)
    sql = f"regexp_extract({url}, '[?&#]' || regexp_escape({name}) || '=([^&#]*)', 1)"
    return Typed(sql, nullable_like(STRING, *arguments))


def _without_parameter(arguments: list[Typed]) -> Typed:
    """`cutURLParameter(url, name)`: without the first occurrence of a parameter."""
    url, name = (text(each) for each in arguments)
    named = f"regexp_escape({name}) || '=[^&#]*"
    first = f"regexp_replace({url}, '([?#])' || {named}&?', '\\1')"
    sql = (
        f"(CASE WHEN regexp_matches({url}, '[?#]' || {named}') THEN {first} "
        f"ELSE regexp_replace({url}, '&' || {named}', '') END)"
    )
    return Typed(sql, nullable_like(STRING, *arguments))


def _part(sql: str) -> Build:
    return template(sql, STRING, text)


FUNCTIONS = (
    *(function(name, _part(sql), 1) for name, sql in _PARTS.items()),
    function("extractURLParameter", _parameter, 2),
    function("cutURLParameter", _without_parameter, 2),
)
