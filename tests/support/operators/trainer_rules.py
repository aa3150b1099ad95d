"""What Kubeflow Trainer makes of a TrainJob and its runtime, by its public source, for the parts that exports use."""

from __future__ import annotations

from typing import Any

Doc = dict[str, Any]
STEP = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
NODE = {"name": "node", "image": "the-runtimes-own", "command": ["echo"]}
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


def cluster_runtime() -> Doc:
    """Return ``torch-distributed``, which comes with the operator, in short."""
    pod = {"template": {"spec": {"containers": [NODE]}}}
    jobs = [{"name": "node", "template": {"metadata": {"labels": STEP}, "spec": pod}}]
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "torch-distributed"},
        "spec": {
            "mlPolicy": {"numNodes": 1, "torch": {"numProcPerNode": "auto"}},
            "template": {"spec": {"replicatedJobs": jobs}},
        },
    }


def set_of(train_job: Doc, runtime: Doc) -> Doc:
    """Return the spec of the JobSet, which gets the TrainJob's name."""
    ref = train_job["spec"]["runtimeRef"]
    assert (ref["kind"], ref["name"]) == (runtime["kind"], runtime["metadata"]["name"])
    spec = runtime["spec"]["template"]["spec"]
    return {**spec, "replicatedJobs": [_job(each, train_job, runtime) for each in spec["replicatedJobs"]]}


def _job(job: Doc, train_job: Doc, runtime: Doc) -> Doc:
    """Return a replicated Job; a TrainJob's trainer sets the container ``node`` of the marked one."""
    template, policy = job["template"], runtime["spec"].get("mlPolicy")
    inner = template["spec"]
    (main,) = inner["template"]["spec"]["containers"]
    if template.get("metadata", {}).get("labels") != STEP:
        assert main["name"] != "node"  # it would be set too
        return job
    assert main["name"] == "node"
    assert job.get("replicas", 1) == 1  # by admission
    trainer = train_job["spec"].get("trainer", {})
    n = trainer.get("numNodes", policy.get("numNodes", 1) if policy else inner["parallelism"])
    said = [*main.get("env", []), *trainer.get("env", []), *_of_torch(train_job, policy, n)]
    given = {key: trainer[key] for key in ("image", "command") if key in trainer}
    if "resourcesPerNode" in trainer:
        given["resources"] = trainer["resourcesPerNode"]
    main = {**main, **given, "env": list({each["name"]: each for each in said}.values())}
    pod = {**inner["template"], "spec": {**inner["template"]["spec"], "containers": [main]}}
    inner = {"completionMode": "Indexed", **inner, "parallelism": n, "completions": n, "template": pod}
    return {**job, "template": {**template, "spec": inner}}


def _of_torch(train_job: Doc, policy: Doc | None, n_node: int) -> list[Doc]:
    """Return the variables that the operator adds where the policy is torch's and there is a trainer."""
    trainer, name = train_job["spec"].get("trainer"), train_job["metadata"]["name"]
    if not policy or "torch" not in policy or trainer is None:
        return []
    n_process = trainer.get("numProcPerNode", policy["torch"].get("numProcPerNode", "auto"))
    return [
        {"name": "PET_NNODES", "value": str(n_node)},
        {"name": "PET_NPROC_PER_NODE", "value": str(n_process)},
        {"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": _INDEX}}},
        {"name": "PET_MASTER_ADDR", "value": f"{name}-node-0-0.{name}"},
        {"name": "PET_MASTER_PORT", "value": "29500"},
    ]
