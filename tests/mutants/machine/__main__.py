"""`make machine-mutants SAMPLE=n SEED=k`: how many planted bugs the default lanes notice."""

import argparse
import os
import random
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.mutants.machine.hunt import (
    OPTIONS,
    TESTS_S,
    Hunter,
    Verdict,
    every_site,
    run_planted,
    with_servers,
)
from tests.mutants.machine.sites import Site
from tests.mutants.machine.tests_of_lines import ROOMS

EQUIVALENT = Path(__file__).with_name("equivalent.txt")
LANES = ("tests/unit", "tests/property")
THEN = ("tests/contract", "tests/simulation", "tests/crash")
NOT_ASKED = (
    "planted_bug or each_check or some_checks_notice or what_failed_once or second_fault or "
    "dies_too"
)
"""They plant bugs themselves; and worlds, of which there are others; and pairs of faults."""


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
    some = [
        site
        for site in sites
        if any(one in site.name for one in options.only) and site.name not in known
    ]
    if options.sample and options.sample < len(some):
        some = random.Random(options.seed).sample(some, options.sample)
    return some


def report(verdicts: Sequence[Verdict], seed: int) -> None:
    """A line per module, then those that survived."""
    of_module: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        of_module[verdict.site.file].append(verdict)
    for file, some in sorted(of_module.items()):
        print(f"{sum(bool(one.noticed_by) for one in some):4} of {len(some):4}  {file}")
    survivors = [one.site for one in verdicts if not one.noticed_by]
    for site in sorted(survivors, key=lambda site: (site.file, site.line)):
        print(f"survived  {site.line}  {site.name}")
    print(f"{len(verdicts) - len(survivors)} of {len(verdicts)} were noticed, seed {seed}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=0, help="how many, at random; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=[""], help="parts of names, as of files")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--tests", type=Path, help="which tests run which lines: kept there")
    parser.add_argument("--lanes", nargs="+", default=LANES, help="asked about every bug")
    parser.add_argument(
        "--then", nargs="*", default=THEN, help="asked about what survives these"
    )
    parser.add_argument("--seconds", type=float, default=TESTS_S, help="of tests, for each bug")
    parser.add_argument(
        "--no-servers", action="store_true", help="nobody who starts some is asked in the end"
    )
    parser.add_argument("--plant", help=argparse.SUPPRESS)
    options, more = parser.parse_known_args()
    sites = every_site(ROOMS)
    if options.plant:
        return run_planted(next(one for one in sites if one.name == options.plant), more)
    file = options.tests or Path(tempfile.mkdtemp(), "tests-of-lines.json")
    verdicts = {site: Verdict(site, "", 0) for site in chosen(sites, options)}

    def survivors() -> list[Site]:
        return [site for site, verdict in verdicts.items() if not verdict.noticed_by]

    for lanes in filter(None, (options.lanes, options.then)):
        hunter = Hunter(file, survivors(), options.processes, tests_s=options.seconds)
        asked = [*OPTIONS, "-k", f"not ({NOT_ASKED})", *lanes]
        if code := pytest.main(asked, plugins=[hunter]):
            return int(code)
        verdicts |= {verdict.site: verdict for verdict in hunter.verdicts}
        if not survivors():
            break
    if not options.no_servers:
        verdicts |= {verdict.site: verdict for verdict in with_servers(survivors())}
    report([*verdicts.values()], options.seed)
    return 1 if survivors() else 0


if __name__ == "__main__":
    sys.exit(main())
