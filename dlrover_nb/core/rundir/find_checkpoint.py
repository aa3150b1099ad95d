"""Finds the checkpoint that a text names: a job or run of this machine, of the history, a folder or a URL."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.redaction import PLACEHOLDER, redact
from dlrover_nb.core.disk.paths import jobs_folder
from dlrover_nb.core.errors import CheckpointError, NotFoundError
from dlrover_nb.core.rundir.checkpoint_folder import MANIFEST, newest_manifest, read_manifest
from dlrover_nb.core.rundir.job_file import JOB, read_job
from dlrover_nb.core.rundir.pruning import job_of
from dlrover_nb.core.runtime.checkpoints import as_checkpoint_error, place_of
from dlrover_nb.core.structs.job.start_from import is_path
from dlrover_nb.core.structs.job.trained import Trained
from dlrover_nb.core.structs.training.checkpoint_places import checkpoint_root

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlrover_nb.core.history import JobRun
    from dlrover_nb.core.sharding.manifest import Manifest

CLOCK_S = 60.0  # between the start of a run in its folder and in the history
_ADVICE = "name another run, or the URL of a checkpoint"


@dataclass(frozen=True, slots=True)
class FoundCheckpoint:
    """A complete checkpoint; the files of its manifest lie where it was found."""

    manifest: Manifest
    trained: Trained
    place: str  # for messages, without credentials


def find_checkpoint(source: str, *, but: Path | None = None) -> FoundCheckpoint:
    """Return the checkpoint that `source` names, the newest one where there are several.

    Parameters
    ----------
    source
        As `StartFrom.source`.
    but
        A run folder that does not count: that of the job that asks.

    Raises
    ------
    NotFoundError
        When there is no such run, or it has no checkpoint.
    CheckpointError
        When the place cannot be read, or does not say what it is a checkpoint of.
    """
    path = Path(source).expanduser()
    if "://" in source:
        return _at(source.rstrip("/"))
    if is_path(source):
        folder = path.absolute()
        return _in_runs([folder], source) if (folder / JOB).exists() else _at(str(folder))
    if runs := list(_runs(source, but)):
        return _in_runs(runs, source)
    return _of_history(source)


def _in_runs(runs: list[Path], source: str) -> FoundCheckpoint:
    """Return the newest checkpoint of the newest of these runs that has one."""
    for run in runs:
        job = read_job(run)
        root = checkpoint_root(job.spec.checkpoint_url, str(run))
        if (manifest := newest_manifest(root)) is not None:
            data = replace(job.spec.data, path=redact(job.spec.data.path))
            trained = manifest.trained or Trained(job.spec.model, data, job.features)
            return _located(manifest, f"{root}/{manifest.number}", run.name, trained)
    raise NotFoundError(f"{redact(source)} has no checkpoint; {_ADVICE}")


def _runs(source: str, but: Path | None) -> Iterator[Path]:
    """Yield the run folders that a name, or the id of a run, stands for, the newest first."""
    job, _, began_s = source.rpartition("@")
    for path in sorted(jobs_folder().glob("*"), key=lambda path: path.name[-len("20000101T000000-000") :])[
        ::-1
    ]:
        if path == but or not (path / JOB).exists():
            continue
        is_id = job == job_of(path) and began_s.replace(".", "", 1).isdigit()
        if source in {path.name, job_of(path)} or (is_id and _began_near(path, float(began_s))):
            yield path


def _began_near(run: Path, at_s: float) -> bool:
    return abs(read_job(run).started_at_s - at_s) < CLOCK_S


def _at(url: str) -> FoundCheckpoint:
    """Return the checkpoint at a folder or URL: that of a checkpoint, of a run's, or of one run's parent."""
    with as_checkpoint_error(f"cannot read {redact(url)}", _ADVICE):
        fs, path, _ = place_of(url)
        fs.invalidate_cache()
        is_one = fs.exists(f"{path}/{MANIFEST}")
        runs = sorted({PurePosixPath(each).parts[-3] for each in fs.glob(f"{path}/*/*/{MANIFEST}")})
    if is_one:
        return _located(read_manifest(url), url, redact(url))
    if (manifest := newest_manifest(url)) is not None:
        return _located(manifest, f"{url}/{manifest.number}", redact(url))
    if len(runs) > 1:
        named = ", ".join(runs[-3:])
        raise NotFoundError(f"{redact(url)} has checkpoints of {len(runs)} runs; add the run's name: {named}")
    if not runs:
        raise NotFoundError(f"there is no complete checkpoint at {redact(url)}; {_ADVICE}")
    return _at(f"{url}/{runs[0]}")


def _located(manifest: Manifest, url: str, run: str, trained: Trained | None = None) -> FoundCheckpoint:
    """Return a checkpoint with its files where its manifest is, however its folder got there."""
    trained = trained or manifest.trained
    if trained is None:
        raise CheckpointError(
            f"the checkpoint at {redact(url)} is of release 0.1, which did not note the model; "
            "name its run folder instead"
        )
    files = tuple((f"{url}/{PurePosixPath(path).name}", sha256) for path, sha256 in manifest.files)
    place = f"checkpoint {manifest.number} of {run}"
    return FoundCheckpoint(replace(manifest, files=files), trained, place)


def _of_history(source: str) -> FoundCheckpoint:
    """Return the checkpoint of a run whose folder is gone and which kept its checkpoints elsewhere."""
    from dlrover_nb.core.history import HistoryStore  # noqa: PLC0415 - a client that submits nothing needs none

    store = HistoryStore.existing(None)
    try:
        runs = store.jobs() if store else ()
    finally:
        if store is not None:
            store.close()
    for run in runs:
        if source in {run.run, run.job} and run.spec.checkpoint_url:
            if PLACEHOLDER in run.spec.checkpoint_url:
                raise NotFoundError(
                    f"the checkpoints of run {run.run} are at {run.spec.checkpoint_url}, whose secret is not "
                    "stored; give the URL"
                )
            if (checkpoint := _at_address(run)) is not None:
                return checkpoint
    names = {run.job for run in runs} | {job for each in jobs_folder().glob("*") if (job := job_of(each))}
    near = difflib.get_close_matches(source, sorted(names), n=1)
    hint = f"did you mean {near[0]}?" if near else "give a run folder, or the URL of a checkpoint"
    raise NotFoundError(f"no run {source!r} with a checkpoint on the master's host or in its history; {hint}")


def _at_address(run: JobRun) -> FoundCheckpoint | None:
    """Return the newest checkpoint that a run of the history left at its address."""
    address = run.spec.checkpoint_url.rstrip("/")
    with as_checkpoint_error(f"cannot read {redact(address)}", _ADVICE):
        fs, path, _ = place_of(address)
        names = {PurePosixPath(each).parts[-3] for each in fs.glob(f"{path}/{run.job}-*/*/{MANIFEST}")}
    end_s = float("inf") if run.ended_at_s is None else run.ended_at_s + CLOCK_S
    manifests = [(f"{address}/{name}", newest_manifest(f"{address}/{name}")) for name in sorted(names)]
    mine = [(url, m) for url, m in manifests if m is not None and run.started_at_s <= m.at_s <= end_s]
    if not mine:
        return None
    url, manifest = max(mine, key=lambda each: each[1].at_s)
    return _located(manifest, f"{url}/{manifest.number}", run.run)
