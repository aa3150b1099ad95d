"""What jobs hold whose masters do not answer: remembered from the last round that they took part in.

A master that is away for a while, as one that is restarted, is not among the jobs that answer, but its nodes
train on. To take what they hold for free would promise it twice. So what a job held, or was given, in the
last round stays its own until the cluster says that it has ended, or its master was silent for as long as an
allotment lasts: one that is gone for good must not keep others waiting for ever. Rounds are kept with it, so
the next brain knows what this one did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.views.brain import Holding
    from dlrover_nb.core.structs.views.summary import JobSummary

Key = tuple[str, float]  # a job and its start


class Holdings:
    """Remembers what jobs held in the last round.

    Parameters
    ----------
    lasts_s
        For how long it is theirs without a word of them.
    """

    def __init__(self, lasts_s: float) -> None:
        self._lasts_s = lasts_s
        self._by_job: dict[Key, Holding] = {}
        self._silent_since_s: dict[Key, float] = {}

    @property
    def all(self) -> tuple[Holding, ...]:
        """What each job held in the last round."""
        return tuple(self._by_job.values())

    def adopt(self, holdings: Iterable[Holding]) -> None:
        """Add what another brain remembered, of jobs of which this one remembers nothing."""
        self._by_job = {_key(each): each for each in holdings} | self._by_job

    def plan_of(self, job: JobSummary) -> ResourcePlan | None:
        """Return the plan that a job held, or was given, in the last round; None: nothing."""
        holding = self._by_job.get((job.name, job.started_at_s))
        return None if holding is None else holding.plan

    def away(
        self, answered: Collection[JobSummary], all_jobs: Callable[[], Iterable[JobSummary]], now_s: float
    ) -> tuple[Holding, ...]:
        """Return what jobs hold that did not answer and have not ended, by a monotonic clock.

        Parameters
        ----------
        all_jobs
            Returns the jobs of the cluster, without an answer of their masters too; called where one is
            missing.
        """
        names = {job.name for job in answered}
        silent = {key: each for key, each in self._by_job.items() if each.job not in names}
        if silent:
            there = {job.name for job in all_jobs() if not job.phase.is_final}
            silent = {key: each for key, each in silent.items() if each.job in there}
        self._silent_since_s = {key: self._silent_since_s.get(key, now_s) for key in silent}
        return tuple(
            each for key, each in silent.items() if now_s <= self._silent_since_s[key] + self._lasts_s
        )

    def remember(self, holdings: Iterable[Holding]) -> None:
        """Remember what jobs hold from now on."""
        self._by_job = {_key(each): each for each in holdings}


def _key(holding: Holding) -> Key:
    return holding.job, holding.started_at_s
