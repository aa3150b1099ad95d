"""What every `Cluster` must do: subclass `ClusterConformance`, one class per kind of cluster.

A job must be accepted and found; it need not train, so a Kubernetes API server without machines that run pods
suffices. `shutdown` is tried only to be refused, because clusters are shared between tests; where it ends
nothing (Kubernetes), the subclass says so. A simulated job leaves nothing, so that there `delete` is always
refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import pytest

from dlrover_nb.core.errors import CapacityError, InvalidValueError, NotFoundError
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from support.waiting import until

if TYPE_CHECKING:
    from dlrover_nb.core.client.cluster import Cluster

PLAN = ResourcePlan(worker=RolePlan(1, 0.5, 512), ps=RolePlan(1, 0.25, 256))


class ClusterConformance:
    """The contract of `core.client.cluster.Cluster`."""

    spec: ClassVar[JobSpec] = JobSpec("contract", plan=PLAN, mode=Mode.MANUAL, n_epoch=1000)
    deletes: ClassVar[bool] = True  # whether jobs leave something that is deleted
    owns: ClassVar[bool] = True  # whether a shutdown would end the jobs
    runs_nodes: ClassVar[bool] = True  # whether nodes find a place

    @pytest.fixture(scope="class")
    @classmethod
    def cluster(cls) -> Cluster:
        """Return the cluster under test."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def submitted(cls, cluster: Cluster) -> str:
        """Submit the job that the tests below share; return its name."""
        return cluster.submit(cls.spec).name

    def test_it_describes_itself_in_one_line_and_offers_machines(self, cluster: Cluster) -> None:
        assert len(cluster.description.splitlines()) == 1
        assert cluster.capacity().total_cpu > 0

    def test_the_load_of_machines_adds_up_to_what_they_have(self, cluster: Cluster) -> None:
        load = cluster.load()
        assert load.machines
        for machine in load.machines:
            held, idle, over = machine.held, machine.idle, machine.over
            assert machine.has is not None
            assert held is not None
            assert idle is not None
            assert over is not None
            assert held.cpu + idle.cpu - over.cpu == pytest.approx(machine.has.cpu)
            assert held.memory_mib + idle.memory_mib - over.memory_mib == pytest.approx(
                machine.has.memory_mib
            )
        assert (load.used is None) == (None in [machine.used for machine in load.machines])
        assert load.used is not None or load.notes  # what is not measured is said

    def test_what_a_job_holds_is_in_the_load(self, cluster: Cluster, submitted: str) -> None:
        if not self.runs_nodes:
            pytest.skip("the machines of this cluster run no nodes")
        plan = self.spec.plan
        held = until(
            lambda: next(
                (
                    amount
                    for name, amount in cluster.load().jobs
                    if name == submitted and amount.cpu >= plan.total_cpu - 1e-6
                ),
                None,
            ),
            what="its nodes on machines",
        )
        assert held.cpu == pytest.approx(plan.total_cpu)
        assert held.memory_mib == pytest.approx(plan.total_memory_mib)

    def test_a_plan_that_fits_on_no_machine_is_refused_and_leaves_no_job(self, cluster: Cluster) -> None:
        huge = replace(self.spec, name="huge", plan=replace(PLAN, worker=RolePlan(1, 10_000.0, 512)))
        with pytest.raises(CapacityError):
            cluster.submit(huge)
        with pytest.raises(NotFoundError):
            cluster.job("huge")

    def test_a_submitted_job_is_listed_and_found_by_its_name(self, cluster: Cluster, submitted: str) -> None:
        assert submitted in {summary.name for summary in cluster.jobs()}
        assert cluster.job(submitted).name == submitted
        began = until(lambda: cluster.job(submitted).snapshot(), what="a snapshot")
        assert began.spec.name == submitted
        assert {summary.name for summary in cluster.live_jobs()} <= {s.name for s in cluster.jobs()}

    def test_the_name_of_a_job_that_runs_is_refused(self, cluster: Cluster, submitted: str) -> None:
        with pytest.raises(InvalidValueError, match=f"a job named {submitted} exists already"):
            cluster.submit(self.spec)

    def test_a_name_that_is_nearly_right_is_put_right(self, cluster: Cluster, submitted: str) -> None:
        with pytest.raises(NotFoundError, match=f"did you mean {submitted}"):
            cluster.job(submitted[:-1])

    def test_a_shutdown_does_not_end_running_jobs_unasked(self, cluster: Cluster, submitted: str) -> None:
        if self.owns:
            with pytest.raises(InvalidValueError, match="still run"):
                cluster.shutdown()
        else:
            assert cluster.shutdown()
        assert not cluster.job(submitted).snapshot().phase.is_final

    def test_a_job_that_runs_is_deleted_only_by_force(self, cluster: Cluster, submitted: str) -> None:
        with pytest.raises(InvalidValueError):
            cluster.delete(submitted)
        assert not cluster.job(submitted).snapshot().phase.is_final
        if not self.deletes:
            with pytest.raises(InvalidValueError):
                cluster.delete(submitted, force=True)
            return
        assert submitted in cluster.delete(submitted, force=True)
        until(lambda: submitted not in {s.name for s in cluster.live_jobs()}, what="its end")
        with pytest.raises(NotFoundError):
            cluster.delete(submitted)
