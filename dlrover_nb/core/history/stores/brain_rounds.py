"""`RoundStore`: what the brain of each cluster decided, for a week."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete, select

from dlrover_nb.core.codec import to_json
from dlrover_nb.core.history.database import Store
from dlrover_nb.core.history.rows import record_from
from dlrover_nb.core.history.tables import brain_rounds
from dlrover_nb.core.structs.views.brain import BrainRound

if TYPE_CHECKING:
    from collections.abc import Sequence

KEPT_S = 7 * 86_400.0


class RoundStore(Store):
    """Rounds, each with what every job got and why."""

    def add(self, new: BrainRound, *, instead_of: BrainRound | None = None) -> None:
        """Keep a round, in place of another one that says no more; drop those that are older than a week."""
        row = {
            "cluster": new.cluster[:160],
            "term": new.term,
            "number": new.number,
            "at_s": new.at_s,
            "record": to_json(new).decode(),
        }
        self._database.upsert(brain_rounds, row)
        c = brain_rounds.c
        is_out = c.at_s < new.at_s - KEPT_S
        if instead_of is not None:
            is_out |= (c.term == instead_of.term) & (c.number == instead_of.number)
        with self._database.writing() as connection:
            connection.execute(delete(brain_rounds).where(c.cluster == row["cluster"], is_out))

    def recent(self, since_s: float) -> Sequence[BrainRound]:
        """Return the newest round of each cluster, of those since a moment."""
        c = brain_rounds.c
        named = self._database.rows(select(c.cluster).where(c.at_s >= since_s).distinct())
        return tuple(each for row in named for each in self.newest(row.cluster))

    def newest(self, cluster: str, n_most: int = 1) -> Sequence[BrainRound]:
        """Return the newest rounds of a cluster, newest first."""
        c = brain_rounds.c
        wanted = select(c.record).where(c.cluster == cluster[:160]).order_by(c.at_s.desc(), c.number.desc())
        return [record_from(row.record, BrainRound) for row in self._database.rows(wanted.limit(n_most))]
