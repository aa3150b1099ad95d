"""What clusters do to jobs: memory runs out, machines go, masters are deleted, the API server is away."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.kubernetes.jobs_in_pods import FOREVER, PLAN, SMALL, assert_exact, job, names_of, trained
from support.waiting import LIMIT_S, until

from dlrover_nb.core.commands.requests import Scale
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.rundir.journal import read_events
from dlrover_nb.core.structs.plan.resources import Role, RolePlan
from dlrover_nb.core.structs.views.events import ProgressMade

pytestmark = [pytest.mark.kube, pytest.mark.pods, pytest.mark.more]

SILENT_S = 30.0  # so long a node may be silent before it is given up, on a loaded machine too
AWAY_S = 32.0  # longer than that
TIGHT = replace(SMALL, worker=RolePlan(1, 0.8, 64))  # less than a worker needs to begin


def test_workers_that_are_killed_for_memory_come_back_with_more(place):
    spec = job("tight", plan=TIGHT, n_epoch=1)
    handle = place.cluster.submit(spec)
    end = handle.wait(LIMIT_S)
    assert_exact(spec, end)
    assert end.target.worker.memory_mib > 64
    assert any("ran out of memory" in line for line in end.story), end.story


@pytest.mark.release
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
    spec = job("headless", n_epoch=4, heartbeat_timeout_s=SILENT_S)
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


def parameter_servers(snapshot):
    return {node.id for node in snapshot.nodes if node.role is Role.PS}


@pytest.mark.release
def test_parameter_servers_that_are_deleted_move_what_they_hold_first(place):
    spec = job("drained", n_epoch=8, heartbeat_timeout_s=SILENT_S)
    handle = place.cluster.submit(spec)
    trained(handle, 5_000)
    for name in ("ps-0", "ps-1"):
        pod = place.pod_of("drained", name).metadata.name
        place.core.delete_namespaced_pod(pod, place.namespace)  # with its own grace, as an eviction does
    moved = until(
        lambda: (now := handle.snapshot()).running and parameter_servers(now) == {"ps-2", "ps-3"} and now,
        what="other parameter servers",
    )
    assert not moved.phase.is_final
    until(lambda: not place.left(pod), what="the end of a pod that has nothing left to serve")
    end = handle.wait(LIMIT_S)
    assert_exact(spec, end)
    assert end.train.returned == end.train.refused == 0
    told = "\n".join(end.story)
    assert "being evicted; " in told
    assert "was lost" not in told
    assert "was loaded from" not in told


def progress_of(name, folder):
    """Wait for progress in the job's journal; return when the last was, and of how many samples.

    No API server is asked. What a snapshot tells is written to the journal a little later.
    """
    (run,) = folder.glob(f"{name}-*")

    def made():
        return [event for event in read_events(run) if isinstance(event, ProgressMade)]

    last = until(made, what=f"progress in the journal of {name}")[-1]
    return last.at_s, last.n_sample_done


@pytest.mark.release
def test_training_goes_on_while_the_api_server_is_away(place, api_away, shared_state):
    handle = place.cluster.submit(job("alone", n_epoch=FOREVER, heartbeat_timeout_s=SILENT_S))
    before = trained(handle, 5_000)
    stop, start = api_away
    stop()
    at_s, n_sample = progress_of("alone", shared_state)
    until(
        lambda: progress_of("alone", shared_state)[0] > at_s + AWAY_S, what="progress without an API server"
    )
    assert progress_of("alone", shared_state)[1] > n_sample
    start()
    after = trained(handle, n_sample)
    assert names_of(after) == names_of(before)
    more = replace(PLAN, worker=RolePlan(3, 0.4, 512))
    handle.decide(Scale.to(more, why="control is back"))
    until(lambda: handle.snapshot().running == more, what="a third worker")
    handle.stop()
