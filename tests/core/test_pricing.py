from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.pricing import cost_per_hour, cost_per_million, costs
from dlrover_nb.core.structs.plan.prices import PriceTable
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

roles = st.builds(
    RolePlan,
    st.integers(1, 50),
    st.floats(0.1, 32).map(lambda c: round(c, 2)),
    st.integers(64, 9999),
    st.integers(0, 3),
)


@settings(deadline=None)
@given(worker=roles, ps=roles)
def test_many_plans_are_priced_like_one(worker, ps):
    plan, prices = ResourcePlan(worker, ps), PriceTable(cpu_hour=0.05, gib_hour=0.007, gpu_hour=0.4)
    axes = np.array([[worker.count, ps.count, worker.cpu, ps.cpu]])
    many = costs(axes, worker.memory_mib, ps.memory_mib, prices, plan.gpus)
    assert many[0] == pytest.approx(cost_per_hour(plan, prices), rel=1e-3)


def test_price_of_a_known_plan():
    plan = ResourcePlan(RolePlan(2, 4, 8192), RolePlan(1, 2, 4096))
    assert cost_per_hour(plan, PriceTable(cpu_hour=0.1, gib_hour=0.01)) == pytest.approx(1.2)
    assert cost_per_million(3.6, 1000) == pytest.approx(1.0)


def test_a_gpu_has_no_assumed_price_and_costs_nothing_where_there_is_none():
    plain = ResourcePlan(RolePlan(2, 4, 8192), RolePlan(1, 2, 4096))
    with_gpus = plain.with_gpus((2, 0))
    assert cost_per_hour(with_gpus, PriceTable()) is None
    table = PriceTable(cpu_hour=0.1, gib_hour=0.01, gpu_hour=0.5)
    assert cost_per_hour(plain, table) == cost_per_hour(plain, PriceTable(cpu_hour=0.1, gib_hour=0.01))
    assert cost_per_hour(with_gpus, table) == pytest.approx(1.2 + 4 * 0.5)


unknown = st.sampled_from([(None, 0.01), (0.1, None), (None, None)])


@settings(deadline=None)
@given(worker=roles, ps=roles, prices=unknown)
def test_unknown_price_gives_no_money_but_an_order_of_plans(worker, ps, prices):
    plan, table = ResourcePlan(worker, ps), PriceTable(cpu_hour=prices[0], gib_hour=prices[1])
    assert cost_per_hour(plan, table) is None
    axes = np.array([[worker.count, ps.count, worker.cpu, ps.cpu]])
    many = costs(axes, worker.memory_mib, ps.memory_mib, table, plan.gpus)
    assert many[0] == pytest.approx(plan.effort, abs=0.01)
    assert cost_per_million(None, 1000) is None


def test_where_nothing_costs_anything_plans_are_ordered_by_their_resources():
    plan, free = ResourcePlan(RolePlan(2, 4, 8192), RolePlan(1, 2, 4096)), PriceTable(cpu_hour=0, gib_hour=0)
    assert cost_per_hour(plan, free) == 0
    assert costs(np.array([[2.0, 1.0, 4.0, 2.0]]), 8192, 4096, free)[0] == plan.effort == 10 + 20 / 8
