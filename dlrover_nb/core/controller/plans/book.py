"""The proposals of one job, and the plans that are not proposed again."""

from __future__ import annotations

from dataclasses import replace
from math import isnan
from operator import attrgetter
from typing import TYPE_CHECKING

from dlrover_nb.core.controller.plans.proposal_states import check_move, move
from dlrover_nb.core.controller.state.record_lists import N_NEWEST, next_id
from dlrover_nb.core.errors import NotFoundError
from dlrover_nb.core.planner.advising.advice import axes_key
from dlrover_nb.core.structs.decisions.decisions import Proposal, ProposalStatus, Returned
from dlrover_nb.core.structs.views.events import Remember

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.controller.state.story import Story
    from dlrover_nb.core.planner.advising.advice import Advice
    from dlrover_nb.core.structs.decisions.candidates import Candidate
    from dlrover_nb.core.structs.decisions.decisions import BreakEven, Refusal
    from dlrover_nb.core.structs.plan.resources import ResourcePlan

NEVER_AGAIN = float("nan")  # as the prediction of a rejected plan: no later one is better than it


class ProposalBook:
    """Proposals of one job in order of creation; every change of status is checked against the table."""

    def __init__(self, job: str, story: Story) -> None:
        self._job = job
        self._story = story
        self._proposals: dict[str, Proposal] = {}
        self._open = ""  # id of the one that waits: read at every event
        self._noted: set[tuple[str, str]] = set()
        self._rejected: dict[ResourcePlan, float] = {}
        self._refusals: dict[ResourcePlan, Refusal] = {}  # of those that may be proposed again

    @property
    def all(self) -> tuple[Proposal, ...]:
        """The newest proposals, oldest first."""
        return tuple(self._proposals.values())

    @property
    def rejected_plans(self) -> Mapping[ResourcePlan, float]:
        """Plans not to propose again, with the throughput predicted when they were rejected, on an idle host.

        A copy: later events do not change it.
        """
        return dict(self._rejected)

    def reject_plan(self, plan: ResourcePlan, refusal: Refusal | None = None) -> None:
        """Do not propose a plan again until its prediction for an idle host is materially better than then.

        None: never again, as nothing was predicted, or it could not be applied.
        """
        self._rejected[plan] = NEVER_AGAIN if refusal is None else refusal.samples_per_s
        self._refusals.pop(plan, None)
        if refusal is not None:
            self._refusals[plan] = refusal

    def allow_plan(self, plan: ResourcePlan) -> None:
        """Let a rejected plan be proposed again: it was decided for, so the refusal holds no longer."""
        for other, speed in [*self._rejected.items()]:
            if other == plan or (axes_key(other) == axes_key(plan) and not isnan(speed)):
                del self._rejected[other]
                self._refusals.pop(other, None)

    def _returned(self, candidate: Candidate, n_plan: int) -> Returned | None:
        """Return by which evidence a plan comes back; None: it was not refused."""
        of_plan = (r for plan, r in self._refusals.items() if axes_key(plan) == axes_key(candidate.plan))
        refusal = max(of_plan, key=attrgetter("at_s"), default=None)
        if refusal is None:
            return None
        return Returned(refusal, candidate.prediction.without_host.samples_per_s, n_plan)

    @property
    def open(self) -> Proposal | None:
        """The proposal that waits for a decision."""
        return self._proposals.get(self._open)

    def find(self, name: str | None) -> Proposal:
        """Return a proposal by id.

        Raises
        ------
        NotFoundError
            When there is none of that id.
        """
        proposal = self._proposals.get(name or "")
        if proposal is None:
            opened = f"open: {self._open}" if self._open else "none is open"
            raise NotFoundError(f"{self._job} has no proposal {name} ({opened})")
        return proposal

    def check(self, proposal: Proposal, to: ProposalStatus) -> None:
        """Refuse an invalid transition, with the proposal's story."""
        check_move(proposal, to, story=self._story.about(proposal.id))

    def add(
        self, advice: Advice, baseline: Candidate, at_s: float, *, n_plan: int = 0, note: str = ""
    ) -> Remember:
        """Open a proposal with advice; no other may be open.

        Parameters
        ----------
        n_plan
            How many plans are measured.
        """
        assert self.open is None
        returned = self._returned(advice.candidate, n_plan)
        why = advice.why if returned is None else f"{advice.why} {returned.words}"
        proposal = Proposal(
            id=next_id("p", [*self._proposals][-1:]),
            job=self._job,
            kind=advice.kind,
            candidate=advice.candidate,
            baseline=baseline,
            why=why,
            created_at_s=at_s,
            note=note,
            returned=returned,
        )
        self._proposals[proposal.id] = proposal
        self._open = proposal.id
        self._noted.clear()
        if len(self._proposals) > N_NEWEST:
            del self._proposals[next(iter(self._proposals))]
        self._story.add(
            at_s,
            f"{proposal.id} proposed ({advice.kind.words}): {advice.candidate.plan.short}. {why}"
            + (note and f" ({note})"),
            about=proposal.id,
        )
        return Remember(at_s, proposal)

    def move(self, name: str, to: ProposalStatus, at_s: float, note: str = "") -> Remember:
        """Move a proposal to its next status."""
        before = self.find(name)
        after = move(before, to, at_s=at_s, note=note, story=self._story.about(name))
        self._proposals[name] = after
        if name == self._open:
            self._open = ""
        self._story.add(at_s, f"{name} is {to}{note and ': ' + note}", about=name)
        return Remember(at_s, after)

    def close_open(self, to: ProposalStatus, at_s: float, note: str) -> tuple[Remember, ...]:
        """Close the open proposal; nothing where none is."""
        return (self.move(self._open, to, at_s, note),) if self.open is not None else ()

    def note(self, text: str, at_s: float) -> tuple[Remember, ...]:
        """Note on the open proposal why it waits, each reason once."""
        proposal = self.open
        if proposal is None or (proposal.id, text) in self._noted:
            return ()
        self._noted.add((proposal.id, text))
        after = self._proposals[proposal.id] = replace(proposal, note=text)
        self._story.add(at_s, f"{proposal.id}: {text}", about=proposal.id)
        return (Remember(at_s, after),)

    def explain(self, flip: BreakEven | None, at_s: float) -> tuple[Remember, ...]:
        """Add to the open proposal what would change the advice, if anything would."""
        proposal = self.open
        if proposal is None or flip is None:
            return ()
        after = self._proposals[proposal.id] = replace(proposal, flip=flip)
        self._story.add(at_s, f"{proposal.id}: {flip.words}", about=proposal.id)
        return (Remember(at_s, after),)
