"""`python -m tests.quickstart`: a newcomer. Builds the wheel, and types what the page says into
an empty directory and an empty environment; the second server must have the day's rows at the end.

What is typed is the page's, with uv in pip's place if the machine has it, as the page says, because
pip takes minutes; `--pip` types pip's all the same. The ports alone are not its own, so that nobody
has to end what uses those. Everything that was started is ended, whatever happens.
"""

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from examples.flights.laptop import write_config
from tests.quickstart.page import CHECKOUT, PROJECT, commands, wheel_command

READY_S = 600.0
ENDS_WITHIN_S = 60.0
UP = ".venv/bin/rmt up"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.quickstart", description=__doc__)
    parser.add_argument("--pip", action="store_true")
    with_uv = not parser.parse_args().pip and _has_uv()
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        checkout = _checkout(root, with_uv=with_uv)
        project = root / "shop"
        project.mkdir()
        said = _type_all(
            commands(with_uv=with_uv), project, _environment(root, checkout), begun_s
        )
    rows = [line.split(",") for line in (PROJECT / "shop" / "orders.csv").read_text().split()]
    expected = [row for row in rows if row[0] == "2026-01-01"]
    day, count, revenue = said.split()[-3:]
    assert day == "2026-01-01", said
    assert int(count) == len(expected), said
    assert abs(float(revenue) - sum(float(row[3]) for row in expected)) < 0.005, said
    print(f"the page holds: {time.monotonic() - begun_s:.0f} s")
    return 0


def _has_uv() -> bool:
    """Whether there is one that works: pyenv leaves a name of it behind."""
    try:
        asked = subprocess.run(["uv", "--version"], check=False, capture_output=True)
    except OSError:
        return False
    return asked.returncode == 0


def _checkout(root: Path, *, with_uv: bool) -> Path:
    """A copy of what is under version control, with the wheel built in it: by uv, or by a pip that
    is made for it, since an environment of uv's has none.
    """
    checkout = root / "checkout"
    files = subprocess.run(
        ["git", "ls-files", "-z"], cwd=CHECKOUT, check=True, capture_output=True, text=True
    )
    for name in files.stdout.rstrip("\0").split("\0"):
        target = checkout / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(CHECKOUT / name, target)
    if with_uv:
        subprocess.run(wheel_command(with_uv=True), cwd=checkout, check=True)
        return checkout
    pip = root / "pip"
    subprocess.run([sys.executable, "-m", "venv", str(pip)], check=True)
    python = str(pip / "bin" / "python")
    subprocess.run([python, "-m", *wheel_command()], cwd=checkout, check=True)
    return checkout


def _environment(root: Path, checkout: Path) -> dict[str, str]:
    """A newcomer's: nothing of this one's packages; ports that are free."""
    (root / "ports").mkdir()
    ports = write_config(root / "ports").path
    assert ports is not None
    text = ports.read_text(encoding="utf-8")
    text = text.replace('home = "dagster"', 'home = "shop/rmt-data/dagster"')
    text = "\n".join(line for line in text.splitlines() if not line.startswith("workspace"))
    file = root / "rmt.toml"
    file.write_text(text, encoding="utf-8")
    strange = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "DAGSTER_HOME")
    kept = {name: value for name, value in os.environ.items() if name not in strange}
    return {**kept, "CHECKOUT": str(checkout), "RMT_CONFIG": str(file)}


def _type_all(
    typed: Sequence[str], project: Path, environment: Mapping[str, str], begun_s: float
) -> str:
    """What the last command printed. Each is shown with the seconds since `begun_s`."""
    said = ""
    with contextlib.ExitStack() as terminals:
        for command in typed:
            print(f"{time.monotonic() - begun_s:4.0f} s $ {command}", flush=True)
            if command == UP:
                terminals.enter_context(_running(command, project, environment))
                continue
            done = subprocess.run(
                command,
                shell=True,
                cwd=project,
                env=environment,
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            said = done.stdout
            print(said, end="", flush=True)
    return said


@contextlib.contextmanager
def _running(command: str, project: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """From `everything is ready` to the end of the block; then it must end in order."""
    with subprocess.Popen(
        f"exec {command}",
        shell=True,
        cwd=project,
        env=environment,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        is_ready, is_over = threading.Event(), threading.Event()

        def show() -> None:
            assert process.stderr is not None
            for line in process.stderr:
                print(line, end="", flush=True)
                if "everything is ready" in line:
                    is_ready.set()
            is_over.set()
            is_ready.set()

        threading.Thread(target=show, daemon=True).start()
        try:
            assert is_ready.wait(READY_S), f"{command} was not ready after {READY_S:g} s"
            assert not is_over.is_set(), f"{command} ended before everything was ready"
            yield
        finally:
            process.terminate()
            status = process.wait(ENDS_WITHIN_S)
        assert status == 0, f"{command} ended with status {status}"


if __name__ == "__main__":
    sys.exit(main())
