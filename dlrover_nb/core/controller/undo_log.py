"""Which decision can be taken back, and what takes it back.

Undo is a decision like any other: to the plan, the mode or the pins that held before, with the id of what it
undoes. So it is checked, journalled, told and applied as every decision is, and an undo of an undo is a redo.
Only the latest change can be taken back, whoever made it, auto mode included: what came after an earlier one
was decided in its light. Rejected: a stack as in an editor, where undo after undo leads back hours and
over the decisions of other people.

A change that could not be brought about left nothing to take back, and what came before it is the latest one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError, NotFoundError, StaleDecisionError
from dlrover_nb.core.structs.decisions import Decision, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.structs.bounds import Pins
    from dlrover_nb.core.structs.job import Mode
    from dlrover_nb.core.structs.resources import ResourcePlan


@dataclass(frozen=True, slots=True)
class UndoableChange:
    """A decision that changed something, and the decision that takes it back (by nobody yet)."""

    decision: Decision
    back: Decision


class UndoLog:
    """What decisions changed, oldest first; what was not brought about is left out."""

    def __init__(self) -> None:
        self._all: list[UndoableChange] = []

    @property
    def all(self) -> tuple[UndoableChange, ...]:
        """All that can be told of, oldest first; the last one can be taken back."""
        return tuple(self._all)

    @property
    def undo(self) -> Decision | None:
        """What takes back the latest change; None where nothing can be."""
        return self._all[-1].back if self._all else None

    def made(self, decision: Decision, *, plan: ResourcePlan, mode: Mode, pins: Pins) -> None:
        """Note a decision and what held before it; one that changes nothing of that (REJECT) is left out."""
        match decision.verdict:
            case Verdict.REJECT:
                return
            case Verdict.MODE:
                back = Decision(Verdict.MODE, "", decision.at_s, mode=mode, undoes=decision.id)
            case Verdict.PIN:
                back = Decision(Verdict.PIN, "", decision.at_s, pins=pins, undoes=decision.id)
            case _:
                back = Decision(Verdict.SCALE, "", decision.at_s, plan=plan, undoes=decision.id)
        self._all.append(UndoableChange(decision, back))

    def fell_through(self, decision: str) -> None:
        """Forget a change of plan that could not be brought about: there is nothing to take back."""
        self._all = [change for change in self._all if change.decision.id != decision]

    def forget_plans(self) -> None:
        """Forget changes of plan: one runs that nobody decided on, and there is no way back from it."""
        self._all = [change for change in self._all if change.back.plan is None]


def check_undo(decision: Decision, changes: Sequence[UndoableChange], job: str) -> None:
    """Refuse to take back what is not the latest change; a decision that undoes nothing passes.

    Raises
    ------
    NotFoundError
        When there is nothing to take back, or no such decision.
    StaleDecisionError
        When something was changed since, with who did what.
    InvalidValueError
        When it does not lead back to what held before.
    """
    if not decision.undoes:
        return
    ids = [change.decision.id for change in changes]
    if not ids:
        raise NotFoundError(nothing_to_undo(job))
    if decision.undoes not in ids:
        raise NotFoundError(
            f"job {job} has no change {decision.undoes} to undo, or it was not brought about; "
            f"the latest change is {ids[-1]}"
        )
    later = [change.decision for change in changes[ids.index(decision.undoes) + 1 :]]
    if later:
        since = ", then ".join(f"{d.id} ({d.words} by {d.by})" for d in later)
        raise StaleDecisionError(
            f"{decision.undoes} must be the latest change of job {job} to be undone, but since then came "
            f"{since}; undo {later[-1].id}, or set what you want"
        )
    back = changes[-1].back
    asked = (decision.verdict, decision.plan, decision.mode, decision.pins)
    if asked != (back.verdict, back.plan, back.mode, back.pins):
        raise InvalidValueError(
            f"the undo of {decision.undoes} must be: {back.words}, got: {decision.words}; ask for undo alone"
        )


def nothing_to_undo(job: str) -> str:
    """Say that nothing can be taken back."""
    return f"job {job} has nothing to undo: no decision has changed its plan, its mode or its pins"
