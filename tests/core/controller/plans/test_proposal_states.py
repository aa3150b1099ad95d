from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from support.cases import for_each

from dlrover_nb.core.controller.plans.proposal_states import TRANSITIONS, is_closed, move
from dlrover_nb.core.errors import StaleDecisionError
from dlrover_nb.core.structs.decisions.candidates import Candidate, Prediction
from dlrover_nb.core.structs.decisions.decisions import Proposal, ProposalKind, ProposalStatus
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan, ScalePlan

S = ProposalStatus
ALLOWED = {
    (S.PENDING, S.ACCEPTED),
    (S.PENDING, S.OVERRIDDEN),
    (S.PENDING, S.REJECTED),
    (S.PENDING, S.SUPERSEDED),
    (S.PENDING, S.EXPIRED),
    (S.ACCEPTED, S.APPLYING),
    (S.OVERRIDDEN, S.APPLYING),
    (S.APPLYING, S.APPLIED),
    (S.APPLYING, S.FAILED),
}
FORBIDDEN = sorted(set(itertools.product(S, S)) - ALLOWED)


def proposal(status: ProposalStatus) -> Proposal:
    plan = ResourcePlan(RolePlan(1, 1, 512), RolePlan(1, 1, 512))
    candidate = Candidate(plan, Prediction(1, 1, 1, False), 1, 1, None, ScalePlan(), 0, 0, (), "")
    return replace(Proposal("p1", "job", ProposalKind.IMPROVE, candidate, candidate, "", 0.0), status=status)


def test_every_status_has_its_row():
    assert set(TRANSITIONS) == set(S)


@for_each(("before", "after"), sorted(ALLOWED))
def test_allowed_transition_is_made_and_the_proposal_before_is_untouched(before, after):
    old = proposal(before)
    new = move(old, after, at_s=7.0, note="why")
    assert (new.status, new.note, old.status) == (after, "why", before)
    assert new.closed_at_s == (7.0 if is_closed(after) else None)


@for_each(("before", "after"), FORBIDDEN)
def test_forbidden_transition_is_refused_with_the_story(before, after):
    with pytest.raises(StaleDecisionError, match="p1") as caught:
        move(proposal(before), after, at_s=7.0, story=("shown", "gone"))
    assert caught.value.story == ("shown", "gone")


def test_note_is_kept_where_the_next_move_has_none():
    assert move(replace(proposal(S.ACCEPTED), note="by ada"), S.APPLYING, at_s=1).note == "by ada"
