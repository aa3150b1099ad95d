"""When a job with early stopping is likely to end, by its evaluations so far."""

from __future__ import annotations

from dataclasses import dataclass

from dlrover_nb.core.basics.percents import percent
from dlrover_nb.core.structs.job.early_stopping import NAMES, Metric

BAND = 0.9  # of `StopForecast.low` to `high`


@dataclass(frozen=True, slots=True)
class StopForecast:
    """The predicted end of a job, in training samples from its start.

    Parameters
    ----------
    metric
        Of the rule.
    n_done, n_total, n_pass
        Samples trained so far, those of the job's last pass, and those of one pass.
    at, low, high
        The predicted end, and its 90 % band; all are `n_total` where it is not predictable.
    decline
        Last gain as a share of all that was gained so far: the decline rate of Qore-DL; None: not known yet.
    why_not
        Why it is not predictable; empty: it is.
    """

    metric: Metric
    n_done: int
    n_total: int
    n_pass: int
    at: int
    low: int
    high: int
    decline: float | None = None
    why_not: str = ""

    @property
    def is_early(self) -> bool:
        """Whether the job is likely to end before its last pass."""
        return not self.why_not and self.at < self.n_total

    @property
    def n_sample_left(self) -> int:
        """Samples that are likely to be trained from now on."""
        return max(self.at - self.n_done, 0)

    @property
    def n_more(self) -> int:
        """Samples beyond them at the upper end of the band."""
        return max(self.high - max(self.at, self.n_done), 0)

    @property
    def n_less(self) -> int:
        """Samples fewer than them at the lower end of the band."""
        return max(self.at - max(self.low, self.n_done), 0)

    @property
    def words(self) -> str:
        """The forecast in one line."""
        of = f"{self.n_total / max(self.n_pass, 1):g}"
        name = NAMES[Metric(self.metric)]
        if self.why_not:
            return f"we cannot predict whether it stops before its {of} passes: {self.why_not}"
        low, high = self._passes(self.low), self._passes(self.high)
        band = f"90 % band {low} to {high}, by its {name}"
        rate = "" if self.decline is None else f"; last gain {percent(self.decline, 1)} of all so far"
        if not self.is_early:
            return f"it will probably train all its {of} passes ({band}){rate}"
        return f"will stop after about {self._passes(self.at)} of {of} passes ({band}){rate}"

    def _passes(self, n_sample: int) -> str:
        return f"{n_sample / max(self.n_pass, 1):.1f}"
