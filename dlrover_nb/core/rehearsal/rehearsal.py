"""A rehearsal: runs of several seeds, each with the delay of 1, 2, 4 ... workers imposed, seed after seed.

Seeds are finished one by one, so that what there is can be used whenever a person stops it. What it will cost
is said before, from a few steps and from scoring a part of the held-out rows.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import torch

from dlrover_nb.core.models.learner import set_threads
from dlrover_nb.core.models.matmul import fast_matmul
from dlrover_nb.core.rehearsal.curves import LEAST_SEEDS, curve_of
from dlrover_nb.core.rehearsal.delays import Delay
from dlrover_nb.core.rehearsal.runs import Trial
from dlrover_nb.core.rehearsal.ways import AsTheyCome, WayName, batch_of, way_of
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.job.spec_choices import MatmulPrecision

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dlrover_nb.core.rehearsal.runs import Run
    from dlrover_nb.core.rehearsal.sample import Sample
    from dlrover_nb.core.structs.training.quality import QualityCurve

N_PROBED = 12  # exchanges whose time tells that of a run, after as many that warm up
TELL_EVERY = 16  # exchanges


@dataclass(frozen=True, slots=True)
class Settings:
    """What to rehearse.

    Parameters
    ----------
    n_row
        Training rows of the sample.
    n_seed
        Runs of each delay.
    workers
        Numbers of workers whose delay is imposed; 1 is always among them, as all others are compared to it.
    n_epoch
        Passes over the sample.
    variation
        Of the times of workers' steps, see `Delay`.
    ways
        Names of ways to apply gradients.
    """

    n_row: int = 50_000
    n_seed: int = 5
    workers: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    n_epoch: int = 1
    variation: float = 0.0
    ways: tuple[WayName, ...] = (WayName.ASP,)

    def __post_init__(self) -> None:
        _check.at_least("rows", self.n_row, 1)
        _check.at_least("seeds", self.n_seed, LEAST_SEEDS)
        _check.at_least("passes", self.n_epoch, 1)
        _check.at_least("numbers of workers", len({*self.workers} - {1}), 1, hint="name one above 1")
        for n_worker in self.workers:
            _check.within("workers", n_worker, 1, 1024)

    def delays(self, *, overlap: bool) -> tuple[Delay, ...]:
        """Return the delays, that of a single worker first."""
        return tuple(Delay(n, int(overlap), self.variation) for n in sorted({1, *self.workers}))

    @property
    def n_run(self) -> int:
        """Runs of all seeds."""
        return self.n_seed * len({1, *self.workers}) * len(self.ways)


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The result of a rehearsal.

    Parameters
    ----------
    job
        Name of the job that was rehearsed.
    settings
        Of the rehearsal; fewer than its seeds may be complete (`n_seed`).
    runs
        All that were finished, seed after seed.
    curves
        One for each way.
    n_row, n_held_out, n_update
        Rows that were trained in a pass and scored, and updates of a run of one worker.
    overlap
        Whether workers computed while their gradients were sent, as the job's do.
    holds_out_own
        Whether the scored rows are those that the job holds out.
    cpu_s
        What it cost.
    """

    job: str
    settings: Settings
    runs: tuple[Run, ...]
    curves: tuple[QualityCurve, ...]
    n_row: int
    n_held_out: int
    n_update: int
    overlap: bool
    holds_out_own: bool
    cpu_s: float

    @property
    def n_seed(self) -> int:
        """Seeds that are complete."""
        return len({run.seed for run in self.runs})


def estimated_cpu_s(sample: Sample, settings: Settings) -> float:
    """Return the CPU seconds that a rehearsal will take about, by a few steps of it."""
    trial = Trial(sample, Delay(1), AsTheyCome(), n_epoch=settings.n_epoch)
    steps = trial.steps()
    with single_threaded(sample.spec.matmul_precision):
        _advance(steps, N_PROBED)  # the first ones allocate, and may compile
        began_s = time.process_time()
        n_step = _advance(steps, N_PROBED)
        step_s = (time.process_time() - began_s) / max(n_step, 1)
        began_s = time.process_time()
        batch = sample.held_out[0]
        trial.scores(batch)
        score_s = (time.process_time() - began_s) / len(batch.labels)
    run_s = trial.n_batch * step_s + sample.n_held_out * score_s
    return settings.n_run * run_s


def rehearse(
    sample: Sample, settings: Settings, *, progress: Callable[[float], None] = lambda _: None
) -> Rehearsal:
    """Run a rehearsal.

    Parameters
    ----------
    progress
        Called with the share that is done, some times a run.

    Raises
    ------
    InvalidValueError
        When the held-out rows are all of one class.
    KeyboardInterrupt
        When it is interrupted before two seeds are complete; later it returns what there is.
    """
    spec, began_s = sample.spec, time.process_time()
    runs: list[Run] = []
    per_seed = settings.n_run // settings.n_seed
    try:
        with single_threaded(spec.matmul_precision):
            for done, trial in enumerate(_trials(sample, settings)):
                for share in _shares(trial.steps(), trial.n_batch):
                    progress((done + share) / settings.n_run)
                runs.append(trial.result())
    except KeyboardInterrupt:
        if len(runs) < LEAST_SEEDS * per_seed:
            raise
    runs = runs[: len(runs) - len(runs) % per_seed]
    return Rehearsal(
        job=spec.name,
        settings=settings,
        runs=tuple(runs),
        curves=tuple(
            curve_of(runs, way, spec, n_row=sample.n_row, n_epoch=settings.n_epoch) for way in settings.ways
        ),
        n_row=sample.n_row,
        n_held_out=sample.n_held_out,
        n_update=runs[0].n_update,
        overlap=spec.overlap,
        holds_out_own=sample.holds_out_own,
        cpu_s=time.process_time() - began_s,
    )


def _trials(sample: Sample, settings: Settings) -> Iterator[Trial]:
    spec = sample.spec
    for seed in range(settings.n_seed):
        for way in settings.ways:
            for delay in settings.delays(overlap=spec.overlap):
                made, size = way_of(way, spec, delay.n_worker), batch_of(way, spec, delay.n_worker)
                yield Trial(sample, delay, made, seed=seed, n_epoch=settings.n_epoch, batch_size=size)


def _shares(steps: Iterator[None], n_batch: int) -> Iterator[float]:
    """Train, and yield the share of a run that is done now and then."""
    for n, _ in enumerate(steps):
        if n % TELL_EVERY == 0:
            yield min(n / n_batch, 1.0)


def _advance(steps: Iterator[None], n: int) -> int:
    """Take at most `n` steps; return how many there were."""
    return sum(1 for _ in islice(steps, n))


@contextmanager
def single_threaded(precision: MatmulPrecision = MatmulPrecision.FLOAT32) -> Iterator[None]:
    """Compute with one thread and as a worker multiplies while the block runs, then as before."""
    n_thread = torch.get_num_threads()
    set_threads(1)
    try:
        with fast_matmul(precision):
            yield
    finally:
        set_threads(n_thread)
