"""Three real ZooKeeper servers on this machine that are one: any one of them may be lost."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from examples.flights.ports import free_port
from rmt_pipeline.processes.zookeeper import EmbeddedZooKeeper

MEMBERS = 3
_SETTINGS = "initLimit=20\nsyncLimit=10\n"  # in ticks of half a second


class Ensemble:
    """Its members are killed, frozen and started again by whoever has it."""

    def __init__(self, directory: Path, *, force_sync: bool = True) -> None:
        numbers = range(1, MEMBERS + 1)
        peers = "".join(
            f"server.{number}=127.0.0.1:{free_port()}:{free_port()}\n" for number in numbers
        )
        self.members: list[EmbeddedZooKeeper] = []
        for number in numbers:
            place = directory / f"zookeeper-{number}"
            (place / "data").mkdir(parents=True)
            (place / "data" / "myid").write_text(f"{number}\n")
            self.members.append(
                EmbeddedZooKeeper(
                    place, free_port(), force_sync=force_sync, settings=_SETTINGS + peers
                )
            )

    @property
    def hosts(self) -> str:
        return ",".join(member.hosts for member in self.members)

    def start(self, numbers: Iterable[int] = range(MEMBERS)) -> None:
        """All at once: one alone has no majority, and answers nobody."""
        members = [self.members[number] for number in numbers]
        with ThreadPoolExecutor(MEMBERS) as pool:
            list(pool.map(EmbeddedZooKeeper.start, members))

    def stop(self) -> None:
        with ThreadPoolExecutor(MEMBERS) as pool:
            list(pool.map(EmbeddedZooKeeper.stop, self.members))

    def kill(self, number: int) -> EmbeddedZooKeeper:
        """SIGKILL. Who gets it starts it again."""
        member = self.members[number]
        member.kill()
        member.stop()
        return member

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
