"""JobSet's controller (v0.12) and the Indexed Jobs that it makes, played: this cluster's Jobs have no indices.

Pods ``SET-JOB-NUMBER-INDEX-xxxxx`` with that host name below the set's service, and their index as an annotation. The
set succeeds when the jobs of its success policy did, and fails, or begins anew within its restarts, when one failed.
"""

from __future__ import annotations

from typing import Any

from dlrover_nb.core.manifests.kinds import SERVICE
from support.operators.played import FAILED, SUCCEEDED, Controller, phase

Doc = dict[str, Any]
_LONGEST = 63  # of the name of a pod, by the validation of the set
_JOBSET = "jobset.sigs.k8s.io"
_INDEX = "batch.kubernetes.io/job-completion-index"


class JobSetController(Controller):
    """Plays for a JobSet."""

    n_restart = 0

    def begin(self) -> None:
        """Make the service, and all pods."""
        network = self.spec.get("network") or {}
        self.subdomain = network.get("subdomain") or self.name
        assert network.get("enableDNSHostnames", True)
        if not self.api.list(SERVICE).items:
            self.serve(self.subdomain, {f"{_JOBSET}/jobset-name": self.name}, before_ready=True)
        for job in self.spec["replicatedJobs"]:
            for number in range(job.get("replicas", 1)):
                self._make(job, number)

    def _make(self, job: Doc, number: int) -> None:
        inner = job["template"]["spec"]
        assert inner.get("completionMode", "Indexed") == "Indexed"
        assert inner["parallelism"] == inner["completions"]
        for index in range(inner["completions"]):
            host = f"{self.name}-{job['name']}-{number}-{index}"
            name = f"{host}-{self.n_restart:05d}"
            assert len(name) <= _LONGEST, f"the set is refused: {name} is too long"
            labels = {
                f"{_JOBSET}/jobset-name": self.name,
                f"{_JOBSET}/replicatedjob-name": job["name"],
                f"{_JOBSET}/job-index": str(number),
                f"{_JOBSET}/restart-attempt": str(self.n_restart),
            }
            spec = {"restartPolicy": "OnFailure", **inner["template"]["spec"]}
            spec |= {"hostname": host, "subdomain": self.subdomain}
            self.start(name, labels, spec, {_INDEX: str(index)})

    def result(self) -> str | None:
        by_job: dict[str, list[str]] = {}
        for pod in self.pods().values():
            labels = pod["metadata"]["labels"]
            if labels[f"{_JOBSET}/restart-attempt"] == str(self.n_restart):
                by_job.setdefault(labels[f"{_JOBSET}/replicatedjob-name"], []).append(phase(pod))
        if any(FAILED in phases for phases in by_job.values()):
            return self._failed()
        policy = self.spec.get("successPolicy") or {"operator": "All"}
        targets = policy.get("targetReplicatedJobs") or list(by_job)
        ended = [set(by_job.get(target, ())) == {SUCCEEDED} for target in targets]
        done = all(ended) if policy["operator"] == "All" else any(ended)
        return SUCCEEDED if done else None

    def _failed(self) -> str | None:
        """Begin all jobs anew, as often as allowed."""
        if self.n_restart >= (self.spec.get("failurePolicy") or {}).get("maxRestarts", 0):
            return FAILED
        self.end(*self.pods())
        self.n_restart += 1
        self.begin()
        return None
