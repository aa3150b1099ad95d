"""Auto mode, warm start and forecast memory on jobs of local processes."""

from __future__ import annotations

import pytest
from support.conformance.steering import ClimbConformance

from dlrover_nb.core.connect import connect


@pytest.mark.more
class TestLocalSteering(ClimbConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def core(cls, own_home):  # noqa: ARG003 - where its jobs and their history lie
        cluster = connect("local", cpus=3.0)
        yield cluster
        cluster.shutdown(force=True)
