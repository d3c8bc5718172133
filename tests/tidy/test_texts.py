"""What the documents name is there: commands of `rmt` with their options, files, modules."""

import re
from collections.abc import Iterator
from pathlib import Path

import click

from rmt_pipeline.cli.main import app
from tests.tidy import tree

CODE = re.compile(r"`([^`\n]+)`|^ {4}(.+)$|^[-\w./$ ]*\brmt .+$", re.MULTILINE)
"""In backticks, an indented line, or a line of a fenced block that calls `rmt`."""

FOLDERS = {
    *tree.CODE,
    *("docs", ".ci"),
    *(folder.name for folder in (tree.ROOT / "rmt_pipeline").iterdir() if folder.is_dir()),
} - {"dagster", "__pycache__"}
"""A path that begins with one of them is one of ours; `dagster/row_count` is Dagster's word."""


def texts() -> Iterator[tuple[Path, str]]:
    """All but the changelog, which names what there was, too."""
    for file in tree.files():
        if file.suffix == ".md" and file.name != "CHANGELOG.md":
            yield file, tree.text(file)


def code_in(text: str) -> Iterator[str]:
    for match in CODE.finditer(text):
        yield next(filter(None, match.groups()), match[0]).strip()


def calls(code: str) -> Iterator[list[str]]:
    """The words of each call of `rmt` in it, as far as the first thing in quotes."""
    for found in re.finditer(r"(?:^|[\s(]|bin/)rmt (?!-- )(.+)", code):
        yield re.sub(r"['\"|;&>)].*|[\[\]…]", " ", found[1]).split()


def problem(words: list[str]) -> str:
    """What does not exist of `rmt` with these words; "" when all of it does."""
    command: click.Command = app
    known = options(app)
    for word in words:
        option = word.partition("=")[0]
        if option.startswith("-"):
            if option not in known:
                return f"{command.name} has no {option}"
        elif isinstance(command, click.Group) and word in command.commands:
            command = command.commands[word]
            known |= options(command)
            if isinstance(command, click.Group):  # what its usual command takes, it takes
                known |= set().union(*map(options, command.commands.values()))
        elif command is app and not is_value(word, words):
            return f"there is no rmt {word}"
    return ""


def is_value(word: str, words: list[str]) -> bool:
    """Of the option before it."""
    return words.index(word) > 0 and words[words.index(word) - 1].startswith("-")


def options(command: click.Command) -> set[str]:
    context = click.Context(command, **command.context_settings)
    return {
        name for each in command.get_params(context) for name in each.opts + each.secondary_opts
    }


def test_every_command_and_option_of_rmt_in_the_documents_exists() -> None:
    found = [
        (file, words)
        for file, text in texts()
        for code in code_in(text)
        for words in calls(code)
    ]
    assert len(found) > 60
    assert [
        f"{file}: {' '.join(words)}: {problem(words)}"
        for file, words in found
        if problem(words)
    ] == []


def test_what_does_not_exist_would_be_noticed() -> None:
    assert problem(["serve", "--server", "r1", "--work"]) == ""
    assert problem(["--config", "rmt.toml", "status"]) == ""
    assert problem(["mutations", "orders", "--watch"]) == ""
    assert problem(["frobnicate"]) == "there is no rmt frobnicate"
    assert problem(["serve", "--frobnicate"]) == "serve has no --frobnicate"
    assert list(code_in("a\n\n```\n.venv/bin/rmt up\n```\n`rmt status`"))[-2:] == [
        ".venv/bin/rmt up",
        "rmt status",
    ]


def is_there(path: str, beside: Path) -> bool:
    """From the top, in the product, or beside the document; `.py` may be left out."""
    places = (tree.ROOT, tree.ROOT / "rmt_pipeline", tree.ROOT / beside.parent)
    return any((place / ending).exists() for place in places for ending in (path, f"{path}.py"))


def test_every_file_that_the_documents_name_exists() -> None:
    named = [
        (file, path)
        for file, text in texts()
        for path in re.findall(r"`([\w.-]+(?:/[\w.-]+)+/?)`", text)
        if path.endswith(".py") or path.partition("/")[0] in FOLDERS
    ]
    assert len(named) > 150
    assert sorted({f"{file}: {path}" for file, path in named if not is_there(path, file)}) == []


def test_every_link_of_the_documents_leads_somewhere() -> None:
    links = [
        (file, target)
        for file, text in texts()
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
        if "://" not in target
    ]
    assert len(links) > 40
    wrong = {
        f"{file}: {to}" for file, to in links if not (tree.ROOT / file.parent / to).exists()
    }
    assert sorted(wrong) == []


def test_every_module_that_the_documents_say_to_run_exists() -> None:
    modules = {
        module
        for _, text in texts()
        for module in re.findall(r"\b((?:benchmarks|tests|examples)(?:\.[a-z_]+)+)\b", text)
    } - {"tests.json"}
    assert len(modules) > 5
    wrong = [m for m in modules if not is_there(m.replace(".", "/"), Path("README.md"))]
    assert sorted(wrong) == []
