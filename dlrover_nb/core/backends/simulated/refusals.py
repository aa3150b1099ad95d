"""What a simulated job cannot be: it has a model's size and speed, and no programs, code or parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.job.job import Sync

if TYPE_CHECKING:
    from dlrover_nb.core.structs.job.job import JobSpec


def check_simulated(spec: JobSpec, *, has_code: bool) -> None:
    """Refuse what only real jobs have.

    Raises
    ------
    InvalidValueError
        When the job has code or programs of its user, begins from a checkpoint, or trains by all-reduce.
    """
    if has_code:
        raise InvalidValueError(
            "a simulated cluster does not run your own code; name a built-in model, or connect ray"
        )
    if spec.foreign is not None:
        raise InvalidValueError(
            "a simulated cluster runs no programs of others; leave external out, or connect local"
        )
    if spec.start_from is not None:
        raise InvalidValueError(
            "a simulated job has no parameters to begin with; leave start_from out, or connect local"
        )
    if spec.sync is Sync.ALLREDUCE:
        raise InvalidValueError(
            "a simulated job trains with parameter servers; choose sync asp, bsp or ssp, or connect local"
        )
