"""Access to the database: open, upsert, and errors that say what to do.

SQLite is opened anew for each statement group (no pool): a connection costs some hundred microseconds, a
master writes a few records a minute, and no connection is open across forks and threads. Write-ahead logging
and a busy time-out let several masters and readers share one file; each writing transaction takes the write
lock when it begins, because one that reads first and writes later cannot wait for another writer.

Other databases than SQLite and PostgreSQL are refused, not used with plain SQL: MySQL's FLOAT holds 24 bits,
too few for a time in seconds, and a database that no test covers should not hold data that cannot be
restored.
"""

from __future__ import annotations

import math
import os
import sqlite3
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from dlrover_nb.core.disk.paths import HISTORY_VAR, own_history
from dlrover_nb.core.errors import BackendError, InvalidValueError
from dlrover_nb.core.history import schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import Executable, Table
    from sqlalchemy.dialects import postgresql
    from sqlalchemy.engine import URL
    from sqlalchemy.engine.interfaces import DBAPIConnection
    from sqlalchemy.pool import ConnectionPoolEntry

BUSY_S = 15.0  # to wait for another writer's lock
CONNECT_S = 10  # to wait for a server, where the URL does not set it


def default_url() -> str:
    """Return the URL that the environment names, else that of the user's own history file."""
    return os.environ.get(HISTORY_VAR) or f"sqlite:///{own_history()}"


def is_there(url: str) -> bool:
    """Whether there is a history at `url`; True for a server, where only a connection could tell.

    Raises
    ------
    InvalidValueError
        When the database of the URL is not supported.
    """
    parsed = _parse(url)
    if parsed.get_backend_name() != "sqlite" or not parsed.database or "uri" in parsed.query:
        return True
    try:
        return Path(parsed.database).stat().st_size > 0  # an empty file is a database without tables
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # opening it raises an error with the reason


class Database:
    """One database with our schema in it.

    Parameters
    ----------
    url
        SQLAlchemy URL of SQLite or PostgreSQL; ``postgresql://`` means the driver psycopg 3.

    Raises
    ------
    InvalidValueError
        When the database of the URL is not supported.
    BackendError
        When it cannot be opened, or a newer release of this software made its tables.
    """

    def __init__(self, url: str) -> None:
        self._url = _parse(url)
        self._is_postgresql = self._url.get_backend_name() == "postgresql"
        with self._translated_errors("open"):
            self._engine = _engine(self._url)
            schema.bring_up_to_date(self._engine, str(self))

    def __str__(self) -> str:
        return self._url.render_as_string(hide_password=True)

    @property
    def is_postgresql(self) -> bool:
        """Whether it is PostgreSQL, else SQLite."""
        return self._is_postgresql

    @contextmanager
    def _translated_errors(self, what: str) -> Iterator[None]:
        """Turn errors of the database into a `BackendError` that says what to do."""
        try:
            yield
        except (SQLAlchemyError, OSError) as error:
            raise BackendError(f"cannot {what} the history: {self._cause(error)}") from error

    def _cause(self, error: Exception) -> str:
        text = " ".join(str(getattr(error, "orig", None) or error).split())
        if "locked" in text:
            advice = f"another process keeps it locked for over {BUSY_S:g} s; end it, or use another file"
        elif "not a database" in text or "malformed" in text:
            advice = "the file is damaged; move it away to start a new history, or restore it from a backup"
        elif "readonly" in text or "Permission denied" in text:
            advice = "it is not writable; change its permissions, or use another address"
        elif "is full" in text or "No space left" in text:
            advice = "free some space; the job continues without its history"
        else:
            advice = "check the address, the write permission, and the free space"
        return f"{text} ({self}); {advice}"

    def upsert(self, table: Table, row: Mapping[str, object], *, update: bool = False) -> None:
        """Insert a row; where its key exists already, update it or keep it.

        Raises
        ------
        InvalidValueError
            When a number in the row is not finite.
        """
        sound = _sound(table, row)
        keys = [column.name for column in table.primary_key]
        change = {name: value for name, value in sound.items() if name not in keys}
        insert = self._insert(table).values(sound)
        statement = (
            insert.on_conflict_do_update(index_elements=keys, set_=change)
            if update
            else insert.on_conflict_do_nothing(index_elements=keys)
        )
        with self.writing() as connection:
            connection.execute(statement)

    def _insert(self, table: Table) -> postgresql.Insert | sqlite.Insert:
        if not self._is_postgresql:
            return sqlite.insert(table)
        from sqlalchemy.dialects import postgresql  # noqa: PLC0415 - a master would start later for it

        return postgresql.insert(table)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open a transaction that may write: all of it happens or nothing."""
        with self._translated_errors("write"), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a transaction that reads, and waits for no writer."""
        with self._translated_errors("read"), self._engine.connect() as connection:
            yield connection.execution_options(**schema.READS)

    def rows(self, statement: Executable) -> Sequence[Any]:
        """Run a query and return its rows."""
        with self.reading() as connection:
            return connection.execute(statement).all()

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


class Store:
    """Records of one kind in the history's database.

    Parameters
    ----------
    url
        Of the database; None for the user's own file.

    Raises
    ------
    BackendError
        When the database cannot be opened, read or written; so does each method.
    """

    def __init__(self, url: str | None = None) -> None:
        self._database = Database(url or default_url())

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def _sound(table: Table, row: Mapping[str, object]) -> dict[str, object]:
    """Return the row as every database accepts it: finite numbers, no NUL, no text longer than its column."""
    return {name: _value(table, name, value) for name, value in row.items()}


def _value(table: Table, name: str, value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidValueError(f"{name} in the history's {table.name} must be finite, got {value}")
    if not isinstance(value, str):
        return value
    column = table.c[name]
    length = None if column.primary_key else getattr(column.type, "length", None)
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}")[:length]


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise InvalidValueError(
            "history URL must be like sqlite:////path/history.db or postgresql://host/name; correct it"
        ) from error
    if parsed.drivername in {
        "postgresql",
        "postgres",
    }:  # the second is the scheme of libpq and of many providers
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() not in {"sqlite", "postgresql"}:
        raise InvalidValueError(
            f"history must be in sqlite or postgresql, got {parsed.drivername!r}; use one of these"
        )
    return parsed


def _engine(url: URL) -> Engine:
    if url.get_backend_name() != "sqlite":
        return _server(url)
    if not url.database or ":memory:" in url.database or url.query.get("mode") == "memory":
        raise InvalidValueError("history must outlive the process, got SQLite in memory; name a file")
    if "uri" not in url.query:  # with file:…?mode=ro&uri=true nothing is created
        Path(url.database).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    engine = create_engine(url, poolclass=NullPool, connect_args={"timeout": BUSY_S})
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


def _server(url: URL) -> Engine:
    limit = {} if "connect_timeout" in url.query else {"connect_timeout": CONNECT_S}
    try:
        return create_engine(url, poolclass=NullPool, connect_args=limit)
    except (NoSuchModuleError, ImportError) as error:
        raise InvalidValueError(
            f'{url.drivername} needs a driver ({error}); pip install "dlrover-nb[postgresql]"'
        ) from error


def _prepare(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # transactions begin in `_begin`, not implicitly in Python
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


def _begin(connection: Connection) -> None:
    """Take the write lock at once, unless the transaction only reads."""
    reads = connection.get_execution_options().keys() >= schema.READS.keys()
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


def _use_wal(cursor: Any) -> None:  # noqa: ANN401 - a cursor of whichever driver
    """Switch the file to write-ahead logging; a lock means that another process is doing so."""
    with suppress(sqlite3.OperationalError):
        cursor.execute("PRAGMA journal_mode = WAL")
