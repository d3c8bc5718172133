"""The order in which the original goes through partitions that it keeps in a table of hashes.

OPTIMIZE and TRUNCATE of a whole table write an entry for each partition, and the log has them in
this order there. It says nothing, but recorded logs are compared with ours.
"""

from collections.abc import Sequence

_WORD = (1 << 64) - 1
_FACTOR = 0xC6A4A7935BD1E995
_SEED = 0xC70F6907
# How many buckets an std::unordered_set has while it grows; each is full when it has as many
# elements.
_SIZES = (13, 29, 59, 127, 257, 541, 1109, 2357, 5087, 10273, 20753)
_JAVA_SIZE = 8
_JAVA_LOAD = 0.75


def order_of_optimize(partitions: Sequence[str]) -> list[str]:
    """Return the partitions, given in order, as an std::unordered_set of libstdc++ lists them that
    they are put into one after another.
    """
    listed: list[str] = []
    taken = 0
    for size in _SIZES:
        more = partitions[taken : taken + size - len(listed)]
        taken += len(more)
        buckets: dict[int, list[str]] = {}
        for each in (*listed, *more):
            buckets.setdefault(_murmur_hash(each) % size, []).append(each)
        listed = [each for found in reversed(buckets.values()) for each in reversed(found)]
        if taken == len(partitions):
            return listed
    return list(partitions)


def order_of_truncate(partitions: Sequence[str]) -> list[str]:
    """Return the partitions as ZooKeeper lists their nodes, which are in a HashSet of Java."""
    size = _JAVA_SIZE
    while len(partitions) > size * _JAVA_LOAD:
        size *= 2
    return sorted(partitions, key=lambda name: (_java_hash(name) % size, name))


def _murmur_hash(text: str) -> int:
    """std::hash of a std::string in libstdc++, which is MurmurHash64A."""
    data = text.encode()
    whole = len(data) & ~7
    found = _SEED ^ (len(data) * _FACTOR & _WORD)
    for place in range(0, whole, 8):
        word = int.from_bytes(data[place : place + 8], "little") * _FACTOR & _WORD
        found = (found ^ (_mixed(word) * _FACTOR & _WORD)) * _FACTOR & _WORD
    if len(data) > whole:
        rest = int.from_bytes(data[whole:], "little")
        found = (found ^ rest) * _FACTOR & _WORD
    return _mixed(_mixed(found) * _FACTOR & _WORD)


def _mixed(number: int) -> int:
    return number ^ (number >> 47)


def _java_hash(text: str) -> int:
    """What a Java HashMap makes of a String's hashCode."""
    found = 0
    for character in text:
        found = (found * 31 + ord(character)) & 0xFFFFFFFF
    return found ^ (found >> 16)
