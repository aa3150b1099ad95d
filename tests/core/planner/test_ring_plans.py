"""Plans of jobs whose workers sum gradients around a ring: what limits them, and what they can be given."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.cases import for_each

from dlrover_nb.core.master.external.submitted import planned
from dlrover_nb.core.perf.forms import Exchange
from dlrover_nb.core.perf.terms import RING_TERMS
from dlrover_nb.core.planner.advising.explain import marginals
from dlrover_nb.core.planner.analysis import analyse
from dlrover_nb.core.planner.predictions.batch import exchange, mini_batch
from dlrover_nb.core.planner.situation import Situation
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec, Framework
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.training.samples import ProfileSample

ROOMY = Capacity((NodeShape(64.0, 640_000),))


def program(framework: Framework) -> ExternalSpec:
    role = ExternalRole(("python", "train.py"))
    return ExternalSpec(role, 10**6, ps=role, framework=framework)


def plan(n_worker: int, cpu: float = 1.0) -> ResourcePlan:
    return ResourcePlan(RolePlan(n_worker, cpu, 1024), RolePlan(1, 0.5, 512))


def seen(n_worker: int, cpu: float, spec: JobSpec) -> ProfileSample:
    """20 ms of computing by one core, 40 ms around the ring for all but one, 2 ms by each neighbor."""
    iter_s = 0.02 / cpu + 0.04 * (n_worker - 1) / n_worker + 0.002 * (n_worker - 1)
    batch = spec.batch_of(n_worker)
    return ProfileSample(0.0, 2.0, plan(n_worker, cpu), batch, n_worker * batch / iter_s)


def analysed(n_worker: int, **settings):
    bounds = PlanBounds(max_workers=16, max_ps=4, worker_cpus=(0.5, 1.0, 2.0))
    spec = planned(
        JobSpec("x", plan=plan(n_worker), bounds=bounds, foreign=program(Framework.DDP), **settings)
    )
    samples = [seen(n, cpu, spec) for n in (1, 2, 4, 8) for cpu in (0.5, 1.0, 2.0)]
    return analyse(Situation(spec, ROOMY, 1, 1, plan(n_worker), tuple(samples * 3), n_sample_left=10**8))


@for_each(
    ("spec", "is_ring"),
    [
        (JobSpec("x"), False),
        (JobSpec("x", sync=Sync.BSP), False),
        (JobSpec("x", sync=Sync.ALLREDUCE), True),
        (JobSpec("x", foreign=program(Framework.TENSORFLOW)), False),
        (JobSpec("x", foreign=program(Framework.TORCH)), True),
        (JobSpec("x", foreign=program(Framework.DDP)), True),
    ],
)
def test_jobs_without_servers_of_parameters_have_the_form_of_a_ring(spec, is_ring):
    assert (exchange(spec) is Exchange.RING) == is_ring
    assert mini_batch(spec) is None
    assert mini_batch(replace(spec, global_batch=4096)) == (spec.batch_size if is_ring else None)


def test_no_plan_of_a_ring_has_more_than_its_store_and_none_is_explained_by_servers():
    found = analysed(4)
    assert {c.plan.ps for c in found.front.candidates} == {plan(4).ps}
    assert {t.term for c in found.front.candidates for t in c.breakdown} >= set(RING_TERMS)
    words = " ".join(c.reason for c in found.front.candidates)
    assert "PS" not in words.replace("per PS", "")


def test_what_limits_a_large_ring_is_its_communication(words):
    breakdown = {t.term: t.share for t in analysed(8).current.breakdown}
    assert breakdown["ring"] == pytest.approx(0.035 / 0.069, abs=0.08)
    assert breakdown["ring"] > breakdown["gradients"]
    fewer = analysed(8).candidate(plan(1))
    assert fewer.reason == words


def test_a_worker_more_is_worth_less_than_its_share():
    found = analysed(4)
    gains = {m.what: m.samples_per_s for m in marginals(found, plan(4), lambda _: "")}
    now = found.current.prediction.samples_per_s
    assert 0 < gains["1 more worker"] < now / 4


def test_a_worker_more_shortens_no_step_of_a_global_batch_that_it_cannot_share_evenly():
    found = analysed(4, batch_size=512, global_batch=8 * 512)
    computing = {
        n: next(t.seconds for t in found.candidate(plan(n)).breakdown if t.term == "gradients")
        for n in (4, 6, 8)
    }
    assert computing[6] == pytest.approx(computing[4], rel=0.15)  # two mini-batches of eight each, at most
    assert computing[8] < 0.7 * computing[4]
