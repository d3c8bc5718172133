"""An executor that carries out what it has claimed before it returns."""

from dataclasses import replace

from rmt_pipeline.replica.work import execute
from rmt_pipeline.replica.work.step import Step
from rmt_pipeline.zookeeper.keeper import Watch


class Executor(execute.Executor):
    """For tests, which wait for the result."""

    def step(self, watch: Watch | None) -> Step:
        """Look once, and carry out what was claimed, one batch after the other; for callers that
        wait for the result. An unexpected error is raised at the end.
        """
        looked_s = self._replica.clock.monotonic_s()
        look = self.look(watch)
        done = list(look.step.done)
        for number, batch in enumerate(look.batches):
            try:
                done += self._carrier.carry_out(batch)
            except BaseException:
                for later in look.batches[number + 1 :]:
                    self._carrier.give_back(later)
                raise
        for one in done:
            if one.bug is not None:
                raise one.bug
        next_s = self._backoff.next_s(looked_s, self._replica.clock.monotonic_s())
        return replace(look.step, done=tuple(done), next_retry_s=next_s)
