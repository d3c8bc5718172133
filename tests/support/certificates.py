"""Certificates for tests, made with openssl: one who signs, and whom it signs for."""

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificate:
    file: Path
    key: Path

    @property
    def together(self) -> Path:
        """One file with both, as Java and many others want it."""
        file = self.file.with_suffix(".both.pem")
        file.write_text(self.key.read_text() + self.file.read_text())
        return file


class Authority:
    """Who signs. Its own certificate is `file`."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._own = self._made(name, "basicConstraints=critical,CA:TRUE")

    @property
    def file(self) -> Path:
        return self._own.file

    def sign(self, name: str, *hosts: str) -> Certificate:
        """For whoever is found at these hosts: names, or addresses of 127.0.0.0/8."""
        names = [f"{'IP' if host.startswith('127.') else 'DNS'}:{host}" for host in hosts]
        alternative = f"subjectAltName={','.join(names) or 'DNS:nowhere.invalid'}"
        return self._made(name, alternative, "-CA", self._own.file, "-CAkey", self._own.key)

    def _made(self, name: str, extension: str, *signed: str | Path) -> Certificate:
        made = Certificate(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        command: list[str | Path] = ["openssl", "req", "-x509", "-nodes", "-days", "2"]
        command += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
        command += ["-subj", f"/CN={name}", "-addext", extension, *signed]
        command += ["-out", made.file, "-keyout", made.key]
        subprocess.run(command, check=True, capture_output=True)
        return made
