"""`make machine-mutants SAMPLE=n`: how many planted bugs the default lanes notice."""

import argparse
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.mutants.machine.hunt import canary, every_site, hunt, warm_up
from tests.mutants.machine.sites import Site
from tests.mutants.machine.tests_of_lines import ROOMS, ROOT, TestsOfLines, measure

EQUIVALENT = Path(__file__).with_name("equivalent.txt")


def explained() -> dict[str, str]:
    """Bugs that are none, by name, each with the reason: lines `reason`, then `  name`."""
    reasons: dict[str, str] = {}
    reason = ""
    for line in EQUIVALENT.read_text().splitlines():
        if line.startswith("  "):
            reasons[line.strip()] = reason
        elif line and not line.startswith("#"):
            reason = line
    return reasons


def chosen(sites: list[Site], options: argparse.Namespace) -> list[Site]:
    known = explained()
    some = [one for one in sites if options.only in one.name and one.name not in known]
    if options.sample and options.sample < len(some):
        some = random.Random(options.seed).sample(some, options.sample)
    return some[options.part :: options.parts]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=0, help="how many, at random; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="a part of the name, such as a file")
    parser.add_argument("--parts", type=int, default=1, help="of several processes beside")
    parser.add_argument("--part", type=int, default=0, help="this one takes every parts-th")
    parser.add_argument(
        "--tests", type=Path, help="which tests run which lines, measured before"
    )
    parser.add_argument("--measure", type=Path, help="only measure that, into this file")
    options = parser.parse_args()
    if options.measure:
        measure().save(options.measure)
        return 0
    tests = TestsOfLines.load(options.tests or _measured())
    warm_up()
    if noticed := canary(tests):
        print(f"without any bug there is one who notices: {noticed}", file=sys.stderr)
        return 2
    survivors, total = [], 0
    for site in chosen(every_site(ROOMS), options):
        verdict = hunt(site, tests)
        total += 1
        if not verdict.noticed_by:
            survivors.append(site)
        said = verdict.noticed_by or "SURVIVED"
        print(f"{verdict.seconds:5.1f} s  {site.line}  {site.name}  |  {said}", flush=True)
    print(f"{total - len(survivors)} of {total} were noticed")
    return 1 if survivors else 0


def _measured() -> Path:
    """In a process of its own: pytest and what it imports must not be in ours yet."""
    path = Path(tempfile.mkdtemp(), "tests-of-lines.json")
    command = [sys.executable, "-m", "tests.mutants.machine", "--measure", str(path)]
    subprocess.run(command, check=True, cwd=ROOT)
    return path


if __name__ == "__main__":
    sys.exit(main())
