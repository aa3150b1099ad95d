"""What in a job's numbers is probably a slip is asked at its start."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.api.views.job_views import SubmittedView
from dlrover_nb.core.structs.job.cautions import cautions
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Device
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

SMALL = ResourcePlan(RolePlan(1, 0.5, 64), RolePlan(1, 0.5, 512))
TWO_GPUS = ResourcePlan(RolePlan(1, 0.5, 512, 2), RolePlan(1, 0.5, 512))


@pytest.mark.parametrize(
    ("spec", "n_train", "question"),
    [
        (JobSpec("x", batch_size=1_000_000), 54_000, "more than all 54,000 rows, so each epoch is one step"),
        (JobSpec("x", batch_size=10_000, n_epoch=2), 54_000, "makes 12 steps in the whole job"),
        (JobSpec("x", global_batch=60_000), 54_000, "--global-batch of at most 2,700"),
        (JobSpec("x", plan=TWO_GPUS), 54_000, "A worker computes on one GPU and has 2"),
        (JobSpec("x", plan=TWO_GPUS, device=Device.CPU), 54_000, "has 2 GPUs and computes on its cores"),
        (JobSpec("x", plan=SMALL), None, "64 MiB are less than a worker takes before it has any data"),
    ],
)
def test_a_slip_is_asked_about_with_what_to_do(spec, n_train, question):
    (asked,) = cautions(spec, n_train)
    assert question in asked
    assert "Is that intended? --" in asked
    if n_train is None:
        assert question in " ".join(str(SubmittedView(spec)).split())


def test_usual_jobs_are_asked_nothing():
    assert cautions(JobSpec("x"), 54_000) == cautions(JobSpec("x", batch_size=1_000_000), None) == ()


@given(st.integers(1, 1 << 20), st.integers(1, 10**7), st.integers(1, 9))
def test_the_batch_that_is_named_is_not_asked_about_again(size, n_train, n_epoch):
    spec = JobSpec("x", batch_size=size, n_epoch=n_epoch)
    for question in cautions(spec, n_train):
        most = int(re.search(r"at most ([\d,]+) ", question)[1].replace(",", ""))
        assert most < size
        assert cautions(replace(spec, batch_size=most), n_train) == ()
