"""What the operating system tells of us."""

import os

import pytest

from rmt_pipeline.system import account


@pytest.mark.parametrize(("name", "told"), [(b"mel", "mel"), (b"m\xfcller", "m?ller")])
def test_the_name_of_the_account_can_be_written_as_utf8(monkeypatch, name, told):
    """It is in entries of the log."""
    monkeypatch.setenv("LOGNAME", os.fsdecode(name))
    assert account().encode() == told.encode()
