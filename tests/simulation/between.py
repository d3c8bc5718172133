"""REPLACE, ATTACH and MOVE PARTITION from one table of a simulated world to its other one, and what
must be true of both at the moment when it happens.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rmt_pipeline.protocol.log.codec import decode
from rmt_pipeline.protocol.log.entry import DropRange, LogEntry, ReplaceRange, drop_range_of
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.partitions.from_path import FetchedInto
from rmt_pipeline.replica.partitions.from_table import Between, Taken
from tests.simulation.dropping import waking
from tests.simulation.ledger import Ledger, inserted_as
from tests.support.cluster import Cluster, Context
from tests.support.fake_keeper import Node

REMEMBERED_S = 60.0  # longer than a statement may be frozen, and its last write under way

Form = Literal["replace", "attach", "move"]
FORMS: tuple[Form, ...] = ("replace", "attach", "move")
ALSO_EMPTY = {"allow_replace_partition_from_empty_source": True}
WAITS = (
    QuerySettings(alter_sync=0, receive_timeout=5, **ALSO_EMPTY),
    QuerySettings(alter_sync=2, receive_timeout=20, **ALSO_EMPTY),
)


@dataclass(slots=True)
class Tables:
    """Rows go from the first to the second. Made after the watchmen of both: when it looks at a
    change, their books have it.
    """

    source: Cluster
    target: Cluster
    sold: Ledger
    """The books of the source."""
    bought: Ledger
    began: list[tuple[float, frozenset[tuple[str, PartName]]]] = field(default_factory=list)
    """When a statement began, and the rows that were in the source then, by their blocks."""
    came: dict[PartName, bool] = field(default_factory=dict)
    """By part of the target: whether it left the source in the same multi."""
    attached: set[str] = field(default_factory=set)
    """Parts of the source that were attached, and not dropped from the target since."""
    unanswered: dict[tuple[str, str], frozenset[PartName]] = field(default_factory=dict)
    """By replica of the target and partition, the blocks of the source that had been dropped when
    the first FETCH began since one was answered.
    """

    def __post_init__(self) -> None:
        self.source.world.zookeeper.on_commit(self._committed)

    def statement(
        self, form: Form, partition: str, query: QuerySettings = WAITS[0]
    ) -> Callable[[Context], None]:
        """What a client's process does, on a server that has both."""

        def run(context: Context) -> None:
            there = context.beside(self.target)
            self.began.append((self.source.world.now_s, self._rows_now(partition)))
            between = Between(there.replica, context.replica, partition, query, waking(context))
            taken: Taken = getattr(between, form)()
            for ledger in (self.sold, self.bought):
                ledger.answer(context.process)
            self.what_was_said_is_true(form, taken)

        return run

    def what_was_said_is_true(self, form: Form, taken: Taken) -> None:
        for part in taken.parts:
            moved = self.came.get(part)
            assert moved == (form == "move"), (
                f"{form} brought {part}, moved in the same multi: {moved}"
            )

    def _rows_now(self, partition: str) -> frozenset[tuple[str, PartName]]:
        """In the log, and not dropped."""
        return frozenset(
            (row, blocks[-1])
            for row, blocks in self.sold.blocks.items()
            if blocks[-1].partition == partition and blocks[-1] not in self.sold.dropped_by
        )

    def _committed(self, before: dict[str, Node | None]) -> None:
        try:
            came = [
                one
                for one in self._logged(self.target, before)
                if isinstance(one, ReplaceRange)
            ]
            left = [
                one for one in self._logged(self.source, before) if isinstance(one, DropRange)
            ]
            for entry in came:
                self._came(entry, left if len(came) == 1 else [])
            self._forget_dropped(self._logged(self.target, before))
        except Exception as error:
            self.source.world.breaks(error)
            raise

    @staticmethod
    def _logged(cluster: Cluster, before: dict[str, Node | None]) -> list[LogEntry]:
        log, nodes = f"{cluster.table.log}/", cluster.world.zookeeper.nodes
        new = [path for path, old in before.items() if old is None and path.startswith(log)]
        return [decode(nodes[path].data) for path in new if path in nodes]

    def _came(self, entry: ReplaceRange, left: Sequence[DropRange]) -> None:
        site = self.target.sites[entry.source_replica]
        texts = [text for part in entry.new_parts for text in site.rows(part)]
        self.came.update(dict.fromkeys(entry.new_parts, bool(left)))
        self.what_comes_was_there(entry, texts)
        if left:
            [dropped] = [one for one in map(drop_range_of, left) if one is not None]
            self.what_leaves_arrives(dropped, texts)
            return
        if drop_range_of(entry) is None:
            self.what_is_attached_comes_once(entry)
        self.what_was_there_before_comes(entry)

    def what_comes_was_there(self, entry: ReplaceRange, texts: Sequence[str]) -> None:
        """Each row as some mutation of the source has left it."""
        for text in texts:
            assert self._was_ever_sold(text), (
                f"{entry} brings {text}, which was never in the source"
            )

    def _was_ever_sold(self, text: str, but: Collection[PartName] = ()) -> bool:
        """In a block that is not among these."""
        row = inserted_as(text)
        return any(
            text in self.sold.forms_ever(row, block)
            for block in self.sold.blocks.get(row, ())
            if block not in but
        )

    def fetching(
        self, replica: str, partition: str
    ) -> Callable[[FetchedInto, Mapping[str, int]], None]:
        """A replica of the target begins to fetch. What is returned is called with its answer, and
        with the rows that are in what it has fetched.

        If an earlier statement, which got no answer, has brought all of it, then this is how the
        source was when that one ran, or later.
        """
        mine = frozenset(self.sold.dropped_by)
        first = self.unanswered.setdefault((replica, partition), mine)

        def answered(fetched: FetchedInto, texts: Mapping[str, int]) -> None:
            self.unanswered.pop((replica, partition), None)
            dropped = first if len(fetched.kept) == len(fetched.parts) else mine
            self.what_is_fetched_was_there_at_once(partition, texts, dropped)

        return answered

    def what_is_fetched_was_there_at_once(
        self, partition: str, texts: Mapping[str, int], dropped: Collection[PartName]
    ) -> None:
        """Each row as some mutation of the source has left it, in a block that had not been
        `dropped` when the statement began; once, but for rows that were attached beside themselves.
        """
        for text, times in texts.items():
            row = inserted_as(text)
            there = [one for one in self.sold.blocks.get(row, ()) if one not in dropped]
            most = len(there) if row in self.sold.arrived else 1
            assert times <= most, f"{text} of {partition} was fetched {times} times"
            assert self._was_ever_sold(text, dropped), (
                f"{text} of {partition} was fetched: it was never in the source, or was dropped "
                "before that"
            )

    def what_leaves_arrives(self, dropped: PartName, texts: Sequence[str]) -> None:
        """D7. A row that was moved is in one of the tables at any moment."""
        arrived = [inserted_as(text) for text in texts]
        gone = {
            row: block
            for row, blocks in self.sold.blocks.items()
            for block in blocks
            if self.sold.dropped_by.get(block) == dropped
        }
        for row, block in gone.items():
            is_deleted = None in self.sold.forms_ever(row, block)
            assert row in arrived or is_deleted, f"{row} left with {dropped}, and is nowhere"
        stays = set(arrived) - gone.keys()
        assert not stays, f"{sorted(stays)} were moved with {dropped}, and are in both tables"

    def what_is_attached_comes_once(self, entry: ReplaceRange) -> None:
        again = self.attached.intersection(entry.source_parts)
        assert not again, f"{sorted(again)} were attached before, and now by {entry}"
        self.attached.update(entry.source_parts)

    def what_was_there_before_comes(self, entry: ReplaceRange) -> None:
        """What the source had when the statement began, unless it was dropped since; also if it was
        inserted again after that, which may be later than the source was read.
        """
        partition = entry.range.partition
        soon_s = self.source.world.now_s - REMEMBERED_S
        rows = [rows for when_s, rows in self.began if when_s >= soon_s]
        assert rows, f"{entry} was asked for by nobody"
        for row, block in frozenset.intersection(*rows) & self._rows_now(partition):
            there = [
                block
                for block in self.bought.blocks.get(row, ())
                if block not in self.bought.dropped_by
            ]
            is_deleted = None in self.sold.forms_ever(row, block)
            assert there or is_deleted, f"{entry} does not bring {row} of {block}"

    def _forget_dropped(self, entries: Sequence[LogEntry]) -> None:
        """What was attached before a range went may be attached again, even if a REPLACE brings it
        at once: what comes in the place of others has no id (spec §9.6).
        """
        for dropped in filter(None, map(drop_range_of, entries)):
            self.attached = {
                name
                for name in self.attached
                if PartName.parse(name).partition != dropped.partition
            }
