"""One suite, two databases: a SQLite file, and a PostgreSQL server."""

import pytest


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    """Return the URL of an empty database, of one kind after the other."""
    if request.param == "postgresql":
        return request.getfixturevalue("postgresql_url")
    return f"sqlite:///{tmp_path / 'deep' / 'history.db'}"
