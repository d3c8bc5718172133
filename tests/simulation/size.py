"""How much of everything a simulated world has: drawn from its seed."""

import random
from dataclasses import dataclass, replace

from rmt_pipeline.protocol import limits
from tests.simulation.expiring import TTLS, VALUE_TTLS, Ttl

STORM_STEPS = 600
LONG_STORM_STEPS = 1500
COMMIT_BYTES_MAX = limits.INSERT_BYTES_MAX
REMOVED = 0.07  # of the worlds have tables that are dropped and created again
KEPT = 0.06  # of the others set parts aside, attach, fetch and freeze them
RESTORED = (
    0.05  # of the others have a ZooKeeper that loses the table; as many again change it, too; and
    # of others it goes back to what it was a while ago
)
LEAVING = 0.05  # of the others have rows that expire, inserts that are undone, and duplicates
UNDONE_RESTORED = (
    0.25  # of these have inserts that are undone, and a ZooKeeper that loses the table
)
CROWDED = 0.05  # of the others have many inserts at once in one process
LIVED_THROUGH = 0.6  # of these have processes that live on meanwhile
LIVED_BACK = 0.4  # of those in which it goes back


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything a world has."""

    hosts: int
    partitions: int
    clients: int
    inserts_each: int
    rows_max: int
    workers: int = 1
    newcomers: int = 0
    """Hosts that create their replica later, when there are data."""
    mutations: int = 0
    outages: int = 0
    """How often a machine is switched off for longer than its place in the log is kept."""
    losses: int = 0
    """How often the last host's disk loses a part, or a bit of one flips."""
    alters: int = 0
    drops: int = 0
    quorums: bool = False
    """Whether inserts ask for one."""
    swaps: int = 0
    """How often rows of partitions are replaced, or others come beside them."""
    commit_bytes_max: int = COMMIT_BYTES_MAX
    """Of an insert's multi: one with more partitions goes in with several."""
    between: int = 0
    """How often rows of partitions go to a second table, which there is then."""
    vanishings: int = 0
    """How often a host comes back with an empty disk."""
    restores: int = 0
    """How often ZooKeeper loses the table, which is made again from the disks."""
    some_live_on: bool = False
    """Whether processes of some hosts live through that."""
    goes_back: bool = False
    """Whether it has an older copy of the table instead. Then every session ends."""
    removals: int = 0
    """How often the table is dropped, on one server or on all, and created again."""
    keepings: int = 0
    """How often parts are detached, attached, fetched into a second table, or frozen."""
    storm_steps: int = STORM_STEPS
    undos: int = 0
    """How often an insert is undone."""
    copies: int = 0
    """How often rows are inserted that are there, and OPTIMIZE is to keep one of each."""
    expiries: int = 0
    """How often the TTL is another one, or is materialized."""
    ttl: Ttl | None = None
    """With which the table is created."""
    value_ttl: Ttl | None = None
    """By which values expire."""
    is_crowded: bool = False
    """Whether all inserts of a host are made by threads of one process."""

    @classmethod
    def drawn(cls, rng: random.Random) -> "Size":
        state = str(rng.getstate()[1][:9])
        apart = random.Random(state)  # beside: worlds stay what they were
        if random.Random(f"{state} removals").random() < REMOVED:
            return cls._with_removals(rng)
        if random.Random(f"{state} restores").random() < RESTORED:
            return replace(
                cls._with_restores(rng),
                some_live_on=random.Random(f"{state} live on").random() < LIVED_THROUGH,
                drops=random.Random(f"{state} restored drops").choice((0, 3)),
            )
        if random.Random(f"{state} restored mutations").random() < RESTORED:
            drawn = replace(
                cls._with_restores(rng),
                some_live_on=apart.random() < LIVED_THROUGH,
                drops=apart.choice((0, 0, 3)),
                mutations=apart.choice((0, 2, 4)),
                alters=apart.choice((0, 2, 4)),
            )
            if random.Random(f"{state} some inserts").random() < 0.5:  # soon there are no more
                few = apart.choice((1, 2, 3))
                return replace(drawn, inserts_each=few, storm_steps=LONG_STORM_STEPS)
            return drawn
        if random.Random(f"{state} back in time").random() < RESTORED:
            return replace(
                cls._with_restores(rng),
                goes_back=True,
                some_live_on=random.Random(f"{state} live on there").random() < LIVED_BACK,
                drops=apart.choice((0, 3)),
                mutations=apart.choice((0, 2, 4)),
                alters=apart.choice((0, 2, 4)),
                storm_steps=LONG_STORM_STEPS,
            )
        if random.Random(f"{state} aside").random() < KEPT:
            return cls._with_keepings(rng)
        if random.Random(f"{state} rows are undone").random() > 1 - LEAVING:
            return cls._with_leavings(rng, apart)
        plain = cls._plain(rng, apart)
        if random.Random(f"{state} side by side").random() < CROWDED:
            return replace(
                plain, is_crowded=True, hosts=2, newcomers=0, clients=8, inserts_each=3
            )
        return plain

    @classmethod
    def _plain(cls, rng: random.Random, apart: random.Random) -> "Size":
        hosts = rng.choice((2, 2, 3, 3, 4))
        if hosts == 4:
            hosts = rng.choice((4, 4, 5))
        return cls(
            hosts=hosts,
            partitions=rng.choice((1, 1, 2, 3)),
            clients=rng.choice((1, 2, 4)),
            inserts_each=rng.choice((1, 2, 4)),
            rows_max=rng.choice((1, 3)),
            workers=rng.choice((1, 1, 2)),
            newcomers=rng.choice((0, 0, 1)),
            mutations=rng.choice((0, 0, 1, 4)),
            outages=rng.choice((0, 0, 2)),
            losses=rng.choice((0, 0, 6)),
            alters=rng.choice((0, 0, 3)),
            drops=apart.choice((0, 0, 3)),
            quorums=apart.choice((False, False, True)),
            swaps=apart.choice((0, 0, 3)),
            commit_bytes_max=apart.choice((COMMIT_BYTES_MAX, 1, 4000)),
            between=apart.choice((0, 0, 0, 0, 0, 0, 0, 4)),
            vanishings=apart.choice((0, 0, 0, 2)),
        )

    @classmethod
    def _with_restores(cls, rng: random.Random) -> "Size":
        """Of rows that are expected somewhere else, or on more replicas, only ZooKeeper knows."""
        return cls(
            hosts=rng.choice((2, 2, 3, 4)),
            partitions=rng.choice((1, 2, 3)),
            clients=rng.choice((1, 2)),
            inserts_each=rng.choice((4, 8)),
            rows_max=rng.choice((1, 3)),
            workers=rng.choice((1, 1, 2)),
            outages=rng.choice((0, 0, 2)),
            restores=rng.choice((1, 2)),
        )

    @classmethod
    def _with_keepings(cls, rng: random.Random) -> "Size":
        """Of a disk that breaks beside nobody could say what has to be detached there."""
        return cls(
            hosts=rng.choice((2, 2, 3)),
            partitions=rng.choice((1, 2)),
            clients=rng.choice((1, 2)),
            inserts_each=rng.choice((2, 4)),
            rows_max=rng.choice((1, 3)),
            workers=rng.choice((1, 1, 2)),
            mutations=rng.choice((0, 0, 2)),
            outages=rng.choice((0, 0, 2)),
            alters=rng.choice((0, 0, 2)),
            drops=rng.choice((0, 3)),
            swaps=rng.choice((0, 0, 2)),
            between=rng.choice((0, 4)),
            keepings=rng.choice((6, 12)),
        )

    @classmethod
    def _with_leavings(cls, rng: random.Random, apart: random.Random) -> "Size":
        """Which of two equal rows a disk has lost, or a killed mutation has changed, nobody could
        say.
        """
        if apart.random() < UNDONE_RESTORED:
            return replace(
                cls._with_restores(rng),
                undos=apart.choice((3, 6)),
                drops=apart.choice((0, 0, 3)),
                some_live_on=apart.random() < LIVED_THROUGH,
                goes_back=apart.random() < 0.5,
            )
        copies = rng.choice((0, 0, 3))
        drawn = cls(
            hosts=rng.choice((2, 2, 3)),
            partitions=rng.choice((1, 2)),
            clients=rng.choice((1, 2)),
            inserts_each=rng.choice((2, 4)),
            rows_max=rng.choice((1, 3)),
            workers=rng.choice((1, 1, 2)),
            mutations=rng.choice((0, 0, 3)),
            outages=rng.choice((0, 0, 2)),
            losses=0 if copies else rng.choice((0, 0, 3)),
            alters=rng.choice((0, 0, 2)),
            drops=rng.choice((0, 0, 3)),
            quorums=rng.choice((False, False, True)),
            swaps=rng.choice((0, 0, 2)),
            commit_bytes_max=rng.choice((COMMIT_BYTES_MAX, 1, 4000)),
            undos=rng.choice((0, 3, 6)),
            copies=copies,
            ttl=rng.choice((None, None, *TTLS)),
            expiries=rng.choice((0, 2)),
        )
        if drawn.ttl is None and not drawn.copies + drawn.expiries:
            return replace(drawn, value_ttl=apart.choice((None, *VALUE_TTLS)))
        return drawn

    @classmethod
    def _with_removals(cls, rng: random.Random) -> "Size":
        """Of a disk that breaks beside nobody could say what has to be there."""
        return cls(
            hosts=rng.choice((2, 2, 3, 4)),
            partitions=rng.choice((1, 1, 2)),
            clients=rng.choice((1, 2, 4)),
            inserts_each=rng.choice((2, 4)),
            rows_max=rng.choice((1, 3)),
            workers=rng.choice((1, 1, 2)),
            mutations=rng.choice((0, 0, 1, 4)),
            outages=rng.choice((0, 0, 2)),
            alters=rng.choice((0, 0, 3)),
            drops=rng.choice((0, 0, 3)),
            quorums=rng.choice((False, False, True)),
            swaps=rng.choice((0, 0, 3)),
            commit_bytes_max=rng.choice((COMMIT_BYTES_MAX, 1, 4000)),
            removals=rng.choice((1, 2, 3)),
        )
