"""Migrate a database to the newest schema when it is first opened.

Opening an up-to-date database is cheap: one query for the revision, and Alembic (a quarter of a second to
import) is not loaded. Otherwise the steps run in one transaction under a lock that other processes
wait for: on PostgreSQL an advisory one, on SQLite the write lock itself, which the transaction takes when
it begins. Both databases undo their DDL, so a crash leaves the old schema or the new one.

A newer schema is refused and not read "as far as possible": partly understood records would become wrong
priors. Release 0.1.0 numbered its only schema in ``schema_version``; its tables are those of revision 0001.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import column, func, inspect, select, table

from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.history.tables import REVISION, VERSION_TABLE, metadata, versions

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

READS = {"dlrover_nb_reads": True}  # execution option of a transaction that writes nothing
FOLDER = Path(__file__).parent / "migrations"
_LOCK_KEY = 0x646C_6E62  # any number that no other program locks; this spells "dlnb"
_TURN = threading.Lock()  # Alembic's context is one for the process


def bring_up_to_date(engine: Engine, place: str) -> None:
    """Migrate where needed; `place` names the database in errors.

    Raises
    ------
    BackendError
        When a newer release, or another program, made the tables.
    """
    with engine.connect() as connection:
        if revision(connection.execution_options(**READS)) == REVISION:
            return
    with _TURN, engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(_LOCK_KEY)))
        version = revision(connection)  # again: another process may have been faster
        _check(connection, version, place)
        if version != REVISION:
            _migrate(connection, place)


def revision(connection: Connection) -> str | None:
    """Return the revision of a database; None where Alembic never migrated it."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    name: str | None = connection.scalar(select(column("version_num")).select_from(table(VERSION_TABLE)))
    return name


def _check(connection: Connection, version: str | None, place: str) -> None:
    if version is None:
        _check_first_release(connection, place)
    elif version > REVISION:
        raise BackendError(
            f"the history at {place} must have schema {REVISION} or an older one, got {version}; "
            "use the release that wrote it or a newer one, or another file"
        )


def _check_first_release(connection: Connection, place: str) -> None:
    """Refuse tables of other programs with the same names, and a number that release 0.1.0 never wrote."""
    inspector = inspect(connection)
    present = [t for t in metadata.sorted_tables if inspector.has_table(t.name)]
    for ours in present:
        names = {c["name"] for c in inspector.get_columns(ours.name)}
        if missing := {c.name for c in ours.primary_key} - names:
            raise BackendError(
                f"the table {ours.name} at {place} must be ours, got one without column "
                f"{', '.join(sorted(missing))}: another program made it; use another database, "
                "or another schema by ?options=-csearch_path%3DNAME"
            )
    number = connection.scalar(select(func.max(versions.c.version))) if versions in present else None
    if number not in {None, 1}:
        raise BackendError(
            f"the history at {place} must have schema version 1, got {number}; use another file"
        )


def _migrate(connection: Connection, place: str) -> None:
    from alembic import command  # noqa: PLC0415 - a quarter of a second, and rarely needed
    from alembic.config import Config  # noqa: PLC0415 - the same
    from alembic.util import CommandError  # noqa: PLC0415 - the same

    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise BackendError(
            f"the history at {place} must migrate to schema {REVISION}, got: {error}; "
            "nothing was changed: install this package again, or use another file"
        ) from error
