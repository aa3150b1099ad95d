"""A window holds the parts of its workers' iterations, where they are measured."""

from dataclasses import replace

import pytest

from dlrover_nb.core.controller.measured.windows import SteadyWindows
from dlrover_nb.core.controller.settings import ControllerSettings
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit

PLAN = ResourcePlan(RolePlan(2, 1.0, 1024), RolePlan(1, 1.0, 512))


def shares(*splits):
    """Return the parts of all windows in which each worker reports one of these each second."""
    windows, found = SteadyWindows(ControllerSettings(), JobSpec("parts", plan=PLAN, batch_size=512)), []
    windows.restart(PLAN, 0.0)
    for second in range(1, 40):
        for i, split in enumerate(splits):
            report = NodeSample(
                f"w{i}", Role.WORKER, float(second), 1.0, 20, 10_240, split.total_s, split, 0.5, 300.0
            )
            found += windows.add(report, float(second))
    assert found
    return {(w.compute_share, w.wait_share) for w in found}


def test_idle_time_is_no_part_of_an_iteration():
    calm = TimeSplit(compute_s=0.02, lookup_s=0.01, update_s=0.01, other_s=0.01)
    ((compute, wait),) = {
        tuple(round(s, 9) for s in pair) for pair in shares(calm, replace(calm, idle_s=9.0))
    }
    assert (compute, wait) == (0.4, 0.4)


def test_parts_are_those_of_all_workers_together():
    slow, fast = TimeSplit(compute_s=0.3, lookup_s=0.1), TimeSplit(compute_s=0.1, lookup_s=0.3)
    for compute, wait in shares(slow, fast):
        assert 0.25 < compute < 0.75
        assert compute + wait == pytest.approx(1.0)


@pytest.mark.parametrize(
    "split", [TimeSplit(), TimeSplit(other_s=0.05), TimeSplit(other_s=0.05, compute_s=0.001)]
)
def test_an_iteration_that_was_not_divided_has_no_parts(split):
    assert shares(split, split) == {(None, None)}
