"""The contract of a cluster, met by Kubernetes: an API server with a machine on paper, which runs no pods.

So the job never trains: what only its master could say is tested where pods run (`test_job_in_pods`).
"""

from __future__ import annotations

import pytest
from cluster_conformance import ClusterConformance


@pytest.mark.kube
class TestKubernetesCluster(ClusterConformance):
    runs_nodes = False
    owns = False  # a shutdown only lets go of the cluster

    @pytest.fixture
    def cluster(self, free_place):
        return free_place.cluster

    @pytest.fixture
    def submitted(self, cluster):
        return cluster.submit(self.spec).name
