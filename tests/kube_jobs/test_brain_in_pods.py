"""A brain and its queue on a real Kubernetes: masters in pods are asked, admit their jobs and take quotas."""

from __future__ import annotations

import pytest
from support.kubernetes.jobs_in_pods import SMALL, job
from support.waiting import until

from dlrover_nb.core.brain.cluster_plan import BrainSettings
from dlrover_nb.core.brain.service import Brain, Rhythm
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.history.stores.brain_rounds import RoundStore
from dlrover_nb.core.history.stores.leases import LeaseStore
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Admission, Mode
from dlrover_nb.core.structs.plan.bounds import Quota

JOBS = ("first", "second")

pytestmark = [pytest.mark.kube, pytest.mark.pods]


@pytest.mark.release
def test_jobs_in_pods_wait_for_the_brain_start_when_admitted_and_take_its_quotas(place, tmp_path):
    url = f"sqlite:///{tmp_path / 'history.db'}"
    stores = {"leases": LeaseStore(url), "rounds": RoundStore(url)}
    one = Brain(
        place.cluster, "pods", settings=BrainSettings(), rhythm=Rhythm(5.0, 120.0), by="one", **stores
    )
    handles = [
        place.cluster.submit(
            job(
                name,
                plan=SMALL,
                n_epoch=400,
                mode=Mode.AUTO,
                admission=Admission.QUEUE,
                checkpoint_every_s=60.0,
            )
        )
        for name in JOBS
    ]
    rounds = []

    def planned():
        assert one.renew()
        if found := one.plan():
            rounds.append(found)
        return found

    for handle in handles:
        until(lambda h=handle: trains(h, planned), what=lambda: f"training: {rounds[-1:]}")
    assert {each.job for found in rounds for each in found.queue if each.admitted} == set(JOBS)

    def taken():
        """Plan until each job that took part has taken its share: a master of half a core may be late."""
        found = planned()
        return found and not any(share.refused for share in found.shares) and found.shares

    shared = until(taken, what=lambda: f"an offer: {rounds[-1]}")
    for handle in handles:
        assert any("admitted with" in line for line in handle.snapshot().story)
        handle.stop(why="seen enough")
    assert all(share.quota == Quota() or share.quota.allows(share.meant) for share in shared)


def trains(handle, planned):
    """Whether a job trains; else the brain plans once more."""
    try:
        phase = handle.snapshot().phase
    except BackendError:  # its master starts
        return False
    assert not phase.is_final, handle.snapshot().message
    if phase is JobPhase.STARTING:
        planned()
    return phase is not JobPhase.STARTING
