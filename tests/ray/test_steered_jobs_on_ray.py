"""Auto mode, warm start and forecast memory on a real local Ray."""

from __future__ import annotations

import pytest
from steering_conformance import LeakConformance

pytestmark = pytest.mark.ray


class TestRaySteering(LeakConformance):
    LONG = ("test_a_worker_that_climbs_to_its_limit_gets_more_before_it_is_killed_as_one_unwarned_is",)

    @pytest.fixture(scope="class")
    @classmethod
    def core(cls, cluster):
        return cluster
