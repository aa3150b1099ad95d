"""What a host with other load gives a job of the processors that it wants."""

from __future__ import annotations

from dataclasses import dataclass

from dlrover_nb.core.basics.percents import percent

FELT_SHARE = 0.1  # of an iteration: less is within what windows differ by
LIMITING_SHARE = 0.5  # from here on neither growth nor an experiment tells or helps anything


@dataclass(frozen=True, slots=True)
class HostLoad:
    """The processors of a job on hosts that other work uses too, over its last windows.

    Parameters
    ----------
    share
        Part of an iteration that workers lost to other work, 0 to less than 1.
    given_cores, wanted_cores
        What all its nodes got, and what they would have used for the same work on an idle host.
    weight
        Of its nodes against other processes, in processes: a node counts as one, a larger one as its cores.
    """

    share: float
    given_cores: float
    wanted_cores: float
    weight: float

    @property
    def is_felt(self) -> bool:
        """Whether other work slows the job by more than its windows differ anyway."""
        return self.share >= FELT_SHARE

    @property
    def is_limiting(self) -> bool:
        """Whether other work takes so much that more nodes would not help."""
        return self.share >= LIMITING_SHARE

    @property
    def words(self) -> str:
        """What it means for the job, in one sentence; empty where it is not felt."""
        if not self.is_felt:
            return ""
        text = (
            f"This host is busy with other work: the job gets {self.given_cores:.2g} of the "
            f"{self.wanted_cores:.2g} cores that it could use, and loses {percent(self.share)} of its time"
        )
        return f"{text}. A plan with more nodes would not help." if self.is_limiting else f"{text}."
