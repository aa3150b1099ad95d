"""The job of a rehearsal: one that is to be submitted, one that runs, or one that ran before.

A rehearsal reads the rows in the process that asks for it. Where only the nodes of a job can read them, it
says so, and is to be run there.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from dlrover_nb.core.client.past import history_queries
from dlrover_nb.core.errors import CheckpointError, InvalidValueError, NotFoundError
from dlrover_nb.core.rundir.job_file import read_job
from dlrover_nb.core.rundir.locate import run_folder
from dlrover_nb.core.runtime.node.preflight import validate_job, validate_packed_job
from dlrover_nb.core.structs.job.spec_choices import Sync

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.core.structs.data.features import FeatureSpec
    from dlrover_nb.core.structs.job.job import JobSpec


@dataclass(frozen=True, slots=True)
class JobToRehearse:
    """A job, how its rows become numbers, and the folder of its user's own code; None: it has none."""

    spec: JobSpec
    features: FeatureSpec
    folder: Path | None = None


@contextmanager
def new_job(spec: JobSpec, *, model: object = None, data: object = None) -> Iterator[JobToRehearse]:
    """Give a job that was not submitted; arguments and errors are those of `validate_job`."""
    _check(spec)
    with _reading_here(), TemporaryDirectory(prefix="dlrover-nb-") as name:
        validated = validate_job(spec, model=model, data=data)
        validated.write(Path(name))
        yield JobToRehearse(validated.spec, validated.features, Path(name))


def earlier_job(name: str) -> JobToRehearse:
    """Return the newest run of a name: by its run folder on this machine, else by the history.

    Raises
    ------
    NotFoundError
        When there is none, or its rows cannot be read here.
    InvalidValueError
        When it trains with programs of others, or its own code is gone.
    """
    try:
        return _of_folder(run_folder(name))
    except (NotFoundError, CheckpointError):  # its folder was deleted; a job of the history has none
        run = history_queries.runs(job=name)[0]
    return _of_spec(run.spec)


def running_job(handle: JobHandle) -> JobToRehearse:
    """Return a job that a cluster knows; errors are those of `earlier_job`."""
    snapshot = handle.snapshot()
    folder = Path(snapshot.folder) if snapshot.folder and not handle.is_far else None
    try:
        return _of_spec(snapshot.spec) if folder is None else _of_folder(folder)
    except CheckpointError:  # a simulated job has no files
        return _of_spec(snapshot.spec)


def _of_folder(folder: Path) -> JobToRehearse:
    job = read_job(folder)
    _check(job.spec)
    return JobToRehearse(job.spec, job.features, folder)


def _of_spec(spec: JobSpec) -> JobToRehearse:
    _check(spec)
    with _reading_here(), TemporaryDirectory(prefix="dlrover-nb-") as name:
        completed, features = validate_packed_job(spec, Path(name))
    return JobToRehearse(completed, features)


def _check(spec: JobSpec) -> None:
    if spec.foreign is not None and spec.sync is not Sync.ALLREDUCE:  # our all-reduce runs as a program, too
        raise InvalidValueError(
            f"a rehearsal trains models of ours, and {spec.name} trains with programs of its own; "
            "rehearse a job with parameter servers"
        )


@contextmanager
def _reading_here() -> Iterator[None]:
    """Say that rows are read here, where they cannot be."""
    try:
        yield
    except NotFoundError as error:
        raise NotFoundError(
            f"a rehearsal cannot read the rows here: {error}; run it on a machine that has them"
        ) from error
