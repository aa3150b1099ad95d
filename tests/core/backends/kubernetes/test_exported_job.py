"""What is exported runs: a file's objects are made as they stand, and the job trains in pods to its end."""

from __future__ import annotations

import sys
import time

import pytest
from kube import host_files
from waiting import LIMIT_S

from dlrover_nb.core.backends.kubernetes.api import connect_api
from dlrover_nb.core.export import EXPORTERS, Options, Provenance, check, documents_in, to_yaml
from dlrover_nb.core.jobfile import job_from
from dlrover_nb.core.manifests.kinds import CONFIG_MAP, JOB, POD, ROLE, ROLE_BINDING, SECRET, SERVICE_ACCOUNT

pytestmark = [pytest.mark.kube, pytest.mark.pods]
KINDS = {kind.name: kind for kind in (CONFIG_MAP, SECRET, SERVICE_ACCOUNT, ROLE, ROLE_BINDING, JOB)}


JOB_FILE = {
    "name": "exported",
    "plan": {
        "worker": {"count": 1, "cpu": 0.5, "memory_mib": 512},  # a Ray beside it must fit on one machine
        "ps": {"count": 1, "cpu": 0.2, "memory_mib": 384},
    },
}


FOREIGN = {
    "worker": {"command": [sys.executable, "-c", "import os; print(os.environ['TF_CONFIG'])"]},
    "ps": {"command": [sys.executable, "-c", "import threading; threading.Event().wait()"]},
    "n_sample": 100,
}


def _exported(kind, api, **more):
    job = job_from({**JOB_FILE, **more, "kubernetes": {**host_files(), "linger_s": 1.0}})
    options = Options(namespace=api.namespace)
    documents = documents_in(to_yaml(*EXPORTERS[kind](job, job.plan, Provenance(), options)))
    assert check(documents) == ()
    return documents


@pytest.mark.parametrize("more", [{}, {"external": FOREIGN}], ids=["ours", "foreign"])
def test_the_objects_of_an_export_alone_start_a_job_that_runs_to_its_end(nodes, namespace, more) -> None:
    api = connect_api(kubeconfig=nodes.kubeconfig, namespace=namespace(nodes))
    for document in _exported("pods", api, **more):
        api.create(KINDS[document["kind"]], document)
    end = time.monotonic() + LIMIT_S
    while not (status := api.get(JOB, "exported")["status"]).get("succeeded"):
        assert time.monotonic() < end, status
        assert not status.get("failed"), status
        time.sleep(0.5)
    secret = api.get(SECRET, "exported-job")
    assert secret["data"]["job.json"]
    assert secret["metadata"]["ownerReferences"][0]["name"] == "exported"
    api.delete(JOB, "exported", propagation="Background")


def test_the_one_pod_of_a_tfjob_trains_the_whole_job(nodes, namespace) -> None:
    """Kubeflow's operator is not here: its part is to make a pod from the replica's template."""
    api = connect_api(kubeconfig=nodes.kubeconfig, namespace=namespace(nodes))
    file, document = _exported("tfjob", api)
    api.create(CONFIG_MAP, file)
    replica = document["spec"]["tfReplicaSpecs"]["Chief"]
    spec = {**replica["template"]["spec"], "restartPolicy": replica["restartPolicy"]}
    api.create(POD, {"metadata": {"name": "exported-chief-0"}, "spec": spec})
    end = time.monotonic() + LIMIT_S
    while (phase := api.get(POD, "exported-chief-0")["status"]["phase"]) not in {"Succeeded", "Failed"}:
        assert time.monotonic() < end, phase
        time.sleep(0.5)
    told = list(api.log("exported-chief-0"))
    assert phase == "Succeeded", told
    assert "succeeded" in "\n".join(told)
