"""The contracts of backend, link and cluster, met by the local Ray that the tests share."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.conformance.backend import BackendConformance
from support.conformance.cluster import ClusterConformance
from support.conformance.link import LinkConformance
from support.waiting import until

from dlrover_nb.core.backends.ray.backend import RayBackend

pytestmark = [pytest.mark.ray, pytest.mark.more]


class TestRayBackend(BackendConformance):
    @pytest.fixture(autouse=True)
    def connected(self, cluster):
        """Connect this process to Ray."""

    def make(self, folder):  # noqa: ARG002 - as in the suite
        return RayBackend("conform", one_host=True)


class TestRayCluster(ClusterConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def cluster(cls, cluster):
        return cluster


class TestRayLink(LinkConformance):
    name = "link-contract"

    @pytest.fixture(scope="class")
    @classmethod
    def link(cls, cluster):
        handle = cluster.submit(replace(ClusterConformance.spec, name=cls.name))
        until(lambda: handle.snapshot().train.n_sample_done, what="training")
        yield handle.link
        cluster.delete(cls.name, force=True)
