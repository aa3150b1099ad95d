"""`LeaseStore`: which of several equal services may act, decided by the database that all of them share.

A lease is held for a time by the clock of the database, as the clocks of the services may differ by hours.
Each change of its holder has a higher term, which goes with all that the holder orders: a receiver of an
order of an earlier term refuses it. So a holder that was stopped for an hour cannot do harm when it wakes.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Float, case, func, insert, literal_column, select, update
from sqlalchemy.exc import IntegrityError

from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.history.database import Store
from dlrover_nb.core.history.tables import leases

POSTGRESQL_NOW = "extract(epoch from clock_timestamp())::double precision"
SQLITE_NOW = "((julianday('now') - 2440587.5) * 86400.0)"


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease: who holds it, in which term, and for how many seconds still."""

    name: str
    holder: str
    term: int
    left_s: float


class LeaseStore(Store):
    """Leases by name."""

    def take(self, name: str, holder: str, lasts_s: float) -> Lease:
        """Take a free lease, or renew one's own; return it as it is then, also where another holds it.

        Raises
        ------
        BackendError
            When the database cannot be written.
        """
        now = self._now()
        is_own, is_over = leases.c.holder == holder, leases.c.until_s <= now
        term = case((is_own & ~is_over, leases.c.term), else_=leases.c.term + 1)
        renewed = (
            update(leases)
            .where(leases.c.name == name, is_own | is_over)
            .values(holder=holder, term=term, until_s=now + lasts_s)
        )
        with self._database.writing() as connection:
            is_known = connection.execute(renewed).rowcount or connection.scalar(
                select(func.count()).select_from(leases).where(leases.c.name == name)
            )
        if not is_known:
            self._begin(name, holder, lasts_s)
        return self._read(name)

    def release(self, name: str, holder: str) -> None:
        """Give up a lease, so that another takes it at once; nothing happens to that of another holder."""
        with self._database.writing() as connection:
            own = (leases.c.name == name) & (leases.c.holder == holder)
            connection.execute(update(leases).where(own).values(until_s=0.0))

    def find(self, name: str) -> Lease | None:
        """Return a lease; None where it was never held."""
        rows = self._database.rows(self._selected(name))
        return Lease(*rows[0]) if rows else None

    def _begin(self, name: str, holder: str, lasts_s: float) -> None:
        """Add the lease, unless another service was faster."""
        first = insert(leases).values(name=name, holder=holder, term=1, until_s=self._now() + lasts_s)
        try:
            with self._database.writing() as connection:
                connection.execute(first)
        except BackendError as error:
            if not isinstance(error.__cause__, IntegrityError):
                raise

    def _read(self, name: str) -> Lease:
        lease = self.find(name)
        assert lease is not None, name
        return lease

    def _selected(self, name: str):  # type: ignore[no-untyped-def]  # noqa: ANN202 - a long generic type
        left_s = leases.c.until_s - self._now()
        return select(leases.c.name, leases.c.holder, leases.c.term, left_s).where(leases.c.name == name)

    def _now(self) -> ColumnElement[float]:
        """Return the database's time in seconds of the epoch."""
        if self._database.is_postgresql:
            return literal_column(POSTGRESQL_NOW, Float)
        return literal_column(SQLITE_NOW, Float)
