"""Ids of blocks and inserts (spec §2.3)."""

from rmt_pipeline.protocol.inserts.ids import (
    BY_ROWS,
    HASH_MAX,
    block_id,
    insert_id_of_parts,
    insert_id_of_rows,
    insert_id_of_token,
    token_block_id,
)


def test_a_block_id_is_the_partition_and_both_halves_of_the_hash() -> None:
    """P6."""
    assert block_id("202105", (7 << 64) + 5) == "202105_5_7"
    assert block_id("all", 2**128 - 1) == f"all_{2**64 - 1}_{2**64 - 1}"


def test_a_token_names_partition_and_ordinal_apart() -> None:
    """P6. Same token, partition and ordinal: a duplicate. Anything else: another block."""
    ids = {
        token_block_id(partition, token, ordinal)
        for partition in ("a", "b")
        for token in ("t", "1:t", "")
        for ordinal in (0, 1, 11)
    }
    assert len(ids) == 18
    assert token_block_id("a", "t", 1) == token_block_id("a", "t", 1)


def test_ids_never_change_from_one_version_to_the_next() -> None:
    """P6. They are kept in ZooKeeper: another hash would let a retry in again."""
    assert token_block_id("p", "token", 3) == "p_16877807421407444054_5171150746060585351"
    assert insert_id_of_token("token") == "token-757f4ba00a1879ffb8c06afd8804ecb7"


def test_what_parts_say_of_their_insert() -> None:
    assert insert_id_of_parts("token", deduplicate=True) == insert_id_of_token("token")
    assert insert_id_of_parts("", deduplicate=True) == BY_ROWS
    assert insert_id_of_parts("token", deduplicate=False) == ""
    assert insert_id_of_parts("", deduplicate=False) == ""


def test_an_insert_by_rows_and_one_by_token_can_not_meet() -> None:
    """P6."""
    by_rows = insert_id_of_rows(0xAB, 3)
    assert by_rows == "rows-000000000000000000000000000000ab-3"
    assert insert_id_of_token(by_rows) != by_rows
    assert insert_id_of_rows(HASH_MAX, 1) == f"rows-{'f' * 32}-1"
    assert insert_id_of_rows(0, 0) != insert_id_of_rows(0, 1)
