"""Parts and their owners, asked by overlap, as a plain list would answer."""

from hypothesis import given
from hypothesis import strategies as st

from rmt_pipeline.protocol.parts.index import PartIndex
from rmt_pipeline.protocol.parts.name import PartName

PARTS = st.builds(
    lambda partition, first, size: PartName(partition, first, first + size, 1),
    st.sampled_from("pq"),
    st.integers(0, 6),
    st.integers(0, 9),
)
NODES = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "add", "remove", "copy"]), PARTS, NODES), max_size=30
)

Pairs = set[tuple[PartName, str]]


def agrees(index: PartIndex, pairs: Pairs, asked: PartName) -> None:
    overlapping = sorted(pair for pair in pairs if not pair[0].disjoint(asked))
    assert sorted(index.overlapping(asked)) == overlapping
    for partition in "pq":
        nodes = {node for part, node in pairs if part.partition == partition}
        assert index.nodes_in(partition) == nodes
        assert index.has_any_in(partition) == bool(nodes)
    assert {part: set(nodes) for part, nodes in index.owners.items()} == {
        part: {node for other, node in pairs if other == part} for part, _ in pairs
    }


@given(STEPS, PARTS)
def test_an_index_and_its_copies_answer_as_plain_lists_would(steps, asked: PartName) -> None:
    """Each copy goes on by itself; so does what it was made of."""
    kept: list[tuple[PartIndex, Pairs]] = [(PartIndex(), set())]
    for number, (step, part, node) in enumerate(steps):
        index, pairs = kept[number % len(kept)]
        if step == "copy":
            kept.append((index.copy(), set(pairs)))
        elif step == "add":
            index.add(part, node)
            pairs.add((part, node))
        else:
            gone = (part, node)
            if pairs and number % 2:  # else it is seldom one that is there
                gone = sorted(pairs)[number % len(pairs)]
            index.remove(*gone)
            pairs.discard(gone)
    for index, pairs in kept:
        agrees(index, pairs, asked)


def test_a_partition_of_which_all_has_gone_is_forgotten_and_may_come_again() -> None:
    index, part = PartIndex(), PartName("p", 1, 1, 0)
    for _ in range(2):
        index.add(part, "a")
        assert index.has_any_in("p")
        index.remove(part, "a")
        assert not index.has_any_in("p")
    assert not index._classes, "an index lives for as long as its table"
    assert not index._own
