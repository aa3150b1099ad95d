"""`dlrover_nb.rehearse`: what the staleness of more workers costs a job in quality, before they come."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.api.inputs.job_of_submit import is_name, job_of, settings_of
from dlrover_nb.api.inputs.own_parts import data_part, free_name, model_part
from dlrover_nb.api.views.shown_waits import shown_waits
from dlrover_nb.core.basics.percents import percent
from dlrover_nb.core.basics.waits import tell
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.errors import BackendError, DlroverError, InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.api.inputs.job_of_submit import JobText
    from dlrover_nb.api.views.rehearsal_view import RehearsalView
    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.core.client.job_to_rehearse import JobToRehearse
    from dlrover_nb.core.rehearsal.rehearsal import Rehearsal, Settings
    from dlrover_nb.core.structs.training.quality import QualityCurve

_log = logging.getLogger(__name__)

LONG_S = 300.0  # a rehearsal that takes longer is worth a warning


@shown_waits("the rows of the rehearsal")
def rehearse(  # noqa: PLR0913 - what a rehearsal is asked for, each by its name
    job: JobText | None = None,
    *,
    model: object = None,
    data: object = None,
    workers: Sequence[int] | None = None,
    rows: int | None = None,
    seeds: int | None = None,
    passes: int | None = None,
    ways: Sequence[str] | None = None,
    variation: float | None = None,
    **settings: object,
) -> RehearsalView:
    """Measure what older gradients cost in held-out AUC and loss, with the delay of many workers imposed.

    Short runs on a sample of the rows, in this process and on one core; no cluster is needed. An interrupt
    ends it early and keeps the seeds that are complete. The curves are kept in the history.

    Parameters
    ----------
    job
        The name of a job that ran on this machine or is in the history, or what `Cluster.submit` takes: a
        `JobSpec`, a mapping, YAML text, or the path of a job file. None: a job of the other arguments.
    model, data
        As `Cluster.submit` takes them, instead of those of the job.
    workers
        Numbers of workers whose delay is imposed; None: 1, 2, 4, 8, 16 and 32.
    rows
        Training rows of the sample; None: 50,000.
    seeds
        Runs of each number of workers, at least 2; None: 5.
    passes
        Passes over the sample; None: 1.
    ways
        How gradients are applied: ``"asp"``, ``"normalised"`` or ``"gba"``; None: as the job does it.
    variation
        Of the times of workers' steps, as a share of their mean; None: 0, all gradients are equally old.
    **settings
        Keys of a job file that win over `job`, as for `Cluster.submit`.

    Returns
    -------
    RehearsalView
        ``.result.curves`` has a curve for each way.

    Raises
    ------
    InvalidValueError
        When the job is malformed, trains with programs of its own, or its held-out rows are of one class.
    NotFoundError
        When there is no such job or file, or its rows cannot be read here.

    Examples
    --------
    >>> dlrover_nb.rehearse(data="clicks.csv", label="clicked", workers=[1, 4, 16], seeds=3)
    """
    from dlrover_nb.core.client.job_to_rehearse import earlier_job, new_job  # noqa: PLC0415 - it reads data

    chosen = settings_for(workers=workers, rows=rows, seeds=seeds, passes=passes, variation=variation)
    given = settings_of(settings)
    if isinstance(job, str) and is_name(job):
        earlier = earlier_job(job)
        if model is None and data is None and not given:
            return _rehearsed(earlier, chosen, ways)
        job = earlier.spec
    if job is None:
        job = {} if "name" in settings else {"name": free_name(data, set())}
    own_model, own_data = model_part(model), data_part(data)
    spec = job_of(job, (*own_model.settings, *own_data.settings, *given))
    with new_job(spec, model=own_model.own, data=own_data.own) as new:
        return _rehearsed(new, chosen, ways)


@shown_waits("the rows of the rehearsal")
def rehearse_job(job: JobToRehearse, settings: Settings, ways: Sequence[str] | None) -> RehearsalView:
    """Rehearse a job that is there; see `rehearse`."""
    return _rehearsed(job, settings, ways)


def settings_for(
    *,
    workers: Sequence[int] | None,
    rows: int | None,
    seeds: int | None,
    passes: int | None,
    variation: float | None,
) -> Settings:
    """Return the settings of a rehearsal; None: the usual one. See `rehearse`."""
    from dlrover_nb.core.rehearsal.rehearsal import Settings  # noqa: PLC0415 - it loads torch

    usual = Settings()
    return Settings(
        n_row=usual.n_row if rows is None else rows,
        n_seed=usual.n_seed if seeds is None else seeds,
        workers=usual.workers if workers is None else tuple(workers),
        n_epoch=usual.n_epoch if passes is None else passes,
        variation=usual.variation if variation is None else variation,
    )


def _rehearsed(job: JobToRehearse, settings: Settings, ways: Sequence[str] | None) -> RehearsalView:
    from dlrover_nb.api.views.rehearsal_view import RehearsalView  # noqa: PLC0415 - charts load on demand
    from dlrover_nb.core.rehearsal.rehearsal import estimated_cpu_s, rehearse  # noqa: PLC0415 - it loads torch
    from dlrover_nb.core.rehearsal.sample import read_sample  # noqa: PLC0415 - as above
    from dlrover_nb.core.rehearsal.ways import own_way, ways_named  # noqa: PLC0415 - as above

    settings = replace(settings, ways=ways_named(ways) if ways else (own_way(job.spec),))
    sample = read_sample(job.spec, job.features, settings.n_row, folder=job.folder)
    cost_s = estimated_cpu_s(sample, settings)
    if cost_s > LONG_S:
        _log.warning(
            "the rehearsal takes about %.0f minutes of a core; an interrupt keeps what is complete, and "
            "fewer rows or seeds take less",
            cost_s / 60,
        )
    what = f"the rehearsal of {job.spec.name} ({settings.n_run} runs, about {cost_s:,.0f} s of a core)"
    tell(what)
    result = rehearse(sample, settings, progress=lambda share: tell(f"{what}, {percent(share)} done"))
    _keep(job, result)
    return RehearsalView(result)


def _keep(job: JobToRehearse, result: Rehearsal) -> None:
    """Write the curves to the history; one that cannot be written takes no result away."""
    from dlrover_nb.core.driver.job_start import traits_of  # noqa: PLC0415 - see above
    from dlrover_nb.core.history.stores.quality_curves import CurveStore  # noqa: PLC0415 - SQLAlchemy loads on demand
    from dlrover_nb.core.structs.views.past_jobs import JobCurve  # noqa: PLC0415 - as above

    traits, at_s = traits_of(job.spec, job.features, job.folder), SystemClock().now_s()
    try:
        store = CurveStore()
        try:
            for curve in result.curves:
                store.add(JobCurve(job.spec.name, at_s, traits, curve))
        finally:
            store.close()
    except (BackendError, InvalidValueError) as error:
        _log.warning("the curves of this rehearsal are not kept: %s", error)


def hand_over(handle: JobHandle, job: JobToRehearse, curves: Sequence[QualityCurve]) -> None:
    """Let a running job plan with new curves, beside those of the history that it knows already.

    A job that has ended, or does not answer, takes no result of the rehearsal away.
    """
    from dlrover_nb.core.driver.history_writer import past_curves  # noqa: PLC0415 - as above
    from dlrover_nb.core.driver.job_start import traits_of  # noqa: PLC0415 - as above
    from dlrover_nb.core.warmstart.curves_of_job import curves_of_job  # noqa: PLC0415 - as above

    new = {curve.way for curve in curves}
    traits, past = traits_of(job.spec, job.features, job.folder), past_curves(None, job.spec.model.optimizer)
    others = (each for each in curves_of_job(job.spec, traits, past) if each.way not in new)
    try:
        if not handle.snapshot().phase.is_final:
            handle.learn_curves((*curves, *others))
    except DlroverError as error:
        _log.warning("job %s does not plan with the curves of this rehearsal: %s", handle.name, error)
