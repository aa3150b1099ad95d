"""What happened, in words, and the proposals with their lives."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.controller.proposals import check_move, move
from dlrover_nb.core.errors import NotFoundError
from dlrover_nb.core.structs.decisions import Proposal, ProposalStatus
from dlrover_nb.core.structs.events import Remember

if TYPE_CHECKING:
    from dlrover_nb.core.planner import Advice
    from dlrover_nb.core.structs.decisions import BreakEven, Candidate
    from dlrover_nb.core.structs.resources import ResourcePlan

NEVER_AGAIN = float("nan")  # as the prediction of a barred plan: no later one differs from it materially
N_LINE = 1000  # lines of story kept; the history keeps everything


class Story:
    """One line per fact, with seconds since the first."""

    def __init__(self) -> None:
        self._began_s: float | None = None
        self._lines: deque[tuple[str, str]] = deque(maxlen=N_LINE)

    def tell(self, at_s: float, text: str, *, about: str = "") -> None:
        """Add a fact; `about` is the id of the proposal that it belongs to."""
        if self._began_s is None:
            self._began_s = at_s
        self._lines.append((about, f"{at_s - self._began_s:+.1f} s  {text}"))

    @property
    def lines(self) -> tuple[str, ...]:
        """All lines, oldest first."""
        return tuple(line for _, line in self._lines)

    def about(self, proposal: str) -> tuple[str, ...]:
        """Return the lines of one proposal."""
        return tuple(line for about, line in self._lines if about == proposal)


class ProposalBook:
    """Proposals of one job in order of birth; every change of status goes through the table.

    Attributes
    ----------
    barred
        Plans not to propose again, with the throughput that was predicted when they were turned down.
    """

    def __init__(self, job: str, story: Story) -> None:
        self._job = job
        self._story = story
        self._proposals: dict[str, Proposal] = {}
        self._open = ""  # id of the one that waits: asked for at every event
        self._told: set[tuple[str, str]] = set()
        self.rejected_plans: dict[ResourcePlan, float] = {}

    @property
    def all(self) -> tuple[Proposal, ...]:
        """All proposals, oldest first."""
        return tuple(self._proposals.values())

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
        found = self._proposals.get(name or "")
        if found is None:
            known = ", ".join(self._proposals) or "none so far"
            raise NotFoundError(
                f"job {self._job} must know the proposal, got {name!r} (known: {known}); see its plans"
            )
        return found

    def check(self, proposal: Proposal, to: ProposalStatus) -> None:
        """Refuse a transition that cannot be, with the proposal's story."""
        check_move(proposal, to, story=self._story.about(proposal.id))

    def add(self, advice: Advice, baseline: Candidate, at_s: float, *, note: str = "") -> Remember:
        """Put advice before the user; no other may be open."""
        assert self.open is None
        proposal = Proposal(
            id=f"p{len(self._proposals) + 1}",
            job=self._job,
            kind=advice.kind,
            candidate=advice.candidate,
            baseline=baseline,
            why=advice.why,
            created_at_s=at_s,
            note=note,
        )
        self._proposals[proposal.id] = proposal
        self._open = proposal.id
        self._story.tell(
            at_s,
            f"{proposal.id} proposed ({advice.kind}): {advice.candidate.plan.short}. {advice.why}"
            + (note and f" ({note})"),
            about=proposal.id,
        )
        return Remember(at_s, proposal)

    def move(self, name: str, to: ProposalStatus, at_s: float, note: str = "") -> Remember:
        """Move a proposal on."""
        before = self.find(name)
        after = move(before, to, at_s=at_s, note=note, story=self._story.about(name))
        self._proposals[name] = after
        if name == self._open:
            self._open = ""
        self._story.tell(at_s, f"{name} is {to}{note and ': ' + note}", about=name)
        return Remember(at_s, after)

    def close_open(self, to: ProposalStatus, at_s: float, note: str) -> tuple[Remember, ...]:
        """Close the open proposal; nothing where none is."""
        return (self.move(self._open, to, at_s, note),) if self.open is not None else ()

    def note(self, text: str, at_s: float) -> tuple[Remember, ...]:
        """Say on the open proposal why it waits, each reason once."""
        proposal = self.open
        if proposal is None or (proposal.id, text) in self._told:
            return ()
        self._told.add((proposal.id, text))
        after = self._proposals[proposal.id] = replace(proposal, note=text)
        self._story.tell(at_s, f"{proposal.id}: {text}", about=proposal.id)
        return (Remember(at_s, after),)

    def explain(self, flip: BreakEven | None, at_s: float) -> tuple[Remember, ...]:
        """Add to the open proposal what would change the planner's mind, if anything would."""
        proposal = self.open
        if proposal is None or flip is None:
            return ()
        after = self._proposals[proposal.id] = replace(proposal, flip=flip)
        self._story.tell(at_s, f"{proposal.id}: {flip.words}", about=proposal.id)
        return (Remember(at_s, after),)
