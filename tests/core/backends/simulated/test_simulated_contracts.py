"""The contracts of link and cluster, met by a simulated cluster.

It meets no contract of a backend: its nodes are no processes. What a simulated job leaves nothing of cannot
be deleted.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.conformance.cluster import PLAN, ClusterConformance
from support.conformance.link import LinkConformance
from support.waiting import until

from dlrover_nb.core.connect import connect
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import RolePlan

ROOMY = replace(PLAN, ps=RolePlan(1, 1.0, 8192))  # a simulated PS grows with its table
SPEC = JobSpec("contract", plan=ROOMY, mode=Mode.MANUAL, n_epoch=5000)


@pytest.fixture(scope="module")
def simulated():
    cluster = connect("sim", machines=4)
    yield cluster
    cluster.shutdown(force=True)


class TestSimulatedCluster(ClusterConformance):
    spec = SPEC
    deletes = False

    @pytest.fixture(scope="class")
    @classmethod
    def cluster(cls, simulated):
        return simulated


class TestSimulatedLink(LinkConformance):
    name = "link-contract"

    @pytest.fixture(scope="class")
    @classmethod
    def link(cls, simulated):
        handle = simulated.submit(replace(SPEC, name=cls.name))
        until(lambda: handle.snapshot().train.n_sample_done, what="training")
        return handle.link
