"""What examples/quickstart/README.md says to type."""

import re
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
PROJECT = CHECKOUT / "examples" / "quickstart"


def wheel_command() -> list[str]:
    """What is typed once, in the checkout."""
    [line] = re.findall(r"`(pip wheel [^`]+)`", _page())
    return str(line).split()


def commands() -> list[str]:
    """Those of the project, in their order, each a line for a shell."""
    return re.findall(r"^ {4}(\S.*)$", _page(), re.MULTILINE)


def _page() -> str:
    return (PROJECT / "README.md").read_text(encoding="utf-8")
