"""Records that the tests of the history share."""

from __future__ import annotations

from dlrover_nb.core.structs.decisions.actions import ActionChoice, KillRestart
from dlrover_nb.core.structs.decisions.candidates import Candidate, Prediction, TermShare
from dlrover_nb.core.structs.decisions.decisions import (
    Decision,
    Mitigation,
    Outcome,
    Proposal,
    ProposalKind,
    Verdict,
)
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan, diff
from dlrover_nb.core.structs.views.past_jobs import FitSummary, JobTraits, SeriesRow, TermKnowledge

PLAN = ResourcePlan(RolePlan(1, 0.5, 1024), RolePlan(1, 0.25, 512))
TARGET = ResourcePlan(RolePlan(2, 0.5, 1024), RolePlan(1, 0.25, 512))
BAND = Prediction(100.0, 80.0, 120.0, extrapolates=True)
CANDIDATE = Candidate(
    TARGET, BAND, 0.1, 0.2, 30.0, diff(PLAN, TARGET), 0.5, 40.0, (TermShare("sync", 0.1, 1.0),), "because"
)
SPEC = JobSpec("clicks", owner="ada", plan=PLAN)
PROPOSAL = Proposal("p1", "clicks", ProposalKind.EXPLORE, CANDIDATE, CANDIDATE, "to learn", 20.0)
DECISION = Decision(Verdict.ACCEPT, "ada", 21.0, proposal="p1", why="sounds good", id="d1")
RESTART = ActionChoice.of(KillRestart("worker-0", Role.WORKER))
MITIGATION = Mitigation("m1", "clicks", RESTART, "it is slow", "a start", 25.0, 0.2)
OUTCOME = Outcome("d1", TARGET, BAND, 110.0, 70.0, 5, 22.0, 0.5)
TRAITS = JobTraits("wide_deep", 8, 136, 524_288, 400_000, 512, 2_000_000, "ada", "clicks", "c0ffee")
FIT = FitSummary(40.0, (TermKnowledge("grad", 1e-4, 1e-6, identified=True),), 0.04, 3, 60, 4e5, 136.0, 512)
ROW = SeriesRow(60.0, 60.0, 100.0, 2, 1, 700.0, 300.5, 0.75, 0.25)
