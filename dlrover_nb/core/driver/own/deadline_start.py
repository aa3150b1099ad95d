"""Which nodes a job with a deadline starts with: the fewest that meet it, each with what it needs (Qore-DL).

The configurator learns iteration times from the jobs of the history under the counts of nodes that they had,
and what a node peaks at from batch size, operations and parameters (`deadline.configurator`). A node gets the
upper end of that band, of memory with the usual margin: one that is killed costs more than memory that is
left over. What was not learnt stays as it was: cores where the nodes of finished jobs used all that they had,
since no more is known of such a one than that it could use them. It says nothing of a job unlike the finished
ones: then, and where too few jobs have finished, the first plan stays as it was, and the reason of the plan
says so.

Deadline and passes are all that a user gives, as in the paper: a job that names no plan is sized, under the
default policy too, which considers deadlines once it has measured the job.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.basics.percents import percent
from dlrover_nb.core.deadline.configurator import DeadlineGoal, RatioRange, learn_configurator
from dlrover_nb.core.deadline.training_rows import Setting, features_of, n_param_of, rows_of_history
from dlrover_nb.core.errors import CapacityError, InvalidValueError
from dlrover_nb.core.memory.right_size import MARGIN
from dlrover_nb.core.planner.availability.feasibility import has_room
from dlrover_nb.core.structs.job.job import DEFAULT_PLAN, DEFAULT_POLICY
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.deadline import span_words
from dlrover_nb.core.structs.plan.default_bounds import completed
from dlrover_nb.core.structs.plan.resources import MEMORY_STEP_MIB, ResourcePlan, Role

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dlrover_nb.core.deadline.configurator import Configuration, Configurator
    from dlrover_nb.core.deadline.training_rows import TrainingRow
    from dlrover_nb.core.driver.job_start import InitialPlan
    from dlrover_nb.core.structs.plan.bounds import PlanBounds
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.views.past_jobs import PastJob, SeriesRow

    Examples = Sequence[tuple[PastJob, Sequence[SeriesRow]]]

POLICIES = ("qore", DEFAULT_POLICY)
LEVEL = 0.9  # of the interval of the iteration time, whose upper end must meet the deadline


def sized_for_deadline(
    begun: InitialPlan, capacity: Capacity, examples: Callable[[], Examples], at_s: float
) -> InitialPlan:
    """Return the start of a job with the nodes that its deadline needs; as it was, with the reason.

    Only a job with a deadline is sized whose first plan its user left to us: by naming none, or by
    `warm_start`. A policy that neither knows of deadlines nor of models, and was chosen, has its own start.

    Parameters
    ----------
    examples
        Returns finished jobs with their series; called for such a job alone.
    at_s
        When the job starts.
    """
    spec = begun.spec
    due_s = spec.due_s(at_s)
    is_ours = spec.plan == DEFAULT_PLAN or spec.warm_start
    if due_s is None or spec.policy not in POLICIES or not is_ours:
        return begun
    try:
        rows = rows_of_history(examples())
        like = _with_usual_nodes(begun, rows)
        _require_like(like, rows)
        most_ps = max(row.setting.n_ps or 1 for row in rows)
        return _sized(like, learn_configurator(rows, level=LEVEL), capacity, due_s - at_s, most_ps)
    except (InvalidValueError, CapacityError) as error:
        instead = f"It starts with {spec.plan.short}; plans follow the deadline once its speed is known."
        why = f"Not sized for its deadline: {error}. {instead}"
        return replace(begun, why=f"{begun.why} {why}".strip())


def _with_usual_nodes(begun: InitialPlan, rows: Sequence[TrainingRow]) -> InitialPlan:
    """Return a job that names no plan with nodes as those of finished jobs: their counts and cores."""
    spec = begun.spec
    if spec.plan != DEFAULT_PLAN:
        return begun

    def usual(name: str, otherwise: float) -> float:
        values: list[float | None] = [getattr(row.setting, name) for row in rows]
        return statistics.median_low([each for each in values if each is not None] or [otherwise])

    worker, ps = spec.plan.worker, spec.plan.ps
    plan = ResourcePlan(
        replace(worker, count=int(usual("n_worker", worker.count)), cpu=usual("worker_cores", worker.cpu)),
        replace(ps, count=int(usual("n_ps", ps.count)), cpu=usual("ps_cores", ps.cpu)),
    )
    return replace(begun, spec=replace(spec, plan=plan))


def _require_like(begun: InitialPlan, rows: Sequence[TrainingRow]) -> None:
    """Refuse a job beyond the jobs of the history, also in what was the same in all of those.

    Raises
    ------
    InvalidValueError
        When it is, when all of them had one number of workers, which tells nothing of others, or when its
        iterations do not depend on that.
    """
    traits, plan = begun.traits, begun.spec.plan
    if begun.spec.sync is Sync.ALLREDUCE:
        raise InvalidValueError("it trains without parameter servers, and finished jobs had them")
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


def _sized(
    begun: InitialPlan, learnt: Configurator, capacity: Capacity, left_s: float, most_ps: int
) -> InitialPlan:
    """Return a job on the plan that its deadline needs, with no more PS than any finished job had."""
    spec = begun.spec
    bounds = completed(spec.bounds, capacity, spec.plan, most_workers=spec.step_batches)
    configuration = _configuration(begun, spec.plan, bounds, learnt, left_s)
    plan = _with_sizes(spec.plan, configuration, bounds)
    if (plan.worker.cpu, plan.ps.cpu) != (spec.plan.worker.cpu, spec.plan.ps.cpu):  # steps take as long by it
        configuration = _configuration(begun, plan, bounds, learnt, left_s)
    plan = replace(
        plan,
        worker=replace(plan.worker, count=configuration.n_worker),
        ps=replace(plan.ps, count=min(configuration.n_ps, bounds.counts[1], most_ps)),
    )
    sized = spec.pins.applied(plan)
    if not has_room(sized, capacity, bounds):
        raise CapacityError(f"its deadline needs {sized.short}, for which there is no room")
    why = f"{_why(configuration, learnt, sized.short)} {_why_sizes(configuration, sized)}"
    return replace(begun, spec=replace(spec, plan=sized), why=why)


def _configuration(
    begun: InitialPlan, plan: ResourcePlan, bounds: PlanBounds, learnt: Configurator, left_s: float
) -> Configuration:
    """Return counts and peaks for a job whose nodes have the cores of a plan.

    Raises
    ------
    InvalidValueError, CapacityError
        As `Configurator.configure`; the former also where the job is unlike those that were learnt from.
    """
    traits, own = begun.traits, plan.ps.count / plan.worker.count
    features = features_of(traits)
    if features is None:
        raise InvalidValueError("its model is not known, so it compares with no finished job")
    configuration = learnt.configure(
        features,
        DeadlineGoal(max(left_s, 1.0), max(traits.n_sample // traits.batch_size, 1), bounds.counts[0]),
        setting=Setting(worker_cores=plan.worker.cpu, ps_cores=plan.ps.cpu),
        ratio=learnt.ratio or RatioRange(own, own),
    )
    if configuration.outside:
        raise InvalidValueError(f"it is unlike the finished jobs ({'; '.join(configuration.outside)})")
    return configuration


def _with_sizes(plan: ResourcePlan, configuration: Configuration, bounds: PlanBounds) -> ResourcePlan:
    """Return a plan whose nodes have what they peak at, by the upper ends of the bands, as far as learnt."""
    sizes = {Role.WORKER: bounds.worker_cpus, Role.PS: bounds.ps_cpus}
    roles = {}
    for role, allowed in sizes.items():
        own = plan.role(role)
        cpu, mib = (configuration.peaks.get(f"{role}_{name}") for name in ("cpu", "memory_mib"))
        if cpu is not None:
            own = replace(own, cpu=next((s for s in allowed if s >= cpu.high), allowed[-1]))
        if mib is not None:
            n_step = math.ceil(MARGIN * mib.high / MEMORY_STEP_MIB)
            own = replace(own, memory_mib=n_step * MEMORY_STEP_MIB)
        roles[role] = own
    return ResourcePlan(roles[Role.WORKER], roles[Role.PS])


def _why(configuration: Configuration, learnt: Configurator, short: str) -> str:
    ends, error = configuration.finish_s, learnt.learnt["iter_s"].accuracy
    span = f"{percent(LEVEL)} band {span_words(ends.low)} to {span_words(ends.high)}"
    return (
        f"Starts with {short}, the fewest nodes that meet its deadline: it should end in "
        f"{span_words(ends.value)} ({span}). We learned this from {error.n_job} finished jobs; for a job "
        f"that we had not seen, step times were off by {percent(error.relative_error)} in the median."
    )


def _why_sizes(configuration: Configuration, plan: ResourcePlan) -> str:
    """Say what the nodes get and why, and what stays as it was."""
    words, same = [], []
    for role, name in ((Role.WORKER, "worker"), (Role.PS, "PS")):
        own, peaks = plan.role(role), configuration.peaks
        cpu, mib = peaks.get(f"{role}_cpu"), peaks.get(f"{role}_memory_mib")
        if cpu is None:
            same.append(f"cores of a {name}")
        else:
            words.append(
                f"A {name} gets {own.cpu:g} cores: it should peak at {cpu.low:.2g} to {cpu.high:.2g}."
            )
        if mib is None:
            same.append(f"memory of a {name}")
        else:
            peak = f"it should peak at {mib.low:.0f} to {mib.high:.0f}"
            margin = f"{percent(MARGIN - 1)} more are margin"
            words.append(f"A {name} gets {own.memory_mib} MiB: {peak}, and {margin}.")
    if same:
        words.append(f"Finished jobs don't tell these needs, so they stay as they were: {and_list(same)}.")
    return " ".join(words)
