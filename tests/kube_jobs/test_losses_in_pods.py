"""What clusters do to jobs: memory runs out, machines go, masters are deleted, the API server is away."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from jobs_in_pods import FOREVER, PLAN, SMALL, assert_exact, job, names_of, trained
from waiting import LIMIT_S, until

from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.structs.resources import RolePlan

pytestmark = [pytest.mark.kube, pytest.mark.pods]

AWAY_S = 10.0  # longer than a silent node is waited for
TIGHT = replace(SMALL, worker=RolePlan(1, 0.8, 64))  # less than a worker needs to begin


def test_workers_that_are_killed_for_memory_come_back_with_more(place):
    spec = job("tight", plan=TIGHT, n_epoch=1)
    handle = place.cluster.submit(spec)
    end = handle.wait(LIMIT_S)
    assert_exact(spec, end)
    assert end.target.worker.memory_mib > 64
    assert any("ran out of memory" in line for line in end.story), end.story


def test_a_job_outlives_a_machine_that_loses_power(place, power):
    spec = job("outage", n_epoch=5)
    handle = place.cluster.submit(spec)
    trained(handle, 5_000)
    power(place.pod_of("outage", "worker-0").spec.node_name)
    assert_exact(spec, handle_of(place, "outage").wait(LIMIT_S))


def handle_of(place, name):
    """Find a job again; the machine of its master may be the one that is gone."""

    def find():
        try:
            handle = place.cluster.job(name)
            handle.snapshot()
        except BackendError:
            return None
        return handle

    return until(find, what=f"an answer of the master of {name}")


def test_a_job_whose_master_is_deleted_goes_on_with_its_nodes(place):
    spec = job("headless", n_epoch=4)
    handle = place.cluster.submit(spec)
    before = trained(handle, 10_000)
    killed = place.master("headless")
    place.delete_pod(killed)
    new = until(lambda: place.master("headless"), what="a new master")
    assert new != killed
    after = trained(handle_of(place, "headless"), before.train.n_sample_done + 5_000)
    assert names_of(after) == names_of(before)
    assert after.started_at_s == before.started_at_s
    end = handle.wait(LIMIT_S)
    assert_exact(spec, end)
    assert not any("was lost" in line for line in end.story), end.story


def test_training_goes_on_while_the_api_server_is_away(place, api_away):
    handle = place.cluster.submit(job("alone", n_epoch=FOREVER))
    before = trained(handle, 5_000)
    at_s = time.time()
    stop, start = api_away
    stop()
    time.sleep(AWAY_S)
    start()
    after = trained(handle, before.train.n_sample_done)
    assert names_of(after) == names_of(before)
    series = handle.series().job
    told = [speed for when, speed in zip(series["at_s"], series["samples_per_s"], strict=True) if at_s < when]
    assert len(told) > AWAY_S / 2
    assert min(told[: int(AWAY_S / 2)]) > 0, told
    more = replace(PLAN, worker=RolePlan(3, 0.4, 512))
    handle.scale(more, why="control is back")
    until(lambda: handle.snapshot().running == more, what="a third worker")
    handle.stop()
