"""The first plan of a job of policy `qore`: sized for its deadline by finished jobs, or left with the reason."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dlrover_nb.core.driver.job_start import InitialPlan
from dlrover_nb.core.driver.own.deadline_start import sized_for_deadline
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.views.past_jobs import JobTraits, PastJob, SeriesRow

ROOM = Capacity((NodeShape(64.0, 1 << 18, 4),))
PLAN = ResourcePlan(RolePlan(2, 2.0, 2048), RolePlan(1, 2.0, 2048))
TRAITS = JobTraits("wide_deep", 10, 80, 10_000, 4_000_000, batch_size=256, n_sample=2_560_000, name="clicks")
SPEC = JobSpec(
    "clicks",
    plan=PLAN,
    policy="qore",
    warm_start=True,
    batch_size=256,
    deadline_s=2000.0,
    bounds=PlanBounds(16, 8, (2.0,), (2.0,)),
)
BEGUN = InitialPlan(SPEC, TRAITS, None, "Starts as asked.")


def iter_s(n_worker: int, n_ps: int) -> float:
    return 0.5 + 0.05 * n_worker / n_ps


def examples(n: int = 24, seed: int = 1):
    """Return finished jobs, each of which trained with four pairs of counts."""
    rng, found = np.random.default_rng(seed), []
    for i in range(n):
        batch = int(rng.choice([128, 256, 512]))
        traits = replace(TRAITS, name=f"past-{i}", batch_size=batch, dense_bytes=int(rng.uniform(2e6, 8e6)))
        series = []
        for at_s, w in enumerate(rng.permutation(np.arange(1, 17))[:4].tolist()):
            for n_ps in (max(w // 2, 1), max(w // 4, 1)):
                speed = w * batch / (iter_s(w, n_ps) * float(rng.lognormal(0, 0.02)))
                mib = 400.0 + batch + 8.0 * float(rng.uniform(0.97, 1.03)), 300.0 + 300.0 / n_ps
                series.append(SeriesRow(60.0 * at_s, 60.0, speed, w, n_ps, *mib, 2.0, 0.6 / n_ps**0.5))
        found.append((PastJob(traits, PLAN, PLAN), series))
    return found


def alike(n: int = 24):
    """Return finished jobs that all ran on one pair of counts, on nodes that used a part of their cores."""
    rng, jobs = np.random.default_rng(2), []
    for i in range(n):
        batch, w = int(rng.choice([128, 256, 512])), 2 + 2 * (i % 2)
        plan = replace(PLAN, worker=replace(PLAN.worker, count=w))
        traits = replace(TRAITS, name=f"past-{i}", batch_size=batch, dense_bytes=int(rng.uniform(2e6, 8e6)))
        speed = w * batch / (iter_s(w, 1) * float(rng.lognormal(0, 0.02)))
        row = SeriesRow(60.0, 60.0, speed, w, 1, 400.0 + batch, 600.0, 0.002 * batch, 2.0)
        jobs.append((PastJob(traits, plan, plan), [row]))
    return jobs


@pytest.mark.more
def test_it_starts_with_as_many_workers_as_its_deadline_needs_and_says_by_what():
    found = sized_for_deadline(BEGUN, ROOM, examples, 0.0)
    plan, needed = found.spec.plan, 10_000 * iter_s(4, 1) / 2000  # iterations of one worker
    assert (plan.worker.cpu, plan.ps.cpu) == (2.0, 2.0)
    assert 1.2 * 660 <= plan.worker.memory_mib <= 1.2 * 768, "they peaked at 664 MiB"
    assert f"A worker gets {plan.worker.memory_mib} MiB: it should peak at " in found.why
    assert 300 < plan.ps.memory_mib < 900
    assert "stay as they were: cores of a worker and cores of a PS." in found.why, "they used all they had"
    assert needed * 0.9 <= plan.worker.count <= needed * 1.6
    assert 1 <= plan.ps.count <= plan.worker.count
    assert f"Starts with {plan.short}" in found.why
    assert "from 24 finished jobs" in found.why
    sooner = sized_for_deadline(replace(BEGUN, spec=replace(SPEC, deadline_s=1000.0)), ROOM, examples, 0.0)
    assert sooner.spec.plan.worker.count > plan.worker.count


@pytest.mark.more
@pytest.mark.parametrize(
    ("change", "past", "words"),
    [
        ({}, lambda: examples(4), "got 4"),
        ({}, list, "there is no finished job"),
        ({"deadline_s": 20.0}, examples, "up to 16 workers"),
        ({"global_batch": 4096}, examples, "global batch"),
        ({"plan": replace(PLAN, worker=replace(PLAN.worker, cpu=8.0))}, examples, "cores of a worker 8"),
        ({"sync": Sync.ALLREDUCE}, examples, "without parameter servers"),
    ],
)
def test_where_it_cannot_be_known_the_plan_stays_and_the_reason_is_told(change, past, words):
    begun = replace(BEGUN, spec=replace(SPEC, **change))
    found = sized_for_deadline(begun, ROOM, past, 0.0)
    assert found.spec == begun.spec
    assert found.why.startswith("Starts as asked. Not sized for its deadline: ")
    assert words in found.why
    assert f"starts with {begun.spec.plan.short}; plans follow the deadline" in found.why


@pytest.mark.more
def test_deadline_and_passes_are_all_that_a_user_gives():
    """Neither policy nor warm start nor plan is named; the sizes of nodes follow from finished jobs."""
    spec = JobSpec(
        "clicks", batch_size=256, deadline_s=2000.0, bounds=PlanBounds(16, 8, (0.25, 0.5, 1.0, 2.0), (2.0,))
    )
    found = sized_for_deadline(replace(BEGUN, spec=spec), ROOM, alike, 0.0)
    plan = found.spec.plan
    assert (plan.worker.count, plan.worker.cpu) == (4, 1.0), "a worker of this batch uses half a core"
    assert 1.2 * 656 <= plan.worker.memory_mib <= 1.2 * 832, "they peaked at 656 MiB"
    assert (plan.ps.count, plan.ps.cpu) == (1, 2.0), "those of finished jobs used all they had"
    assert "A worker gets 1 cores: it should peak at " in found.why
    assert found.spec.policy == spec.policy


@pytest.mark.parametrize("traits", [{"batch_size": 4096}, {"dense_bytes": 1 << 34}])
def test_a_job_unlike_those_of_the_history_is_not_sized(traits):
    found = sized_for_deadline(replace(BEGUN, traits=replace(TRAITS, **traits)), ROOM, examples, 0.0)
    assert found.spec == SPEC
    assert "unlike the finished jobs" in found.why


@pytest.mark.parametrize("change", [{"policy": "optimus"}, {"deadline_s": None}, {"warm_start": False}])
def test_other_jobs_are_left_alone_and_nothing_is_read_for_them(change):
    begun = replace(BEGUN, spec=replace(SPEC, **change))

    def unread():
        raise AssertionError("the history was read")

    assert sized_for_deadline(begun, ROOM, unread, 0.0) is begun


@pytest.mark.more
def test_pins_of_the_user_hold():
    spec = replace(SPEC, pins=replace(SPEC.pins, workers=3))
    found = sized_for_deadline(replace(BEGUN, spec=spec), ROOM, examples, 0.0)
    assert found.spec.plan.worker.count == 3


def test_a_job_says_why_it_was_not_sized(play):
    job = play(policy="qore", deadline_s=3600.0, warm_start=True)
    assert job.story_has("Not sized for its deadline: there is no finished job to learn from")
    assert job.now.target == job.spec.plan
