import pytest

from tests.support.databases import Site


@pytest.fixture
def site(tmp_path, monkeypatch) -> Site:
    """Servers in this process, for a Replicated database."""
    return Site(tmp_path, monkeypatch)
