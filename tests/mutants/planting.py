"""One line of the code is written otherwise, in a copy of the tree: who notices."""

import ast
import builtins
import keyword
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("rmt_pipeline", "tests", "docs", "pyproject.toml")
TIMEOUT_S = 600
_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*\b(?!=[^=])")
_STRING = re.compile(r"f?\"[^\"]*\"")


@dataclass(frozen=True, slots=True)
class LineMutant:
    """In `file`, `line` is written as `wrong`; `noticed_by` are the tests that must fail."""

    name: str
    file: str
    line: str
    wrong: str
    noticed_by: str

    @property
    def is_there(self) -> bool:
        """Whether the line still stands in the file, once."""
        return (ROOT / self.file).read_text().count(self.line) == 1

    def nonsense(self) -> str:
        """Why the file can't be run with it, whatever the promise that it should break: any test
        would notice that. "" when it can.
        """
        text = (ROOT / self.file).read_text()
        try:
            ast.parse(text.replace(self.line, self.wrong))
        except SyntaxError as error:
            return str(error)
        known = {*_WORD.findall(text), *_WORD.findall(self.line), *dir(builtins)}
        used = {*_WORD.findall(_STRING.sub("", self.wrong))}
        unknown = sorted(used - known - {*keyword.kwlist})
        return ", ".join(f"{name} is nowhere else" for name in unknown)


def notice(mutant: LineMutant) -> str:
    """The first test that failed; "" when none did."""
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(
                    source, copy / name, ignore=shutil.ignore_patterns("__pycache__")
                )
            else:
                shutil.copy(source, copy / name)
        file = copy / mutant.file
        text = file.read_text()
        assert text.count(mutant.line) == 1, f"{mutant.name}: the line is gone: {mutant.line}"
        file.write_text(text.replace(mutant.line, mutant.wrong))
        return _first_failure(copy, mutant.noticed_by.split())


def _first_failure(tree: Path, tests: list[str]) -> str:
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests],
        cwd=tree,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    failed = [line for line in ended.stdout.splitlines() if line.startswith("FAILED")]
    if ended.returncode == 1 and failed:
        return failed[0].removeprefix("FAILED ").split(" - ")[0].split("[")[0]
    return ""
