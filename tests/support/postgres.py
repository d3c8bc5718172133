"""Debian's PostgreSQL, started for a test in a directory of its own."""

import getpass
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from examples.flights.ports import free_port
from rmt_pipeline.processes.child import Child
from tests.support.waiting import until

USER, DATABASE = "dagster", "dagster"
PASSWORD = "one of a test"
PROGRAMS = ("initdb", "postgres", "psql")
ACCOUNTS = ("postgres", "nobody")
"""PostgreSQL refuses to be root."""


def find_postgres() -> Path | None:
    """The directory of its programs: Debian has those of each version apart."""
    newest_first = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"),
        key=lambda directory: -int(directory.parent.name),
    )
    on_the_path = shutil.which("initdb")
    places = [*([Path(on_the_path).parent] if on_the_path else []), *newest_first]
    whole = [place for place in places if all((place / name).exists() for name in PROGRAMS)]
    return whole[0] if whole else None


class Postgres:
    """A server with the database `dagster`, for who knows the password. Its data may die with the
    machine. A context; stopped and started again by whoever has it.
    """

    def __init__(self, programs: Path) -> None:
        self.port = free_port()
        self._programs = programs
        # Not in pytest's directory, which is root's alone.
        self._directory = Path(tempfile.mkdtemp(prefix="rmt-postgres-"))
        self._server: Child | None = None

    def start(self) -> None:
        data = self._directory / "data"
        is_new = not data.exists()
        if is_new:
            self._make(data)
        options = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self._directory),
            "fsync": "off",
        }
        with (self._directory / "log").open("ab") as log:
            self._server = Child(
                [
                    *self._as_somebody(),
                    *(str(self._programs / "postgres"), "-D", str(data), "-p", str(self.port)),
                    *(f"--{name}={value}" for name, value in options.items()),
                ],
                output=log,
                cwd=self._directory,
            )
        until(self.answers, (self._directory / "log").read_text)
        if is_new:
            self._psql(f"CREATE DATABASE {DATABASE}", database="postgres")

    def stop(self) -> None:
        """At once, as by a power failure."""
        if self._server is not None:
            self._server.kill()
            self._server = None
            (self._directory / "data" / "postmaster.pid").unlink(missing_ok=True)

    def answers(self) -> bool:
        return self._psql("SELECT 1", database="postgres", check=False).returncode == 0

    def ask(self, query: str) -> str:
        return self._psql(query).stdout.strip()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._directory)

    def _make(self, data: Path) -> None:
        secret = self._directory / "password"
        secret.write_text(PASSWORD)
        words = self._as_somebody()
        if words:
            shutil.chown(self._directory, self._account())
            shutil.chown(secret, self._account())
        subprocess.run(
            [
                *words,
                str(self._programs / "initdb"),
                *("-D", str(data), "-U", USER, f"--pwfile={secret}", "-A", "scram-sha-256"),
                *("-E", "UTF8", "--locale=C", "--no-sync"),
            ],
            check=True,
            capture_output=True,
            cwd=self._directory,
        )

    def _psql(
        self, query: str, *, database: str = DATABASE, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                *(str(self._programs / "psql"), "-h", "127.0.0.1", "-p", str(self.port)),
                *("-U", USER, "-d", database, "-Atc", query),
            ],
            check=check,
            capture_output=True,
            text=True,
            env={**os.environ, "PGPASSWORD": PASSWORD},
        )

    def _as_somebody(self) -> Sequence[str]:
        if getpass.getuser() != "root":
            return []
        account = pwd.getpwnam(self._account())
        return [
            "setpriv",
            f"--reuid={account.pw_uid}",
            f"--regid={account.pw_gid}",
            "--clear-groups",
        ]

    @staticmethod
    def _account() -> str:
        there = {entry.pw_name for entry in pwd.getpwall()}
        return next(name for name in ACCOUNTS if name in there)
