"""What a cluster checks of an external job before it is submitted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.master.external.job.state import external_of
from dlrover_nb.core.structs.data.features import FeatureSpec
from dlrover_nb.core.structs.job.fixed_roles import limits_left
from dlrover_nb.core.structs.job.secrets import check_complete

if TYPE_CHECKING:
    from dlrover_nb.core.structs.job.job import JobSpec

NO_FEATURES = FeatureSpec("", (), (), n_train=0, n_eval=0)  # the rows of other programs are unknown


def checked(spec: JobSpec, *, model: object = None, data: object = None) -> JobSpec:
    """Return an external job bounded to its possible plans.

    Raises
    ------
    InvalidValueError
        When it is given a model, data or a checkpoint, which its own programs have; as `planned`.
    NotFoundError
        When a secret that it needs was not stored.
    """
    check_complete(spec)
    if spec.start_from is not None:
        raise InvalidValueError("an external job loads its own checkpoints; leave start_from out")
    if model is not None or data is not None:
        raise InvalidValueError("an external job runs its own programs; leave model and data out")
    return planned(spec)


def planned(spec: JobSpec) -> JobSpec:
    """Return an external job bounded to its possible plans: one with a store keeps that, as its user set it.

    Raises
    ------
    InvalidValueError
        When it is a torch or ddp job with several PS, or its fixed roles leave nothing of a quota or budget.
    """
    external, plan, bounds = external_of(spec), spec.plan, spec.bounds
    if external.framework.has_store and plan.ps.count != 1:
        raise InvalidValueError(
            f"a {external.framework} job has 1 ps, the store where its workers meet, got {plan.ps.count}; "
            "set plan.ps.count: 1"
        )
    limits_left(spec)
    if external.framework.has_store:
        bounds = replace(bounds, max_ps=1, ps_cpus=(plan.ps.cpu,))
    return replace(spec, bounds=bounds, warm_start=False)
