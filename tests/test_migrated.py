"""What is made without a migration is what the migrations make."""

import sqlite3
from contextlib import closing

from dlrover_nb.core.history import HistoryStore


def content(path):
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def test_a_file_is_the_same_with_and_without_a_migration(tmp_path, migrated):
    for name, is_on in (("migrated", False), ("made", True)):
        migrated.is_on = is_on
        HistoryStore(f"sqlite:///{tmp_path / name}").close()
    assert len(content(tmp_path / "migrated")) > 10
    assert content(tmp_path / "made") == content(tmp_path / "migrated")
