"""What people delete while a job trains, and what is left when its master's pod has ended."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from kubernetes.client.exceptions import ApiException
from support.kubernetes.jobs_in_pods import PLAN, SMALL, assert_exact, ended, job
from support.waiting import LIMIT_S, until

from dlrover_nb.core.commands.requests import Scale
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec
from dlrover_nb.core.structs.plan.resources import RolePlan

pytestmark = [pytest.mark.kube, pytest.mark.pods, pytest.mark.release]


def runs(handle, plan):
    def reached():
        now = handle.snapshot()
        assert not now.phase.is_final, f"the job was too short for {plan}: {now.story}"
        return now.running == plan

    until(reached, what=f"{plan}")


def is_there(read, name, namespace):
    with contextlib.suppress(ApiException):
        return read(name, namespace)
    return None


def test_a_job_outlives_the_loss_of_its_secret_and_its_rights_with_exact_rows(place):
    name, space, core, rbac = "robbed", place.namespace, place.core, place.rbac
    spec = job(name, n_epoch=20, heartbeat_timeout_s=30.0)
    handle = place.cluster.submit(spec)
    until(lambda: handle.snapshot().running, what="the first plan")

    core.delete_namespaced_secret(f"{name}-job", space)
    again = place.connect(place.test_cluster.kubeconfig)
    assert not again.job(name).snapshot().phase.is_final
    with pytest.raises(InvalidValueError, match=f"job {name} runs"):
        again.delete(name)
    three = replace(PLAN, worker=RolePlan(3, 0.3, 512))
    handle.decide(Scale.to(three, why="its pods need the Secret"))
    until(lambda: is_there(core.read_namespaced_secret, f"{name}-job", space), what="the Secret")
    runs(handle, three)

    binding = rbac.read_namespaced_role_binding(f"{name}-master", space)
    rbac.delete_namespaced_role_binding(f"{name}-master", space)
    two = replace(PLAN, worker=RolePlan(2, 0.3, 512))
    handle.decide(Scale.to(two, why="its pods may not be changed now"))
    until(lambda: "may not" in handle.snapshot().message, what="the missing right in the status")
    before = handle.snapshot()
    assert "restore the Role and the RoleBinding robbed-master" in before.message
    until(lambda: handle.snapshot().train.n_sample_done > before.train.n_sample_done, what="training")
    binding.metadata.resource_version = binding.metadata.uid = None
    rbac.create_namespaced_role_binding(space, binding)
    runs(handle, two)
    until(lambda: "may not" not in handle.snapshot().message, what="a status without it")

    end = ended(handle)
    assert_exact(spec, end)
    assert any("may not" in line for line in end.story), end.story


def test_logs_of_a_job_stay_when_its_masters_pod_has_ended(place):
    name = "told"
    kube = KubernetesSpec(linger_s=5.0)
    handle = place.cluster.submit(job(name, plan=SMALL, n_epoch=1, kubernetes=kube))
    end = handle.wait(LIMIT_S)
    until(lambda: place.batch.read_namespaced_job(name, place.namespace).status.succeeded, what="its end")
    gone = place.connect(place.test_cluster.kubeconfig).job(name)
    assert gone.snapshot().phase is end.phase
    assert {line.node for line in gone.logs(n_line=1_000)} == {"ps-0", "worker-0"}
    assert all(line.node == "worker-0" for line in gone.logs("worker-0"))
