"""Auto mode, warm start and forecast memory on a real local Ray."""

from __future__ import annotations

import pytest
from support.conformance.steering import LeakConformance

pytestmark = pytest.mark.ray


@pytest.mark.release
class TestRaySteering(LeakConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def core(cls, cluster):
        return cluster
