"""What a plan restarts of an external job, where a plan is shown before it is accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.structs.job.kubernetes import DLROVER

if TYPE_CHECKING:
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot


def restart_facts(snapshot: JobSnapshot, plan: ResourcePlan) -> tuple[tuple[str, str], ...]:
    """Return what a plan restarts; nothing for jobs of our own trainer, and where another system does it."""
    external = snapshot.spec.foreign
    is_ours = snapshot.spec.kubernetes.operator != DLROVER
    if external is None or snapshot.phase.is_final or not is_ours:
        return ()
    from dlrover_nb.core.master.external.changes.restarts import foretold, words  # noqa: PLC0415 - few jobs are external

    restarts = foretold(external, snapshot.nodes, plan, in_place=bool(snapshot.resizes_in_place))
    train = snapshot.train
    n_safe = train.n_sample_kept  # in a checkpoint
    n_repeated = None if n_safe is None else max(train.n_sample_done - n_safe, 0)
    return (("the change", words(restarts, external, n_repeated)),) if restarts else ()
