"""The checkpoint of an earlier run from which a job begins: found, compared, and made the job's own.

It becomes the checkpoint `ORIGIN` of the job: loaded by the first parameter servers, however many there are,
and by their successors until the job has written a checkpoint of its own. Files on the same disk get a second
name in the run folder, as a running job or a deleted run would take them away.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.redaction import redact
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.master.own.state.state import ORIGIN, RestorableCheckpoint, train_split
from dlrover_nb.core.rundir.find_checkpoint import find_checkpoint
from dlrover_nb.core.rundir.same_model import differences, encoded_as
from dlrover_nb.core.runtime.checkpoints import place_of
from dlrover_nb.core.runtime.checkpoints.first_parameters import find_first
from dlrover_nb.core.runtime.store import even_bucket_owner
from dlrover_nb.core.sharding.continued import continued, n_sample_of, untouched
from dlrover_nb.core.sharding.manifest import Manifest
from dlrover_nb.core.structs.job.spec_choices import DataFormat
from dlrover_nb.core.structs.job.start_from import BeganFrom
from dlrover_nb.core.structs.training.checkpoint_places import checkpoint_root

if TYPE_CHECKING:
    from dlrover_nb.core.rundir.find_checkpoint import FoundCheckpoint
    from dlrover_nb.core.sharding.split import LedgerCheckpoint
    from dlrover_nb.core.structs.data.features import FeatureSpec
    from dlrover_nb.core.structs.job.job import DataSpec, JobSpec


@dataclass(frozen=True, slots=True)
class Origin:
    """What a job begins from.

    Parameters
    ----------
    checkpoint
        With the number `ORIGIN` and the job's own account of rows.
    features
        The encoding of the job's rows, as the parameters were trained.
    began_from
        For views.
    """

    checkpoint: RestorableCheckpoint
    features: FeatureSpec
    began_from: BeganFrom


def origin_of(spec: JobSpec, features: FeatureSpec, *, folder: Path | None = None) -> Origin | None:
    """Return what a job begins from; None: untrained parameters.

    Parameters
    ----------
    folder
        The run folder of the job, once it has one.

    Raises
    ------
    NotFoundError, CheckpointError
        When there is no such checkpoint, or it cannot be read.
    InvalidValueError
        When it is of another model, of other columns, or its account of rows does not fit.
    """
    start = spec.start_from
    if start is None:
        return None if folder is None else _of_own_module(spec, features, folder)
    checkpoint = find_checkpoint(start.source, but=folder)
    if differing := differences(checkpoint.trained, spec.model, features):
        raise InvalidValueError(
            f"job {spec.name} cannot begin from {checkpoint.place}: {'; '.join(differing)}; "
            "make them the same, or leave start_from out"
        )
    features = encoded_as(checkpoint.trained, features)
    account = _account(spec, features, checkpoint)
    manifest = replace(checkpoint.manifest, number=ORIGIN, ledger=account, trained=None)
    if folder is not None and not spec.checkpoint_url:
        manifest = replace(manifest, files=_named_here(manifest.files, folder))
    began = BeganFrom(
        checkpoint.place, manifest.at_s, n_sample_of(account), manifest.spent if start.rows else 0.0
    )
    _check_budget(spec, began)
    none_in_memory = (None,) * len(manifest.files)
    return Origin(RestorableCheckpoint(manifest, none_in_memory, is_on_disk=True), features, began)


def _of_own_module(spec: JobSpec, features: FeatureSpec, folder: Path) -> Origin | None:
    """Return the parameters that a user's module had when it was submitted, if it brought any."""
    first = find_first(folder)
    if first is None:
        return None
    manifest = Manifest(
        ORIGIN,
        first.at_s,
        0,
        even_bucket_owner(1),
        ((first.place, first.sha256),),
        features.n_table_row,
        first.n_byte,
        untouched(train_split(spec, features)),
    )
    began = BeganFrom("the values of its own module", manifest.at_s)
    return Origin(RestorableCheckpoint(manifest, (None,), is_on_disk=True), features, began)


def trained_encoding(spec: JobSpec) -> FeatureSpec | None:
    """Return the encoding of the rows that a job's first parameters were trained with; None: untrained ones.

    Raises
    ------
    NotFoundError, CheckpointError
        When there is no such checkpoint, or it cannot be read.
    """
    return None if spec.start_from is None else find_checkpoint(spec.start_from.source).trained.features


def _check_budget(spec: JobSpec, began: BeganFrom) -> None:
    """Refuse a job that goes on with rows for which its whole budget was spent before."""
    limit, currency = spec.budget_total, spec.prices.currency
    if limit is not None and limit <= began.spent:
        raise InvalidValueError(
            f"budget_total must be more than {began.place} had spent on the rows that job {spec.name} goes "
            f"on with, {began.spent:,.4g} {currency}, got {limit:,.6g}; set a higher one, or leave "
            "--from-rows out to train all rows with a budget of their own"
        )


def _account(spec: JobSpec, features: FeatureSpec, checkpoint: FoundCheckpoint) -> LedgerCheckpoint:
    """Return the account of rows that the job begins with."""
    split = train_split(spec, features)
    assert spec.start_from is not None
    if not spec.start_from.rows:
        return untouched(split)
    try:
        _check_same_data(checkpoint.trained.data, spec.data)
        return continued(checkpoint.manifest.ledger, split)
    except InvalidValueError as error:
        raise InvalidValueError(f"job {spec.name} cannot go on from {checkpoint.place}: {error}") from error


def _check_same_data(old: DataSpec, new: DataSpec) -> None:
    """Refuse rows of another place; an own object pickled anew has another name and is not compared."""
    is_pickle = new.format == DataFormat.OWN and new.path.startswith("pickle:")
    then, now = (old.format, old.path), (new.format, redact(new.path))
    if then != now and not (is_pickle and old.format == new.format):
        raise InvalidValueError(
            f"it was trained on {' '.join(then).strip()}, this job reads {' '.join(now).strip()}; "
            "leave --from-rows out to train all rows, beginning with its parameters"
        )


def _named_here(files: tuple[tuple[str, str], ...], folder: Path) -> tuple[tuple[str, str], ...]:
    """Return the files under names of the run folder, or as they are where the disk refuses that."""
    place = Path(checkpoint_root("", str(folder))) / str(ORIGIN)
    named = []
    for url, sha256 in files:
        _, path, is_local = place_of(url)
        here = place / Path(path).name
        if is_local:
            with contextlib.suppress(OSError):
                place.mkdir(mode=0o700, parents=True, exist_ok=True)
                here.unlink(missing_ok=True)
                os.link(path, here)
        named.append((str(here) if is_local and here.exists() else url, sha256))
    return tuple(named)
