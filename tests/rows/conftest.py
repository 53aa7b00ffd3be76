"""Small shards, for rows from every kind of source."""

import pytest

from sklearn_balldp.rows import passes


@pytest.fixture
def many_shards(monkeypatch):
    """Shards as of many more rows."""
    monkeypatch.setattr(passes, "SHARD_VALUES", 8000)
    monkeypatch.setattr(passes, "SHARD_ROWS", 512)
