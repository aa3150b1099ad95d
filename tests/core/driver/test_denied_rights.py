"""A right that a job lacks while it trains is told in its status and in its story."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.backends.local.backend import LocalBackend
from dlrover_nb.core.structs.job import JobPhase

if TYPE_CHECKING:
    from collections.abc import Callable

    from real_job import Job

MISSING = "the master may not create pods; restore its Role, and the job goes on by itself"


class Denied(LocalBackend):
    """Processes whose cluster takes a right away."""

    missing = ""

    def denied(self) -> str:
        return self.missing


def test_a_missing_right_is_told_while_the_job_trains_and_so_is_its_return(start: Callable[..., Job]) -> None:
    job = start(backend=Denied, n_epoch=1_000)
    job.until(lambda now: now.phase is JobPhase.TRAINING)
    job.backend.missing = MISSING  # type: ignore[attr-defined]  # the backend is the one above
    job.until(lambda now: now.message == MISSING)
    assert job.story_has(MISSING)
    job.backend.missing = ""  # type: ignore[attr-defined]  # as above
    job.until(lambda now: now.message != MISSING)
    assert job.story_has("is allowed again")
    assert sum(MISSING in line for line in job.now.story) == 1
    job.driver.stop("ada")
    assert job.until_end().phase is JobPhase.STOPPED
