"""What a peer sends may be anything: it is a part or Corruption, never another error or a hang."""

import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmt_pipeline.exchange import wire
from rmt_pipeline.exchange.guard import Guard
from rmt_pipeline.exchange.server import exchange_app
from rmt_pipeline.protocol.errors import Corruption, Unavailable
from rmt_pipeline.store.manifest import PartFile
from tests.support import asgi
from tests.support.exchange import SECRET, manifest_of, whole_answer

FILES = {"data-00000.parquet": b"some rows", "data-00001.parquet": b"more"}
PARAMETERS = ["endpoint", "part", "client_protocol_version"]
names = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}", fullmatch=True)


def ask(query: dict[str, str], authorization: str) -> asgi.Answer:
    """Asks a server that has no parts; any error of its own would be raised here."""
    app = exchange_app(
        lambda _: None, Guard((SECRET,)), lambda *_: pytest.fail("nothing is broken")
    )
    return asgi.ask(app, query=query, headers={"Authorization": authorization})


@given(st.dictionaries(st.sampled_from(PARAMETERS) | st.text(max_size=5), st.text(max_size=30)))
def test_any_request_is_refused_in_words(query):
    answer = ask(query, f"Bearer {SECRET}")
    assert answer.status in (400, 404)
    assert answer.text
    assert ask(query, "Bearer x").status == 401


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=80))
def test_only_the_secret_opens(shown):
    assert ask({}, f"Bearer {shown}").status == (400 if shown == SECRET else 401)


class Exactly:
    """Reads from bytes as the client reads from a connection; counts what was asked for."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)
        self.asked_max = 0

    def __call__(self, size: int) -> bytes:
        self.asked_max = max(self.asked_max, size)
        found = self._data.read(size)
        if len(found) < size:
            raise Unavailable("broke off")
        return found


def read_all(read: Exactly) -> dict[str, bytes]:
    manifest, _ = wire.read_head(read)
    found = {}
    for file in manifest.files:
        wire.read_file_head(read, file)
        found[file.name] = read(file.size)
        if read(wire.HASH_BYTES) != wire.hash_of(found[file.name]):
            raise Corruption("hash")
    return found


@given(st.dictionaries(names, st.binary(max_size=300), max_size=4))
def test_a_part_is_read_as_it_was_written(files):
    manifest = manifest_of(files)
    answer = whole_answer(manifest, files)
    assert wire.answer_bytes(manifest.encode(), manifest.files) == len(answer)
    assert read_all(Exactly(answer)) == files


@given(st.binary(max_size=400))
def test_any_bytes_are_no_part(data):
    with pytest.raises((Corruption, Unavailable)):
        read_all(Exactly(data))


@given(st.data())
def test_a_changed_answer_is_noticed_wherever_the_change_is(data):
    answer = bytearray(whole_answer(manifest_of(FILES), FILES))
    place = data.draw(st.integers(0, len(answer) - 1))
    answer[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises((Corruption, Unavailable)):
        read_all(Exactly(bytes(answer)))


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_no_announced_size_makes_us_ask_for_more_than_the_bound(total, files, manifest_bytes):
    read = Exactly(struct.pack("<QQQ", total, files, manifest_bytes) + b"x" * 100)
    with pytest.raises((Corruption, Unavailable)):
        wire.read_head(read)
    assert read.asked_max <= wire.MANIFEST_BYTES_MAX


@given(st.binary(max_size=40))
def test_any_bytes_before_a_file_are_that_file_or_corruption(data):
    file = PartFile("data-00000.parquet", 9, "0" * 64)
    read = Exactly(data)
    if data == wire.encode_file_head(file):
        wire.read_file_head(read, file)
        return
    with pytest.raises((Corruption, Unavailable)):
        wire.read_file_head(read, file)
    assert read.asked_max <= wire.NAME_BYTES_MAX


@given(st.binary(max_size=300))
def test_a_name_is_plain_or_refused(name):
    try:
        text = wire.safe_file_name(name)
    except Corruption:
        return
    assert text.encode() == name
    assert not {"/", "\\", "\0"} & set(text)
    assert not text.startswith(".")
    assert 0 < len(text) <= wire.NAME_BYTES_MAX
