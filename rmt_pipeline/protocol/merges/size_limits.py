"""How large a merge or mutation may be, by how busy its pool is (spec §6.4).

A large merge keeps its slot for a long time. So the fuller the pool, the smaller the merges that
may start: then there is always a slot for the small ones, which keep the number of parts down.
"""

from dataclasses import dataclass

MIB = 1024**2
GIB = 1024**3
MERGE_SPACE_FACTOR = 2.0  # while selecting: the disk must hold the result beside the sources
MUTATION_SPACE_FACTOR = 1.1
UNLIMITED_BYTES = 2**63 - 1


@dataclass(frozen=True, slots=True)
class SizeLimits:
    """The settings that limit sizes, and the free space of the disk. In bytes, but for two counts.

    `lower_below_free`: the limit for merges shrinks if fewer slots than this are free.
    `mutate_above_free`: a mutation starts only if at least this many slots are free, or at most
    one is taken.
    """

    at_max_space_bytes: int = 150 * GIB
    at_min_space_bytes: int = MIB
    lower_below_free: int = 8
    mutate_above_free: int = 20
    disk_free_bytes: int = UNLIMITED_BYTES

    def merge_bytes_max(self, *, used: float, slots: int) -> int:
        """The largest sum of the sources' sizes while `used` of `slots` are taken; 0 if no slot is
        free.
        """
        if used >= slots:
            return 0
        free = slots - used
        if used <= 1 or free >= self.lower_below_free:
            by_pool = self.at_max_space_bytes
        else:
            low, high = self.at_min_space_bytes, self.at_max_space_bytes
            by_pool = int(_interpolate_exponentially(low, high, free / self.lower_below_free))
        return min(by_pool, int(self.disk_free_bytes / MERGE_SPACE_FACTOR))

    def any_size(self, *, used: float, slots: int) -> bool:
        """Whether the pool is idle enough for merges of any size: OPTIMIZE or another replica may
        have assigned a larger one than the limit, and it has to run some time (spec §4.6 rule 5f).
        """
        return self.merge_bytes_max(used=used, slots=slots) >= self.at_max_space_bytes

    def mutation_bytes_max(self, *, used: float, slots: int) -> int:
        """The largest size of a mutation's source; 0 if the pool is too busy for a mutation."""
        if used >= slots or (used > 1 and slots - used < self.mutate_above_free):
            return 0
        return int(self.disk_free_bytes / MUTATION_SPACE_FACTOR)


def _interpolate_exponentially(low: float, high: float, ratio: float) -> float:
    return low if low <= 0 else low * (high / low) ** ratio
