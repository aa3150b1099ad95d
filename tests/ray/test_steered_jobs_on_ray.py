"""Auto mode and warm start on a real local Ray."""

from __future__ import annotations

import pytest
from steering_conformance import SteeringConformance

pytestmark = pytest.mark.ray


class TestRaySteering(SteeringConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def core(cls, cluster):
        return cluster
