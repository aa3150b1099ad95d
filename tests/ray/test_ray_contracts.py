"""The contracts of backend, link and cluster, met by the local Ray that the tests share."""

from __future__ import annotations

from dataclasses import replace

import psutil
import pytest
from support.conformance.backend import BackendConformance
from support.conformance.cluster import ClusterConformance
from support.conformance.link import LinkConformance
from support.waiting import until

from dlrover_nb.core.backends.ray.backend import RayBackend
from dlrover_nb.core.backends.ray.head import running_head
from dlrover_nb.core.backends.ray.local_ray import LocalRay
from dlrover_nb.core.backends.ray.near_masters import NearLink, address_of, runs_of

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


class TestLocalRay(ClusterConformance):
    """The same head as a call of a shell meets it."""

    spec = replace(ClusterConformance.spec, name="near-contract")

    @pytest.fixture(scope="class")
    @classmethod
    def cluster(cls, cluster):  # noqa: ARG003 - the head must be up
        return LocalRay(running_head())


class TestNearLink(LinkConformance):
    name = "near-link"

    @pytest.fixture(scope="class")
    @classmethod
    def link(cls, cluster):
        handle = cluster.submit(replace(ClusterConformance.spec, name=cls.name))
        until(lambda: handle.snapshot().train.n_sample_done, what="training")
        link = LocalRay(running_head()).job(cls.name).link
        assert isinstance(link, NearLink)
        yield link
        cluster.delete(cls.name, force=True)


def test_a_killed_master_is_reached_by_ray_which_restarts_it(cluster):
    head = running_head()
    name = cluster.submit(replace(ClusterConformance.spec, name="killed-near")).name
    folder = until(lambda: runs_of(head).get(name), what="its run folder")
    until(lambda: address_of(folder, head), what="the address of its master")
    link = LocalRay(head).job(name).link
    first = address_of(folder, head)
    psutil.Process(first.pid).kill()
    assert link.snapshot().spec.name == name
    second = until(lambda: address_of(folder, head), what="the address of the next master")
    assert second.pid != first.pid
    assert link.summary().name == name
    cluster.delete(name, force=True)


class TestRayLink(LinkConformance):
    name = "link-contract"

    @pytest.fixture(scope="class")
    @classmethod
    def link(cls, cluster):
        handle = cluster.submit(replace(ClusterConformance.spec, name=cls.name))
        until(lambda: handle.snapshot().train.n_sample_done, what="training")
        yield handle.link
        cluster.delete(cls.name, force=True)
