"""Hypothesis strategies for the values of the protocol."""

from dataclasses import dataclass, field

from hypothesis import strategies as st

from rmt_pipeline.protocol.log.entry import (
    AlterMetadata,
    AttachPart,
    DropPart,
    DropRange,
    GetPart,
    LogEntry,
    MergeParts,
    MutatePart,
    ReplaceRange,
)
from rmt_pipeline.protocol.parts.name import PartName, drop_range, merged, mutated
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.text import TIME_MAX

partitions = st.text("abcXYZ019-", min_size=1, max_size=8)
numbers = st.integers(0, 2**31)
replica_names = st.text(
    st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=8
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
times = st.integers(0, TIME_MAX)


@st.composite
def part_names(draw: st.DrawFn) -> PartName:
    """Any name, with numbers up to the largest."""
    first, last = sorted((draw(numbers), draw(numbers)))
    level = draw(st.integers(0, 999_999_998))
    return PartName(draw(partitions), first, last, level, draw(st.integers(0, 2**32 - 1)))


@st.composite
def close_names(draw: st.DrawFn) -> PartName:
    """Names so close to each other that they often contain or overlap each other."""
    small = st.integers(0, 3)
    first, last = sorted((draw(small), draw(small)))
    level = draw(st.sampled_from([0, 1, 2, 999_999_999]))
    return PartName(draw(st.sampled_from("ab")), first, last, level, draw(small))


@dataclass
class History:
    """Every name that one partition's inserts, merges and mutations gave, and the last state."""

    names: list[PartName] = field(default_factory=list)
    active: PartSet = field(default_factory=PartSet)

    def add(self, part: PartName) -> None:
        self.names.append(part)
        self.active.add(part)


@st.composite
def histories(draw: st.DrawFn) -> History:
    history = History()
    number = 0
    for kind in draw(st.lists(st.sampled_from("iiimmu"), max_size=25)):
        members = history.active.in_partition("p")
        if kind == "i":
            number += draw(st.integers(0, 1))  # a number may be given back
            history.add(PartName("p", number, number, 0))
            number += 1
        elif kind == "u":
            for member in members:
                history.add(mutated(member, number))
            number += 1
        elif len(members) > 1:
            begin = draw(st.integers(0, len(members) - 2))
            end = draw(st.integers(begin + 2, len(members)))
            history.add(merged(members[begin:end]))
    return history


@st.composite
def log_entries(draw: st.DrawFn) -> LogEntry:
    header = {
        "create_time": draw(times),
        "source_replica": draw(replica_names),
        "block_id": draw(texts),
        "entry_id": draw(texts),
        "quorum": draw(st.integers(0, 3)),
    }
    part = draw(part_names())
    other = PartName(part.partition, part.block_max + 1, part.block_max + 1, 0)
    fake = drop_range(part.partition, part.block_max + 2)
    single = PartName(part.partition, 0, 0, 0)
    columns = draw(st.lists(texts, max_size=3).map(tuple))
    flag = draw(st.booleans())
    match draw(st.integers(0, 7)):
        case 0:
            return GetPart(part, **header)
        case 1:
            return AttachPart(part, "0123456789ABCDEF" * 2, **header)
        case 2:
            kind = draw(st.sampled_from([1, 2, 3]))
            sources = (part, other)
            return MergeParts(
                sources,
                merged(list(sources)),
                bool(columns) or flag,
                columns,
                kind,
                flag,
                **header,
            )
        case 3:
            version = part.data_version + 1
            source = part if version < 2**32 else single
            result = mutated(source, source.data_version + 1)
            return MutatePart(source, result, draw(st.integers(-1, 2**31 - 1)), **header)
        case 4:
            return DropRange(fake, flag, **header)
        case 5:
            return DropPart(part, flag, **header)
        case 6:
            new = tuple(draw(st.lists(part_names(), max_size=3)))
            names = tuple(draw(texts) for _ in new)
            return ReplaceRange(
                fake if flag else single,
                draw(texts),
                draw(texts),
                names,
                new,
                names,
                -1,
                **header,
            )
        case _:
            version = draw(st.integers(0, 2**31 - 1))
            return AlterMetadata(version, flag, draw(texts), draw(texts), **header)
