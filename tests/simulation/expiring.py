"""TTL of a simulated table: rows expire by their own number and that of their insert; MODIFY TTL,
MATERIALIZE TTL; and OPTIMIZE … DEDUPLICATE, which takes rows away, too.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache

from rmt_pipeline.protocol.alter.commands import ModifyTtl
from rmt_pipeline.protocol.log.entry import MergeParts
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.sql.define.materialize import on_rows
from rmt_pipeline.syntax.mutation import commands_text
from rmt_pipeline.syntax.statements.nodes import MaterializeTtl
from rmt_pipeline.syntax.ttl import parse_ttl
from rmt_pipeline.translate.ttl import table_ttl, ttl_text
from tests.support.cluster import Context, definition_of
from tests.support.sim_rows import COLUMNS
from tests.support.world import EPOCH_S

WAITS = (
    QuerySettings(alter_sync=0),
    QuerySettings(alter_sync=1, receive_timeout=20),
    QuerySettings(alter_sync=2, receive_timeout=20),
)
BY = ((), (), ("partition", "row"))
ROWS_APART_S = 2


@dataclass(frozen=True, slots=True)
class Ttl:
    """By which a row of insert 3, such as `003.a.1`, expires so many times `pace_s` after the world
    began, and a little later the greater its own number is. `spares`: a partition without TTL.
    """

    pace_s: int
    spares: str = ""

    def expires_s(self, row: str) -> int:
        """0: never."""
        number, partition, rest = row.split(".")
        if partition == self.spares:
            return 0
        return int(EPOCH_S) + int(number) * self.pace_s + int(rest[0]) * ROWS_APART_S

    @property
    def text(self) -> str:
        return _text(self)

    @property
    def expression(self) -> str:
        """Of the time alone, as a column has it."""
        return table_ttl(parse_ttl(self.text), COLUMNS)[0].expression


@lru_cache
def _text(ttl: Ttl) -> str:
    """As the table's metadata have it."""
    began = datetime.fromtimestamp(EPOCH_S, UTC).strftime("%Y-%m-%d %H:%M:%S")
    seconds = (
        f"toUInt32(substring(row, 1, 3)) * {ttl.pace_s}"
        f" + toUInt32(substring(row, 7, 1)) * {ROWS_APART_S}"
    )
    given = f"toDateTime('{began}', 'UTC') + toIntervalSecond({seconds})"
    where = f" DELETE WHERE substring(row, 5, 1) != '{ttl.spares}'" if ttl.spares else ""
    return ttl_text(table_ttl(parse_ttl(given + where), COLUMNS))


TTLS = (Ttl(1), Ttl(3), Ttl(1, spares="a"), Ttl(1000))
VALUE_TTLS = (Ttl(1), Ttl(3))


def expires(ttl: Ttl | None, row: str, at_s: float) -> bool:
    return ttl is not None and 0 < ttl.expires_s(row) <= at_s


@dataclass(frozen=True, slots=True)
class Expiry:
    """What MATERIALIZE TTL at that time does to rows."""

    ttl: Ttl
    at_s: int

    def command(self) -> str:
        definition = replace(definition_of("r1"), ttl=self.ttl.text)
        return commands_text(tuple(on_rows(MaterializeTtl(), definition, self.at_s)))

    def is_for(self, row: str) -> bool:
        return expires(self.ttl, row, self.at_s)

    def of(self, row: str) -> str | None:
        return None if self.is_for(row) else row


def modify_ttl(ttl: Ttl) -> ModifyTtl:
    return ModifyTtl(ttl.text)


def deduplicate(
    rng: random.Random, partitions: str, merges: Mapping[PartName, tuple[MergeParts, int]]
) -> Callable[[Context], None]:
    """OPTIMIZE of one partition, or of what is most worth it. `merges`: those in the log."""
    partition, by, query = rng.choice((*partitions, None)), rng.choice(BY), rng.choice(WAITS)
    final = partition is not None and rng.random() < 0.7

    def run(context: Context) -> None:
        results = context.table().optimize(
            partition, final=final, deduplicate=True, deduplicate_by=by, settings=query
        )
        for result in results:
            entry, _ = merges[result]
            assert (entry.deduplicate, entry.deduplicate_by) == (True, by), f"{entry} is logged"

    return run
