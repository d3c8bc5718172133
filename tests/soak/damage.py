"""What disks do to parts while they are read: bytes flip, files and directories are gone."""

import os
import random
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rmt_pipeline.config import Config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet

KINDS = ("flips a byte", "flips a byte", "loses a file", "loses a part")
AT_ONCE_MAX = 3


class Damage:
    """Each part is hit once, on one server, and only when others promise it too: what every disk
    has lost no program brings back. One that was mutated may have the files of the one before.
    """

    def __init__(self, config: Config, rng: random.Random) -> None:
        self.done: list[str] = []
        self._config = config
        self._rng = rng
        self._hit: set[PartName] = set()

    def do(self, victim: str, others: Sequence[str]) -> None:
        with suppress(RmtError), ServerContext.open(self._config, victim) as context:
            table = context.table("t")
            replica = table.replica
            found = [
                {
                    PartName.parse(name)
                    for name in replica.keeper.children(replica.table.replica(one).parts)
                }
                for one in (victim, *others)
            ]
            active = set(PartSet(found[0]))
            those = [
                part
                for part in sorted(active.intersection(*found[1:]), key=str)
                if replace(part, mutation=0) not in self._hit
            ]
            for part in self._rng.sample(those, min(len(those), AT_ONCE_MAX)):
                self._hit.add(replace(part, mutation=0))
                self._one(Path(table.store.directory(part)))

    def _one(self, part: Path) -> None:
        kind = self._rng.choice(KINDS)
        with suppress(FileNotFoundError):  # merged away meanwhile
            if kind == "loses a part":
                shutil.rmtree(part)
            else:
                file = self._rng.choice(
                    [file for file in part.iterdir() if file.name != "whole"]
                )
                if kind == "loses a file":
                    file.unlink()
                else:
                    _flip(file, self._rng)
            self.done.append(kind)


def _flip(file: Path, rng: random.Random) -> None:
    """One bit, and the file looks as it did, but for the time that the kernel keeps."""
    before = file.stat()
    with file.open("r+b") as opened:
        opened.seek(rng.randrange(before.st_size))
        [byte] = opened.read(1)
        opened.seek(-1, os.SEEK_CUR)
        opened.write(bytes([byte ^ 1 << rng.randrange(8)]))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
