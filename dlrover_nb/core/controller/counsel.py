"""What a controller answers at one moment: what a plan would bring, and why one is proposed.

A `Counsel` is frozen like a picture of the job, and taken with it: the analysis that the controller had made
already, and how the job stood. So a question costs the controller nothing, changes nothing, and can be put
from any thread while the job goes on or after it has ended. Rejected: asking the controller itself, which a
slider that moves would keep from its work.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.controller.checks import check_change
from dlrover_nb.core.errors import DlroverError, NotFoundError
from dlrover_nb.core.structs.decisions import ProposalStatus
from dlrover_nb.core.structs.questions import Explanation, Weighed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.controller.checks import Standing
    from dlrover_nb.core.planner import Analysis
    from dlrover_nb.core.structs.decisions import Proposal
    from dlrover_nb.core.structs.resources import ResourcePlan


@dataclass(frozen=True, slots=True)
class Counsel:
    """What was known at one moment, to be asked.

    Parameters
    ----------
    analysis
        The newest one; None before anything was measured.
    standing
        How the job stood.
    proposals
        All so far, oldest first.
    waits
        Why nothing is proposed where no proposal is open, in words.
    """

    analysis: Analysis | None
    standing: Standing
    proposals: tuple[Proposal, ...]
    waits: str = ""

    def weigh(self, plans: Sequence[ResourcePlan]) -> tuple[Weighed, ...]:
        """Say of each plan what it would bring, and why a decision for it would be refused."""
        known = self.analysis.candidates(plans) if self.analysis else (None,) * len(plans)
        return tuple(
            Weighed(plan, candidate, self.refusal(plan)) for plan, candidate in zip(plans, known, strict=True)
        )

    def refusal(self, plan: ResourcePlan) -> str:
        """Return what the controller would say to a user who sets this plan; empty where it would do it."""
        try:
            check_change(plan, self.standing)
        except DlroverError as error:
            return str(error)
        return ""

    def explain(self, proposal: str | None) -> Explanation:
        """Say why a proposal was made (None: the open one; where none is, why there is none).

        Raises
        ------
        NotFoundError
            When there is no proposal of that id.
        """
        found = self._find(proposal)
        if found is not None:
            p, plan = found, found.candidate.plan
            return Explanation(plan, p.id, p.candidate, p.baseline, p.why, flip=p.flip)
        now = self.analysis.current if self.analysis else None
        return Explanation(self.standing.target, None, now, now, self.waits)

    def _find(self, name: str | None) -> Proposal | None:
        """Return the proposal of that id, or the open one."""
        if name is None:
            return next((p for p in self.proposals if p.status is ProposalStatus.PENDING), None)
        found = next((p for p in self.proposals if p.id == name), None)
        if found is None:
            raise NotFoundError(f"job {self.standing.name} has no proposal {name!r}; {self._near(name)}")
        return found

    def _near(self, name: str) -> str:
        known = [p.id for p in self.proposals]
        if not known:
            return "it has had none yet"
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or known[-3:]
        return f"near it are {', '.join(near)} ({len(known)} so far)"
