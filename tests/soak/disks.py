"""Small disks that a soak can fill: a tmpfs of its own for each server, mounted in a namespace that
any user of Linux may make, so that the kernel says "no space left" as it does on any full disk.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

DISK_MB = 192
_INSIDE = "RMT_SOAK_MOUNTS"
_UNSHARE = ("unshare", "--user", "--map-root-user", "--mount")


def go_inside(module: str, arguments: Sequence[str]) -> bool:
    """Go on in a namespace where we may mount; False where this machine lets nobody do so."""
    if _INSIDE in os.environ:
        return True
    may = shutil.which(_UNSHARE[0]) is not None and not subprocess.call([*_UNSHARE, "true"])
    if not may:
        return False
    os.environ[_INSIDE] = "1"
    return os.execvp(_UNSHARE[0], [*_UNSHARE, sys.executable, "-m", module, *arguments])


def mount(place: Path) -> None:
    place.mkdir()
    options = f"size={DISK_MB}m,mode=700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "soak", str(place)], check=True)


def keep(place: Path) -> None:
    """What is on it would be gone with us."""
    kept = place.with_name(f"{place.name}-kept")
    subprocess.run(["cp", "-r", "--preserve=timestamps", str(place), str(kept)], check=True)


@contextmanager
def filled(place: Path, left: int) -> Iterator[None]:
    """But for `left` bytes, rounded to pages: the filler takes all that the kernel gives."""
    filler = place / "filler"
    with filler.open("wb", buffering=0) as file:
        for piece in (1 << 20, 4096):
            with suppress(OSError):
                while True:
                    file.write(bytes(piece))
        file.truncate(max(0, file.tell() - left))
    try:
        yield
    finally:
        filler.unlink()
