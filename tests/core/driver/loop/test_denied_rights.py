"""A right that a job lacks while it trains is told in its status and in its story."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.structs.job.job import JobPhase

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.driver.driver_world import DriverWorld

MISSING = "the master may not create pods; restore its Role, and the job goes on by itself"


def test_a_missing_right_is_told_while_the_job_trains_and_so_is_its_return(
    play: Callable[..., DriverWorld],
) -> None:
    job = play(n_epoch=100)
    job.until(lambda now: now.phase is JobPhase.TRAINING)
    job.backend.missing = MISSING
    job.until(lambda now: now.message == MISSING)
    assert job.story_has(MISSING)
    job.backend.missing = ""
    job.until(lambda now: now.message != MISSING)
    assert job.story_has("the missing right is back")
    assert sum(MISSING in line for line in job.now.story) == 1
    job.driver.stop("ada")
    assert job.until_end().phase is JobPhase.STOPPED
