"""Which decision can be undone, and the decision that undoes it.

Undo is a decision like any other: to the plan, the mode, the pins, or the sizes and rates of workers that
held before, with the id of what it undoes. So it is checked, journaled, reported and applied as every
decision is, and an undo of an undo is a redo. Only the latest change can be undone, by any user or auto mode:
later changes were decided on the basis of earlier ones. Rejected: a stack as in an editor, where repeated
undo goes back hours and reverts the decisions of other people.

A change that could not be applied leaves nothing to undo, and the one before it is the latest. A restart of a
node or a move of its parameters cannot be undone: it leaves the log as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.controller.state.record_lists import append
from dlrover_nb.core.errors import InvalidValueError, NotFoundError, StaleDecisionError
from dlrover_nb.core.structs.decisions.actions import ActionChoice, named
from dlrover_nb.core.structs.decisions.decisions import FIRST_VERSION, Decision, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.structs.decisions.actions import Action
    from dlrover_nb.core.structs.job.spec_choices import Mode
    from dlrover_nb.core.structs.plan.bounds import Pins
    from dlrover_nb.core.structs.plan.resources import ResourcePlan


@dataclass(frozen=True, slots=True)
class UndoableChange:
    """A decision that changed something, and the decision that undoes it (without an author yet)."""

    decision: Decision
    back: Decision


class UndoLog:
    """Changes by decisions, oldest first; those that were not applied are left out."""

    def __init__(self) -> None:
        self._all: list[UndoableChange] = []

    @property
    def all(self) -> tuple[UndoableChange, ...]:
        """The newest changes, oldest first; the last one can be undone."""
        return tuple(self._all)

    @property
    def undo(self) -> Decision | None:
        """The decision that undoes the latest change; None where there is none."""
        return self._all[-1].back if self._all else None

    def acted(self, decision: Decision, inverse: Action | None) -> None:
        """Record a decision on an action against stragglers; one that nothing takes back is left out."""
        if inverse is not None:
            back = ActionChoice.of(inverse)
            undo = Decision(Verdict.MITIGATE, "", decision.at_s, action=back, undoes=decision.id)
            append(self._all, UndoableChange(decision, undo))

    def forget_node(self, node: str) -> None:
        """Remove changes of a node that has left: nothing of it can be set back."""
        self._all = [change for change in self._all if node not in _named(change.back)]

    def made(
        self,
        decision: Decision,
        *,
        plan: ResourcePlan,
        mode: Mode,
        pins: Pins,
        budget_total: float | None = None,
    ) -> None:
        """Record a decision and the state before it; one that changes none of it (REJECT) is left out."""
        match decision.verdict:
            case Verdict.MODE:
                back = Decision(Verdict.MODE, "", decision.at_s, mode=mode, undoes=decision.id)
            case Verdict.PIN:
                back = Decision(Verdict.PIN, "", decision.at_s, pins=pins, undoes=decision.id)
            case Verdict.BUDGET:
                back = Decision(
                    Verdict.BUDGET, "", decision.at_s, budget_total=budget_total, undoes=decision.id
                )
            case verdict if verdict.sets_plan:
                back = Decision(Verdict.SCALE, "", decision.at_s, plan=plan, undoes=decision.id)
            case _:
                return
        append(self._all, UndoableChange(decision, back))

    def fell_through(self, decision: str) -> None:
        """Remove a change of plan, or an action, that could not be applied: there is nothing to undo."""
        self._all = [change for change in self._all if change.decision.id != decision]

    def forget_plans(self) -> None:
        """Remove changes of plan: a plan runs without a decision, so they cannot be undone."""
        self._all = [change for change in self._all if change.back.plan is None]


def _named(back: Decision) -> frozenset[str]:
    return frozenset() if back.action is None else named(back.action.action)


def check_undo(decision: Decision, changes: Sequence[UndoableChange], job: str) -> None:
    """Refuse to undo anything but the latest change; a decision that is no undo passes.

    Raises
    ------
    NotFoundError
        When there is nothing to undo, or no such decision.
    StaleDecisionError
        When something was changed since; it names who did what.
    InvalidValueError
        When it does not restore the state before.
    """
    if not decision.undoes:
        return
    ids = [change.decision.id for change in changes]
    if not ids:
        raise NotFoundError(nothing_to_undo(job))
    if decision.undoes not in ids:
        raise NotFoundError(
            f"job {job} has no change {decision.undoes} to undo (latest: {ids[-1]}); "
            "a change that was not applied needs no undo"
        )
    later = [change.decision for change in changes[ids.index(decision.undoes) + 1 :]]
    if later:
        since = ", then ".join(f"{d.id} ({d.words} by {d.by})" for d in later)
        raise StaleDecisionError(
            f"only the latest change of job {job} can be undone, and {decision.undoes} was followed by "
            f"{since}; undo {later[-1].id} first, or set what you want"
        )
    back = changes[-1].back
    request = (decision.verdict, decision.plan, decision.mode, decision.pins, decision.action)
    if request != (back.verdict, back.plan, back.mode, back.pins, back.action):
        raise InvalidValueError(
            f"to undo {decision.undoes} means: {back.words}, got: {decision.words}; ask for the undo alone"
        )


def check_version(decision: Decision, changes: Sequence[UndoableChange], job: str) -> None:
    """Refuse a decision of a user who saw another plan, mode or pins than those of now.

    Raises
    ------
    StaleDecisionError
        When something was changed since; it names who did what.
    """
    newest = changes[-1].decision.id if changes else FIRST_VERSION
    if decision.seen in {"", newest}:
        return
    ids = [change.decision.id for change in changes]
    start = ids.index(decision.seen) + 1 if decision.seen in ids else 0
    since = ", then ".join(
        f"{change.decision.id} ({change.decision.words} by {change.decision.by})"
        for change in changes[start:]
    )
    came = f"since then it had {since}" if since else "that change was undone or never applied"
    raise StaleDecisionError(
        f"job {job} has changed since you looked (you saw {decision.seen}, and decided: {decision.words}): "
        f"{came}; look at it again, then decide"
    )


def nothing_to_undo(job: str) -> str:
    """Say that nothing can be undone."""
    return f"job {job} has nothing to undo: its plan, mode and pins were never changed"
