"""How many nodes a job of the policy `qore` starts with: the fewest that meet its deadline (Qore-DL).

The configurator learns iteration times from the jobs of the history under the counts of nodes that they had
(`deadline.configurator`). It says nothing of a job unlike those: then, and where too few jobs have finished,
the first plan stays as it was, and the reason of the plan says so. Cores and memory of a node stay too: the
history has neither operations of models nor the processor time that nodes used, of which peaks would follow.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.percents import percent
from dlrover_nb.core.deadline.configurator import DeadlineGoal, RatioRange, learn_configurator
from dlrover_nb.core.deadline.model_features import ModelFeatures
from dlrover_nb.core.deadline.training_rows import Setting, n_param_of, rows_of_history
from dlrover_nb.core.errors import CapacityError, InvalidValueError
from dlrover_nb.core.planner.availability.feasibility import has_room
from dlrover_nb.core.structs.plan.deadline import span_words
from dlrover_nb.core.structs.plan.default_bounds import completed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dlrover_nb.core.deadline.configurator import Configuration, Configurator
    from dlrover_nb.core.deadline.training_rows import TrainingRow
    from dlrover_nb.core.driver.job_start import InitialPlan
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.views.past_jobs import PastJob, SeriesRow

    Examples = Sequence[tuple[PastJob, Sequence[SeriesRow]]]

POLICY = "qore"
LEVEL = 0.9  # of the interval of the iteration time, whose upper end must meet the deadline


def sized_for_deadline(
    begun: InitialPlan, capacity: Capacity, examples: Callable[[], Examples], at_s: float
) -> InitialPlan:
    """Return the start of a job with as many nodes as its deadline needs; as it was, with the reason.

    Only a job of the policy `qore` with a deadline, whose first plan its user left to us, is sized.

    Parameters
    ----------
    examples
        Returns finished jobs with their series; called for such a job alone.
    at_s
        When the job starts.
    """
    due_s = begun.spec.due_s(at_s)
    if begun.spec.policy != POLICY or due_s is None or not begun.spec.warm_start:
        return begun
    try:
        rows = rows_of_history(examples())
        _require_like(begun, rows)
        return _sized(begun, learn_configurator(rows, level=LEVEL), capacity, due_s - at_s)
    except (InvalidValueError, CapacityError) as error:
        why = f"Not sized for its deadline: {error}"
        return replace(begun, why=f"{begun.why} {why}".strip())


def _require_like(begun: InitialPlan, rows: Sequence[TrainingRow]) -> None:
    """Refuse a job beyond the jobs of the history, also in what was the same in all of those.

    Raises
    ------
    InvalidValueError
        When it is, when all of them had one number of workers, which tells nothing of others, or when its
        iterations do not depend on that.
    """
    traits, plan = begun.traits, begun.spec.plan
    if begun.spec.global_batch is not None:
        raise InvalidValueError("with a global batch, its number of steps does not depend on the workers")
    if not rows:
        raise InvalidValueError("there is no finished job to learn from")
    if len({row.setting.n_worker for row in rows}) < 2:
        raise InvalidValueError("all finished jobs had the same number of workers")
    own: dict[str, tuple[float, Sequence[float | None]]] = {
        "batch size": (traits.batch_size, [row.features.batch_size for row in rows]),
        "parameters": (n_param_of(traits), [row.features.n_param for row in rows]),
        "cores of a worker": (plan.worker.cpu, [row.setting.worker_cores for row in rows]),
        "cores of a PS": (plan.ps.cpu, [row.setting.ps_cores for row in rows]),
    }
    for name, (value, values) in own.items():
        past = [each for each in values if each is not None]
        if past and not min(past) <= value <= max(past):
            raise InvalidValueError(
                f"it is unlike the finished jobs: {name} {value:g}, those had {min(past):g} to {max(past):g}"
            )


def _sized(begun: InitialPlan, learnt: Configurator, capacity: Capacity, left_s: float) -> InitialPlan:
    spec, traits, plan = begun.spec, begun.traits, begun.spec.plan
    bounds = completed(spec.bounds, capacity, plan)
    own = plan.ps.count / plan.worker.count
    configuration = learnt.configure(
        ModelFeatures(traits.batch_size, n_param_of(traits), flops=None),
        DeadlineGoal(max(left_s, 1.0), max(traits.n_sample // traits.batch_size, 1), bounds.counts[0]),
        setting=Setting(worker_cores=plan.worker.cpu, ps_cores=plan.ps.cpu),
        ratio=learnt.ratio or RatioRange(own, own),
    )
    if configuration.outside:
        raise InvalidValueError(f"it is unlike the finished jobs ({'; '.join(configuration.outside)})")
    sized = spec.pins.applied(
        replace(
            plan,
            worker=replace(plan.worker, count=configuration.n_worker),
            ps=replace(plan.ps, count=min(configuration.n_ps, bounds.counts[1])),
        )
    )
    if not has_room(sized, capacity, bounds):
        raise CapacityError(f"its deadline needs {sized.short}, for which there is no room")
    return replace(begun, spec=replace(spec, plan=sized), why=_why(configuration, learnt, sized.short))


def _why(configuration: Configuration, learnt: Configurator, short: str) -> str:
    ends, error = configuration.finish_s, learnt.learnt["iter_s"].accuracy
    span = f"{percent(LEVEL)} band {span_words(ends.low)} to {span_words(ends.high)}"
    return (
        f"Starts with {short}, the fewest nodes that meet its deadline: it should end in "
        f"{span_words(ends.value)} ({span}). We learned this from {error.n_job} finished jobs; for a job "
        f"that we had not seen, step times were off by {percent(error.relative_error)} in the median."
    )
