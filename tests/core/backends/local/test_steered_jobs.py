"""Auto mode, warm start and forecast memory on jobs of local processes."""

from __future__ import annotations

import pytest
from steering_conformance import ClimbConformance

from dlrover_nb.core.connect import connect


class TestLocalSteering(ClimbConformance):
    LONG = (  # as a PS that climbs
        "test_a_worker_that_climbs_to_its_limit_gets_more_before_it_is_killed_as_one_unwarned_is",
    )

    @pytest.fixture(scope="class")
    @classmethod
    def core(cls, own_home):  # noqa: ARG003 - where its jobs and their history lie
        cluster = connect("local", cpus=3.0)
        yield cluster
        cluster.shutdown(force=True)
