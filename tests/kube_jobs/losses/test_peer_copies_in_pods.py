"""Pods without a volume: a parameter server that is deleted comes back from the copy that its peer keeps."""

from __future__ import annotations

import shutil

import pytest
from support.kubernetes.jobs_in_pods import FOREVER, assert_exact, job, names_of, trained
from support.waiting import LIMIT_S, until

from dlrover_nb.core.commands.requests import Scale
from dlrover_nb.core.connect import connect
from dlrover_nb.core.structs.job.job import JobSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Migration
from dlrover_nb.core.structs.job.start_from import StartFrom
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

pytestmark = [pytest.mark.kube, pytest.mark.pods, pytest.mark.release]

PLAN = ResourcePlan(worker=RolePlan(1, 0.6, 512), ps=RolePlan(2, 0.2, 256))
STILL = ModelSpec(learning_rate=1e-30)  # smaller than a bit of any trained parameter


@pytest.fixture
def seed(own_home, shared_state):
    """Train a model on this machine, for jobs in pods to begin from."""
    local = connect("local")
    handle = local.submit(JobSpec("seed", n_epoch=1))
    assert handle.wait(LIMIT_S).evaluation.auc > 0.9
    shutil.copytree(handle.snapshot().folder, shared_state / "seed")
    local.shutdown(force=True)
    for each in (shared_state / "seed", *(shared_state / "seed").rglob("*")):
        each.chmod(0o755 if each.is_dir() else 0o644)
    return StartFrom("/seed/seed")


def story(handle):
    return "\n".join(handle.snapshot().story)


def test_a_deleted_ps_comes_back_from_its_peer_with_the_same_bits(place_without_state, seed):
    """Both jobs train with steps too small to change a bit, so a row that came back changed would show."""
    place, still = place_without_state, {"plan": PLAN, "model": STILL, "start_from": seed, "n_epoch": 2}
    spec = job("calm", **still)
    calm = place.cluster.submit(spec).wait(LIMIT_S)
    assert_exact(spec, calm)

    spec = job("lost", **(still | {"n_epoch": 4}))
    handle = place.cluster.submit(spec)
    trained(handle, 30_000)
    place.delete_pod(place.pod_of("lost", "ps-0").metadata.name)
    until(lambda: "ps-0 was lost" in story(handle), what="its loss")
    now = until(
        lambda: (now := handle.snapshot()).running and "ps-2" in names_of(now) and now, what="a successor"
    )
    assert now.train.n_sample_done > 0
    end = handle.wait(LIMIT_S)
    assert_exact(spec, end)
    assert "in memory was loaded from" in story(handle)
    assert "copies of peers" in story(handle)
    assert "kept the copy of ps-0" in story(handle)
    assert end.evaluation == calm.evaluation


def test_a_restart_of_the_ps_goes_through_the_memory_of_those_that_stay(place_without_state):
    place = place_without_state
    first = ResourcePlan(worker=RolePlan(2, 0.4, 640), ps=RolePlan(1, 0.2, 256))
    handle = place.cluster.submit(job("moved", plan=first, n_epoch=FOREVER, migration=Migration.RESTART))
    before = trained(handle, 10_000)
    larger = ResourcePlan(first.worker, RolePlan(2, 0.25, 320))
    handle.decide(Scale.to(larger))
    until(lambda: handle.snapshot().running == larger, what="the other plan")
    assert handle.snapshot().train.n_sample_done >= before.train.n_sample_done
    assert "kept the copy of ps-0" in story(handle)
    handle.stop()
