"""An all-reduce job of our own model as the external job that its master runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec, Framework

if TYPE_CHECKING:
    from dlrover_nb.core.structs.data.features import FeatureSpec
    from dlrover_nb.core.structs.job.job import JobSpec

ORIGIN_FILE = "origin.json"  # of the run folder: the manifest of the checkpoint that the job begins from
PROGRAM = "dlrover_nb.core.runtime.allreduce.program"


def with_workers(spec: JobSpec, features: FeatureSpec, *, python: str) -> JobSpec:
    """Return an all-reduce job with the programs of its workers.

    Parameters
    ----------
    spec, features
        The validated job and its columns.
    python
        The interpreter that runs them.

    Raises
    ------
    InvalidValueError
        When it asks for what only jobs with parameter servers can do.
    """
    for name, is_asked, instead in (
        (
            "the rows of a checkpoint",
            spec.start_from is not None and spec.start_from.rows,
            "begin from its parameters alone (without --from-rows)",
        ),
        ("a stream of rows", features.is_stream, "give rows with an end"),
    ):
        if is_asked:
            raise InvalidValueError(
                f"a job with sync allreduce cannot have {name} yet; {instead}, or choose sync bsp"
            )
    worker = ExternalRole((python, "-m", PROGRAM))
    n_sample = features.n_train * spec.n_epoch
    return replace(spec, foreign=ExternalSpec(worker, n_sample, framework=Framework.DDP))
