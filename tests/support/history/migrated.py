"""Empty SQLite files of tests get their tables as the first migration of the run left them.

A migration takes 60 ms of CPU time, its statements take 2 ms, and hundreds of tests open a history of their own. Tests
of the migrations ask for `real_migrations`; databases on a server, and those that have tables, are always migrated.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import inspect

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection

SCHEMA = "dlrover_nb.core.history.schema"
TRANSACTION = ("BEGIN TRANSACTION;", "COMMIT;")  # the store opens and ends its own


class Migrated:
    """Brings an empty SQLite file to the newest schema: at first by a migration, then by what that one made."""

    def __init__(self, migrate: Callable[[Connection, str], None]) -> None:
        self._migrate = migrate
        self._statements: list[str] = []
        self.is_on = True

    def __call__(self, connection: Connection, place: str) -> None:
        """Make the tables."""
        is_empty = connection.dialect.name == "sqlite" and not inspect(connection).get_table_names()
        if self.is_on and is_empty and self._statements:
            for statement in self._statements:
                connection.exec_driver_sql(statement)
            return
        self._migrate(connection, place)
        if is_empty:
            self._statements = _made(connection)


def _made(connection: Connection) -> list[str]:
    """Return the statements that make what a migration has made in an empty file."""
    file: sqlite3.Connection = connection.connection.driver_connection
    return [each for each in file.iterdump() if each not in TRANSACTION]


@pytest.fixture(scope="session", autouse=True)
def migrated() -> Iterator[Migrated | None]:
    """Migrate once, where the tests that were collected have a history."""
    if (schema := sys.modules.get(SCHEMA)) is None:
        yield None
        return
    with pytest.MonkeyPatch.context() as patch:
        once = Migrated(schema._migrate)
        patch.setattr(schema, "_migrate", once)
        yield once


@pytest.fixture
def real_migrations(migrated: Migrated | None) -> Iterator[None]:
    """Migrate each database of a test."""
    assert migrated is not None, "a test of migrations imports the history"
    migrated.is_on = False
    yield
    migrated.is_on = True
