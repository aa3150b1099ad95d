"""The way to the database: opening, upserting, and telling a person what to do when it does not work.

SQLite is opened anew for each statement group (no pool): a connection costs some hundred microseconds, a
master writes a few records a minute, and nothing is left open across forks and threads. Write-ahead logging
and a busy time-out let several masters and readers share one file.
"""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs
from sqlalchemy import Engine, create_engine, event, make_url, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateIndex, CreateTable

from dlrover_nb.core.errors import BackendError, InvalidValueError
from dlrover_nb.core.history.tables import SCHEMA_VERSION, metadata, versions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlalchemy import Table
    from sqlalchemy.engine import URL
    from sqlalchemy.engine.interfaces import DBAPIConnection
    from sqlalchemy.pool import ConnectionPoolEntry

BUSY_S = 15.0  # to wait for another writer's lock


def default_url() -> str:
    """Return the URL of the user's own history file."""
    return f"sqlite:///{Path(platformdirs.user_data_dir('dlrover-nb')) / 'history.db'}"


class Database:
    """One database with our schema in it.

    Parameters
    ----------
    url
        SQLAlchemy URL of SQLite or PostgreSQL.

    Raises
    ------
    InvalidValueError
        When the URL is of no database that we know.
    BackendError
        When it cannot be opened, or another version of this software made its tables.
    """

    def __init__(self, url: str) -> None:
        self._url = _parse(url)
        with self.told("open"):
            self._engine = _engine(self._url)
            self._create()

    @contextmanager
    def told(self, what: str) -> Iterator[None]:
        """Turn errors of the database into ours, with what to do."""
        try:
            yield
        except (SQLAlchemyError, OSError) as error:
            raise BackendError(f"the history must let us {what}, got: {self._cause(error)}") from error

    def _cause(self, error: Exception) -> str:
        text = " ".join(str(getattr(error, "orig", None) or error).split())
        if "locked" in text:
            advice = f"another process keeps it locked for over {BUSY_S:g} s; end it, or use another file"
        elif "not a database" in text or "malformed" in text:
            advice = "the file is damaged; move it away to start a new history, or restore it from a backup"
        else:
            advice = "check the address, that it may be written, and that there is room"
        return f"{text} ({self._url.render_as_string(hide_password=True)}); {advice}"

    def upsert(self, table: Table, row: Mapping[str, object], *, update: bool = False) -> None:
        """Insert a row; where its key is there already, update it or leave it alone."""
        keys = [column.name for column in table.primary_key]
        dialect = postgresql if self._url.get_backend_name() == "postgresql" else sqlite
        insert = dialect.insert(table).values(dict(row))
        change = {name: value for name, value in row.items() if name not in keys}
        statement = (
            insert.on_conflict_do_update(index_elements=keys, set_=change)
            if update
            else insert.on_conflict_do_nothing(index_elements=keys)
        )
        with self.told("write"), self._engine.begin() as connection:
            connection.execute(statement)

    def rows(self, statement: Any) -> list[Any]:  # noqa: ANN401 - rows of a Select have no useful static type
        """Run a query and return its rows."""
        with self.told("read"), self._engine.connect() as connection:
            return list(connection.execute(statement).all())

    def close(self) -> None:
        """Let go of all connections."""
        self._engine.dispose()

    def _create(self) -> None:
        with self._engine.begin() as connection:
            for table in metadata.sorted_tables:
                connection.execute(CreateTable(table, if_not_exists=True))
                for index in sorted(table.indexes, key=lambda i: str(i.name)):
                    connection.execute(CreateIndex(index, if_not_exists=True))
        found = [row[0] for row in self.rows(select(versions.c.version))]
        if not found:
            self.upsert(versions, {"version": SCHEMA_VERSION})
        elif max(found) != SCHEMA_VERSION:
            raise BackendError(
                f"the history at {self._url.render_as_string(hide_password=True)} must have schema version "
                f"{SCHEMA_VERSION}, got {max(found)}; use the release that wrote it, or another file"
            )


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise InvalidValueError(
            f"history URL must be like sqlite:////path/history.db or postgresql://host/name, got {url!r}"
        ) from error
    if parsed.get_backend_name() not in {"sqlite", "postgresql"}:
        raise InvalidValueError(f"history must be in sqlite or postgresql, got {parsed.drivername!r}")
    return parsed


def _engine(url: URL) -> Engine:
    if url.get_backend_name() != "sqlite":
        try:
            return create_engine(url, pool_pre_ping=True)
        except (NoSuchModuleError, ModuleNotFoundError) as error:
            raise InvalidValueError(
                f"{url.drivername} needs a driver ({error}); pip install psycopg2-binary"
            ) from error
    if not url.database or url.database == ":memory:":
        raise InvalidValueError("history must outlive the process, got SQLite in memory; name a file")
    Path(url.database).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    engine = create_engine(url, poolclass=NullPool, connect_args={"timeout": BUSY_S})
    event.listen(engine, "connect", _prepare)
    return engine


def _prepare(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    try:
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.execute("PRAGMA synchronous = NORMAL")
        cursor.execute("PRAGMA journal_mode")
        row = cursor.fetchone()
        if row is not None and row[0] != "wal":
            _use_wal(cursor)
    finally:
        cursor.close()


def _use_wal(cursor: Any) -> None:  # noqa: ANN401 - a cursor of whichever driver
    """Switch the file to write-ahead logging; a lock means that another process is just doing so."""
    with suppress(sqlite3.OperationalError):
        cursor.execute("PRAGMA journal_mode = WAL")
