"""A job expects the pauses that are usual on its cluster until it has measured its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from dlrover_nb.core.structs.decisions.decisions import Verdict
from dlrover_nb.core.structs.views.past_jobs import FitSummary

if TYPE_CHECKING:
    from dlrover_nb.core.structs.plan.resources import ResourcePlan


def test_the_usual_pause_of_each_kind_is_expected_then_the_jobs_own(make_job, kinds):
    job = make_job(pauses=(("moves seamless", 40.0), ("workers", 3.0)))
    first = job.spec.plan
    more_workers = replace(first, worker=replace(first.worker, count=first.worker.count + 1))
    more_ps = replace(first, ps=replace(first.ps, count=first.ps.count + 1))
    orders = job.train(60)

    def expected(plan: ResourcePlan) -> float:
        (weighed,) = job.controller.queries().weigh((plan,))
        return weighed.candidate.transition_s

    assert (expected(more_workers), expected(more_ps)) == (pytest.approx(3.0), pytest.approx(40.0))
    job.obey(job.decide(Verdict.SCALE, plan=more_ps))
    orders += job.train(60)
    assert expected(first) == pytest.approx(1.0), "what it has measured itself"
    assert kinds(orders, FitSummary)[-1].pauses == (("moves seamless", 1.0),)
