"""Several inserts of one process, side by side: what they ask for may go together."""

from collections.abc import Callable

from rmt_pipeline.protocol.errors import RmtError
from tests.support.cluster import Context, SimWaker
from tests.support.world import Process, World

PATIENCE_S = 3.0  # then a client asks somebody else, while the first attempt may still run


class Several:
    """A process in which several inserts are under way at once."""

    process: Process

    def __init__(self, world: World) -> None:
        self._world = world
        self._is_done = SimWaker(world)
        self._todo: list[tuple[Callable[[Context], None], SimWaker]] = []
        self._running = 0
        self._context: Context | None = None
        self._is_over = False

    @property
    def is_open(self) -> bool:
        """Whether one more may come."""
        return self.process.is_alive and not self._is_over

    def begin(self, run: Callable[[Context], None], waker: SimWaker) -> None:
        self._running += 1
        if self._context is None:
            self._todo.append((run, waker))
        else:
            self._spawn(self._context, run, waker)

    def wait(self, context: Context) -> None:
        """The life of the process."""
        self._context = context
        for run, waker in self._todo:
            self._spawn(context, run, waker)
        while self._running:
            self._is_done.wait_s(PATIENCE_S)
        self._is_over = True

    def _spawn(self, context: Context, run: Callable[[Context], None], waker: SimWaker) -> None:
        def one() -> None:
            try:
                run(context)
            except RmtError as error:  # of this client; the others go on
                self._world.note(
                    str(self.process), "told", f"{type(error).__name__}: {error}"[:300]
                )
                self._world.ended_by.append((str(self.process), error))
            finally:
                self._running -= 1
                waker.wake()
                self._is_done.wake()

        self.process.spawn(one)
