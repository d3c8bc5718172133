"""CityHash64 of version 1.0.2, one text for each way in which it treats lengths. That it is the
original's is shown against ClickHouse itself, by `tests/contract/test_hashes_against_chdb.py`.
"""

import hashlib

from rmt_pipeline.protocol.city_hash import city_hash_64

KNOWN = {
    0: 0x9AE16A3B2F90404F,
    1: 0x85F654E398E757C,
    3: 0x14B31166FC997D8A,
    4: 0x6609A83C379622D3,
    8: 0xA942DFF096E75F1C,
    9: 0x56CAFE716D5B4721,
    16: 0xB710611FED5264B4,
    17: 0x8C1A51DA5EBC4A0,
    32: 0xA58811448A3B45A5,
    33: 0x58F3EFAF5F59195A,
    64: 0x4575FA7BA531CF91,
    65: 0xD698166F7B5AADEA,
    128: 0xA05D38EEC3BADF96,
    129: 0x562A747F77A07219,
    200: 0xF9BE28944DE5FE54,
}


def test_known_hashes() -> None:
    texts = {size: bytes(at * 37 % 251 for at in range(size)) for size in KNOWN}
    assert {size: city_hash_64(text) for size, text in texts.items()} == KNOWN


def test_hashes_of_bytes_that_are_all_alike_and_of_random_ones() -> None:
    """One sum of them all: high bits and carries, which short texts hardly have."""
    digest = hashlib.sha256()
    for size in range(200):
        for text in (b"\xff" * size, hashlib.shake_128(bytes([size])).digest(size)):
            digest.update(city_hash_64(text).to_bytes(8))
    assert (
        digest.hexdigest() == "3e731e29ecb5bc92d4909a97b8fd9f242a500ef925a7088f24c1c2326eac5658"
    )
