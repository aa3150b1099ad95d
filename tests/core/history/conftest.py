"""One suite, two databases: a SQLite file, and a PostgreSQL server."""

import pytest


@pytest.fixture
def url(database_url):
    """Return the URL of an empty database, of one kind after the other."""
    return database_url
