"""Machines and pods of a cluster as documents, and what a job may use of them."""

from __future__ import annotations

from dlrover_nb.core.backends.kubernetes.room.cluster_capacity import Tenant
from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec, gpu_resource

SPEC = KubernetesSpec(master_cpu=0.25, master_memory_mib=768)
ME = Tenant("quick-start", "team", SPEC)


def node(name="node1", cpu="4", memory="8Gi", *, ready="True", labels=None, gpu=0, **spec):
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": cpu, "memory": memory, **gpu_resource(gpu)},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


def pod(cpu="1", memory="1Gi", at="node1", *, namespace="other", phase="Running", owner="", **labels):
    return {
        "metadata": {
            "name": "p",
            "namespace": namespace,
            "labels": {f"dlrover-nb/{key}": value for key, value in labels.items()},
            "ownerReferences": [{"kind": owner}] if owner else [],
        },
        "spec": {
            "nodeName": at,
            "containers": [{"resources": {"requests": {"cpu": cpu, "memory": memory}}}],
        },
        "status": {"phase": phase},
    }


def mine(role="worker", **amounts):
    return pod(namespace="team", job="quick-start", role=role, **amounts)


def shapes(capacity):
    return [(s.cpu, s.memory_mib, s.count) for s in capacity.shapes]
