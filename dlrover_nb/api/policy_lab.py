"""`dlrover_nb.lab`: the same jobs under several policies, side by side."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.api.views.shown_waits import shown_waits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from dlrover_nb.api.views.lab_view import LabView
    from dlrover_nb.core.lab import Contender, LabFile, PastRun


@shown_waits("the runs of the lab")
def lab(  # noqa: PLR0913 - what is changed of a lab file most often, by keyword
    source: LabFile | Path | str | Mapping[str, object] | None = None,
    *,
    contenders: Sequence[str | Contender | Mapping[str, object] | Callable[..., object]] = (),
    history_days: float | None = None,
    trace: str | None = None,
    jobs: int | None = None,
    days: float | None = None,
    seeds: int | Sequence[int] | None = None,
) -> LabView:
    """Compare policies on one's own past jobs, on a trace, or on jobs by description.

    Nothing starts on a cluster: jobs are replayed, in seconds, on machines that the lab describes.

    Parameters
    ----------
    source
        A lab file: its path, its text, its content as a mapping, or a `LabFile`. None: a hundred drawn jobs.
    contenders
        What is compared: names of policies, functions, or groups of ``policy``, ``scheduler``,
        ``stragglers`` and ``name``. A function takes ``(state)`` and returns a plan or None, or
        ``(analysis, settings, context)`` as a policy of a package does. Empty: those of the file.
    history_days
        Replay one's own runs of so many days before the newest.
    trace
        Path of a trace as CSV, which may be compressed.
    jobs, days
        How many jobs, in how many days; of a trace at most so many.
    seeds
        How many, or which: each is a run of every contender, of which medians and intervals are made.

    Raises
    ------
    InvalidValueError
        When a key, a policy, a scheduler or a value is not valid, or there is no job.
    NotFoundError
        When there is no such lab file or trace.
    CapacityError
        When a job asks for more than the empty machines have.
    BackendError
        When the history exists but cannot be read.

    Examples
    --------
    >>> dlrover_nb.lab(contenders=["fixed-plan", "optimus"], jobs=20, seeds=2)
    """
    from dlrover_nb.api.views.lab_view import LabView  # noqa: PLC0415 - charts load with the first result
    from dlrover_nb.core.lab import contender_of, read_lab, run_lab  # noqa: PLC0415 - it loads the planner

    file = read_lab(source)
    changed = {"history_days": history_days, "trace": trace, "jobs": jobs, "days": days}
    workload = replace(file.workload, **{k: v for k, v in changed.items() if v is not None})  # type: ignore[arg-type]  # of these types by name
    file = replace(file, workload=workload)
    if contenders:
        file = replace(file, contenders=tuple(map(contender_of, contenders)))
    if seeds is not None:
        file = replace(file, seeds=tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds))
    return LabView(run_lab(file, history=_history(workload.history_days)))


def _history(days: float | None) -> tuple[PastRun, ...]:
    if days is None:
        return ()
    from dlrover_nb.core.lab.own_history import past_runs  # noqa: PLC0415 - it loads the history's database

    return past_runs(days)
