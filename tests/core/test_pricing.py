from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.pricing import cost_per_hour, cost_per_million, costs_per_hour
from dlrover_nb.core.structs.resources import PriceTable, ResourcePlan, RolePlan

roles = st.builds(
    RolePlan, st.integers(1, 50), st.floats(0.1, 32).map(lambda c: round(c, 2)), st.integers(64, 9999)
)


@settings(deadline=None)
@given(worker=roles, ps=roles)
def test_many_plans_are_priced_like_one(worker, ps):
    plan, prices = ResourcePlan(worker, ps), PriceTable(cpu_hour=0.05, gib_hour=0.007)
    axes = np.array([[worker.count, ps.count, worker.cpu, ps.cpu]])
    many = costs_per_hour(axes, worker.memory_mib, ps.memory_mib, prices)
    assert many[0] == pytest.approx(cost_per_hour(plan, prices), rel=1e-3)


def test_price_of_a_known_plan():
    plan = ResourcePlan(RolePlan(2, 4, 8192), RolePlan(1, 2, 4096))
    assert cost_per_hour(plan, PriceTable(cpu_hour=0.1, gib_hour=0.01)) == pytest.approx(1.2)
    assert cost_per_million(3.6, 1000) == pytest.approx(1.0)
