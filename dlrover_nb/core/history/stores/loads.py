"""`LoadStore`: the load of clusters over time, in the history's database.

The sampler calls `add` at each interval. Once an hour of the clock, the first `add` also thins what is old,
so that no caller must remember to do it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, delete, func, insert, or_, select

from dlrover_nb.core.history.database import Store
from dlrover_nb.core.history.stores.load_series import ALL, KEPT_S, LEVELS, LoadPoint, points_of, thinned
from dlrover_nb.core.history.tables import cluster_load
from dlrover_nb.core.structs.cluster.cluster_load import Amount

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

    from dlrover_nb.core.structs.cluster.cluster_load import ClusterLoad

THIN_EVERY_S = 3600.0
LONGEST = 128  # characters of the names of clusters and machines
_LOCK = 0x646C_6C64  # of PostgreSQL, any number that no other program locks
_PARTS = ("has", "jobs", "idle", "used")


class LoadStore(Store):
    """Series of the load of clusters."""

    def add(self, load: ClusterLoad, at_s: float) -> int:
        """Write a sample of a cluster, and return how many points were written.

        Nothing is written of a cluster without a place, which is simulated, nor of a moment that is there.
        """
        if not load.place:
            return 0
        place = load.place[:LONGEST]
        with self._database.writing() as connection:
            _keep_others_out(connection, place)
            last_s = connection.scalar(
                select(func.max(cluster_load.c.at_s)).where(
                    cluster_load.c.place == place, cluster_load.c.machine == ALL
                )
            )
            if last_s is not None and last_s >= at_s:
                return 0  # another sampler was faster, or the clock went back
            points = points_of(load, at_s)
            _insert(connection, place, points)
            if last_s is not None and last_s // THIN_EVERY_S != at_s // THIN_EVERY_S:
                _thin(connection, place, last_s, at_s)
        return len(points)

    def between(
        self, place: str, start_s: float, end_s: float, machine: str | None = None
    ) -> tuple[LoadPoint, ...]:
        """Return points of a cluster in a span of time, oldest first.

        Parameters
        ----------
        place
            `ClusterLoad.place`.
        start_s, end_s
            Both ends belong to it.
        machine
            Its name, or `ALL` for all together; None: all points.
        """
        table = cluster_load
        wanted = select(table).where(
            table.c.place == place[:LONGEST], table.c.at_s >= start_s, table.c.at_s <= end_s
        )
        if machine is not None:
            wanted = wanted.where(table.c.machine == machine[:LONGEST])
        rows = self._database.rows(wanted.order_by(table.c.at_s, table.c.machine))
        return tuple(map(_point, rows))


def _thin(connection: Connection, place: str, last_s: float, at_s: float) -> None:
    """Merge the points that came of age since the thinning before, and drop those that are too old.

    That one was at most `THIN_EVERY_S` before the last sample. What was older then is merged already, and is
    not read again: a month of a hundred machines is a million points.
    """
    table, since_s = cluster_load, last_s - THIN_EVERY_S
    mine = table.c.place == place
    connection.execute(delete(table).where(mine, table.c.at_s < at_s - KEPT_S))
    came_of_age = or_(
        *((table.c.at_s >= since_s - age - span) & (table.c.at_s < at_s - age) for age, span in LEVELS)
    )
    before = set(map(_point, connection.execute(select(table).where(mine, came_of_age))))
    after = set(thinned(before, at_s))
    gone = [{"gone": point.machine, "gone_s": point.at_s} for point in before - after]
    if gone:
        point = (table.c.machine == bindparam("gone")) & (table.c.at_s == bindparam("gone_s"))
        connection.execute(delete(table).where(mine, point), gone)
    _insert(connection, place, after - before)


def _insert(connection: Connection, place: str, points: Iterable[LoadPoint]) -> None:
    rows = [_row(place, point) for point in points]
    if rows:
        connection.execute(insert(cluster_load), rows)


def _row(place: str, point: LoadPoint) -> dict[str, object]:
    amounts = (point.has, point.by_jobs, point.idle, point.used)
    row: dict[str, object] = {
        "place": place,
        "machine": point.machine[:LONGEST],
        "at_s": point.at_s,
        "n_sample": point.n_sample,
    }
    for part, amount in zip(_PARTS, amounts, strict=True):
        row[f"{part}_cpu"] = amount.cpu if amount else None
        row[f"{part}_memory_mib"] = amount.memory_mib if amount else None
    return row


def _point(row: Any) -> LoadPoint:  # noqa: ANN401 - a row of whichever driver
    columns = row._mapping  # noqa: SLF001 - the documented way to a row's columns
    amounts = ((columns[f"{part}_cpu"], columns[f"{part}_memory_mib"]) for part in _PARTS)
    has, jobs, idle, used = (
        Amount(cpu, mib) if cpu is not None and mib is not None else None for cpu, mib in amounts
    )
    return LoadPoint(columns["machine"], columns["at_s"], has, jobs, idle, used, columns["n_sample"])


def _keep_others_out(connection: Connection, place: str) -> None:
    """Lock this cluster's series against other samplers; SQLite allows only one writer anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK, func.hashtext(place))))
