"""The contract of a cluster, met by Kubernetes: an API server with a machine on paper, which runs no pods.

So the job never trains: what only its master could say is tested where pods run (`test_job_in_pods`).
"""

from __future__ import annotations

import pytest
import yaml
from kubernetes import utils
from support.conformance.cluster import ClusterConformance
from support.kubernetes.kube import await_rights

from dlrover_nb.core.backends.kubernetes.jobs.access import check_access
from dlrover_nb.core.backends.kubernetes.jobs.load import NO_MACHINES, NO_METRICS, NO_PODS
from dlrover_nb.core.errors import NotAllowedError

pytestmark = pytest.mark.more


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


@pytest.mark.kube
def test_who_has_rights_in_the_namespace_alone_is_told_what_cannot_be_read(free_place, control_plane):
    alice = free_place.connect(control_plane.alice)
    with pytest.raises(NotAllowedError, match="alice may not"):
        alice.load()
    documents = list(yaml.safe_load_all(check_access(alice.api).ask()))
    utils.create_from_yaml(free_place.core.api_client, yaml_objects=documents)
    await_rights(alice.api)
    load = alice.load()
    assert load.notes == (NO_MACHINES, NO_PODS, NO_METRICS)
    assert (load.has, load.others, load.idle, load.used) == (None, None, None, None)
    assert free_place.cluster.load().has is not None  # who may list machines sees them
