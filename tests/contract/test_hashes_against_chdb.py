"""CityHash64 of the protocol is the original's: with it both choose the same replica to merge."""

import random

import chdb

from rmt_pipeline.protocol.city_hash import city_hash_64
from rmt_pipeline.protocol.sip_hash import sip_hash_of

LENGTHS = (*range(140), 191, 192, 193, 256, 1000)


def test_city_hash_is_the_originals_for_texts_of_all_lengths() -> None:
    letters = random.Random(5)
    texts = ["".join(letters.choices("abcdefgh/_0123456789é", k=length)) for length in LENGTHS]
    values = ",".join(f"('{text}')" for text in texts)
    theirs = chdb.query(f"SELECT cityHash64(x) FROM values('x String', {values})", "TSV")
    assert [city_hash_64(text.encode()) for text in texts] == [
        int(line) for line in str(theirs).split()
    ]


def test_sip_hash_is_the_originals_for_texts_of_all_lengths() -> None:
    letters = random.Random(6)
    texts = ["".join(letters.choices("abcdefgh/_0123456789é", k=length)) for length in LENGTHS]
    values = ",".join(f"('{text}')" for text in texts)
    theirs = chdb.query(f"SELECT sipHash64(x) FROM values('x String', {values})", "TSV")
    assert [_sip_hash(text.encode()) for text in texts] == [
        int(line) for line in str(theirs).split()
    ]


def _sip_hash(data: bytes) -> object:
    return sip_hash_of(
        lambda at, count: int.from_bytes(data[at : at + count], "little"), len(data)
    )
