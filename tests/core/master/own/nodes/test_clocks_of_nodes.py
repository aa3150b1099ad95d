"""A node's own clock says nothing to the master: what arrives is stamped with the time of its receipt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.master.master_world import World, in_place, plan, spec

from dlrover_nb.core.driver.loop import job_snapshot
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit
from dlrover_nb.core.structs.views.events import NodeReported
from dlrover_nb.core.structs.wire import messages as m

DAY_S = 86_400.0


def training() -> World:
    world = World(spec(plan(2, 1)))
    world.run_until(lambda: in_place(world, plan(2, 1)))
    world.at_s += DAY_S  # so that no clock is before the epoch
    world.events.clear()
    return world


def report(world: World, name: str, skew_s: float) -> None:
    sample = NodeSample(name, Role.WORKER, world.at_s + skew_s, 1.0, 1, 10, 0.1, TimeSplit(), 0.5, 100.0)
    world.do(world.master.on_message(name, m.Report(sample, None, 0), world.at_s))


@pytest.mark.parametrize("skew_s", [-60.0, 60.0, -DAY_S, DAY_S])
def test_a_node_with_another_clock_counts_while_it_reports_and_no_longer(skew_s: float) -> None:
    world = training()
    report(world, "worker-0", skew_s)
    report(world, "worker-1", 0.0)
    nodes = world.master.nodes
    assert job_snapshot.samples_per_s(nodes, world.at_s) == 20.0
    assert job_snapshot.samples_per_s(nodes, world.at_s + job_snapshot.FRESH_S + 0.1) == 0.0


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(-DAY_S, DAY_S)), max_size=10))
def test_reports_are_in_the_order_of_their_arrival_whatever_the_clocks_of_nodes(
    reports: list[tuple[float, float]],
) -> None:
    world = training()
    sent = []
    for wait_s, skew_s in reports:
        world.at_s += wait_s
        report(world, "worker-0", skew_s)
        sent.append(world.at_s)
    told = [event for event in world.events if isinstance(event, NodeReported)]
    assert [event.at_s for event in told] == [event.sample.at_s for event in told] == sent
