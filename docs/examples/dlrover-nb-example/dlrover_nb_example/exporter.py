"""An exporter: the plan as one small document for a system of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.export import Exporter

if TYPE_CHECKING:
    from dlrover_nb.core.export import Options, Provenance
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.resources import ResourcePlan


def summary(
    job: JobSpec, plan: ResourcePlan, provenance: Provenance, options: Options
) -> tuple[dict[str, object], ...]:
    """Return the document of a job and a plan."""
    nodes = {
        role: {"count": each.count, "cpu": each.cpu, "memoryMiB": each.memory_mib}
        for role, each in (("worker", plan.worker), ("ps", plan.ps))
    }
    return (
        {
            "apiVersion": "example.org/v1",
            "kind": "PlanSummary",
            "metadata": {"name": job.name},
            "spec": nodes,
        },
    )


EXPORTER = Exporter(summary, "PlanSummary")
