"""What a submit can promise of a deadline, by the user's history.

The client asks before the job runs, so that an infeasible deadline is said where it is set. It is the answer
of the job's own controller at its submission, made of the same past jobs; but a first plan of the policy
`qore`, whose master sizes it for the deadline, is not known here, as learning it takes seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from dlrover_nb.core.structs.data.features import FeatureSpec
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.plan.deadline import DeadlineOutlook


def deadline_outlook(
    spec: JobSpec, features: FeatureSpec, capacity: Capacity, folder: Path
) -> DeadlineOutlook | None:
    """Return what can be promised of a new job's deadline; None without one, or where nothing is known.

    Where nothing is known, the job says it as soon as it is measured. `folder` is its run folder.
    """
    if spec.due_s(0.0) is None or spec.foreign is not None:
        return None
    # A submit without a deadline does not load the planner.
    from dlrover_nb.core.clock import SystemClock  # noqa: PLC0415 - see above
    from dlrover_nb.core.controller.controller import Controller  # noqa: PLC0415 - see above
    from dlrover_nb.core.driver.history_writer import examples  # noqa: PLC0415 - see above
    from dlrover_nb.core.driver.job_start import initial_plan, submitted, traits_of  # noqa: PLC0415 - see above

    begun = initial_plan(spec, traits_of(spec, features, folder), capacity, examples(None))
    at_s = SystemClock().now_s()  # a deadline may be a moment
    return Controller(submitted(begun, capacity, at_s, folder=str(folder))).view().deadline
