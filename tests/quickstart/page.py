"""What examples/quickstart/README.md says to type."""

import re
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
PROJECT = CHECKOUT / "examples" / "quickstart"


def wheel_command(*, with_uv: bool = False) -> list[str]:
    """What is typed once, in the checkout."""
    builder = "uv build" if with_uv else "pip wheel"
    [line] = re.findall(rf"`({builder} [^`]+)`", _page())
    return str(line).split()


def commands(*, with_uv: bool = False) -> list[str]:
    """Those of the project, in their order, each a line for a shell. `with_uv`: changed as the page
    says for those who have it.
    """
    typed = re.findall(r"^ {4}(\S.*)$", _page(), re.MULTILINE)
    if not with_uv:
        return typed
    [(uv, pip)] = re.findall(r"`(uv pip [^`]+) …` instead of `([^`]+) …`", _page())
    return [line.replace(pip, uv) for line in typed]


def _page() -> str:
    return (PROJECT / "README.md").read_text(encoding="utf-8")
