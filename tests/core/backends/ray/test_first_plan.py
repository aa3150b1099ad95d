"""A master on Ray requests nodes early for jobs alone whose first plan cannot become another one."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("ray")

from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.backends.ray.master import starts_as_submitted
from dlrover_nb.core.driver.job_start import initial_plan, traits_of
from dlrover_nb.core.driver.own.deadline_start import sized_for_deadline
from dlrover_nb.core.planner.policies import POLICIES
from dlrover_nb.core.structs.data.features import CategoricalColumn, FeatureSpec
from dlrover_nb.core.structs.job.job import DEFAULT_PLAN, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Admission
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

FEATURES = FeatureSpec("label", (), (CategoricalColumn("c", 0, 64),), n_train=100, n_eval=10)
CAPACITY = Capacity((NodeShape(32.0, 65536),))
OWN = ResourcePlan(RolePlan(2, 0.5, 512), RolePlan(1, 0.5, 512))

specs = st.builds(
    JobSpec,
    name=st.just("ads"),
    plan=st.sampled_from([DEFAULT_PLAN, OWN]),
    policy=st.sampled_from(sorted(POLICIES)),
    bounds=st.sampled_from([PlanBounds(), PlanBounds(quota_cpu=16.0, quota_memory_mib=32768)]),
    deadline_s=st.sampled_from([None, 3600.0]),
    warm_start=st.booleans(),
    admission=st.sampled_from(Admission),
)


@given(spec=specs)
def test_the_first_plan_of_such_a_job_is_the_submitted_one(spec: JobSpec) -> None:
    begun = initial_plan(spec, traits_of(spec, FEATURES), CAPACITY, ())
    first = sized_for_deadline(begun, CAPACITY, lambda: (), 0.0)
    if starts_as_submitted(spec):
        assert first.spec.plan == spec.plan
        assert spec.admission is Admission.AT_ONCE


@pytest.mark.parametrize("plan", [DEFAULT_PLAN, OWN])
def test_a_plain_job_is_such_a_job_and_one_that_starts_warm_or_waits_is_none(plan: ResourcePlan) -> None:
    plain = JobSpec("ads", plan=plan)
    assert starts_as_submitted(plain)
    assert not starts_as_submitted(replace(plain, warm_start=True))
    assert not starts_as_submitted(replace(plain, admission=Admission.QUEUE))


def test_a_small_start_is_another_plan_so_its_job_is_none() -> None:
    bounds = PlanBounds(quota_cpu=16.0, quota_memory_mib=32768)
    small = JobSpec("ads", policy="nearchus", bounds=bounds)
    assert initial_plan(small, traits_of(small, FEATURES), CAPACITY, ()).spec.plan != small.plan
    assert not starts_as_submitted(small)
