"""What stands on machines of Kubernetes, by what each right lets a user list."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.backends.kubernetes.jobs.load import (
    NO_MACHINES,
    NO_METRICS,
    NO_PODS,
    ClusterObjects,
    load_of,
)
from dlrover_nb.core.structs.cluster.cluster_load import Amount


def node(name, cpu="4", memory="8Gi"):
    return {"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "memory": memory}}}


def pod(cpu="1", memory="1Gi", at="a", *, namespace="team", job="", phase="Running"):
    labels = {"dlrover-nb/job": job} if job else {}
    return {
        "metadata": {"name": "p", "namespace": namespace, "labels": labels},
        "spec": {
            "nodeName": at,
            "containers": [{"resources": {"requests": {"cpu": cpu, "memory": memory}}}],
        },
        "status": {"phase": phase},
    }


def metrics(name, cpu="250m", memory="512Mi"):
    return {"metadata": {"name": name}, "usage": {"cpu": cpu, "memory": memory}}


PODS = (
    pod(job="ctr"),
    pod("500m", job="ctr", at="b"),
    pod("2", "2Gi", namespace="other"),
    pod("1", namespace="other", job="ctr"),  # a job of that name elsewhere is somebody else's
    pod("3", job="ctr", phase="Succeeded"),
    pod("3", job="ctr", at=None),
)
SEEN = ClusterObjects(
    "team", (node("b"), node("a")), PODS, sees_all=True, metrics=(metrics("a"), metrics("b"))
)


def test_pods_hold_what_they_request_where_they_stand_while_they_live():
    a, b = load_of(SEEN).machines
    assert (a.name, a.jobs, a.others, a.idle) == (
        "a", (("ctr", Amount(1, 1024)),), Amount(3, 3072), Amount(0, 4096)
    )  # fmt: skip
    assert (b.name, b.by_jobs, b.others, b.idle) == ("b", Amount(0.5, 1024), Amount(0, 0), Amount(3.5, 7168))
    assert load_of(SEEN).used == Amount(0.5, 1024)
    assert load_of(SEEN).notes == ()


def test_without_metrics_the_use_is_told_as_not_measured():
    load = load_of(replace(SEEN, metrics=None))
    assert (load.used, load.notes) == (None, (NO_METRICS,))
    assert load.idle == load_of(SEEN).idle


def test_without_pods_of_others_nothing_is_said_to_be_idle():
    own = tuple(each for each in PODS if each["metadata"]["namespace"] == "team")
    load = load_of(replace(SEEN, pods=own, sees_all=False))
    assert (load.others, load.idle, load.has) == (None, None, Amount(8, 16384))
    assert load.notes == (NO_PODS,)


def test_machines_that_may_not_be_listed_are_those_where_our_pods_stand():
    own = (pod(job="ctr"), pod(job="ctr", at="b"), pod(at="c"))
    load = load_of(ClusterObjects("team", None, own, sees_all=False, metrics=None))
    assert [(m.name, m.has, m.by_jobs.cpu) for m in load.machines] == [("a", None, 1.0), ("b", None, 1.0)]
    assert load.notes == (NO_MACHINES, NO_PODS, NO_METRICS)


CPUS = st.integers(1, 4000).map("{}m".format)


@given(
    st.lists(
        st.builds(pod, CPUS, st.sampled_from(["1Mi", "3Gi"]), st.sampled_from("ab"),
                  namespace=st.sampled_from(["team", "other"]), job=st.sampled_from(["", "x", "y"]))
    )
)  # fmt: skip
def test_what_is_held_is_the_sum_of_all_requests(pods):
    load = load_of(replace(SEEN, pods=tuple(pods)))
    told = sum(int(p["spec"]["containers"][0]["resources"]["requests"]["cpu"][:-1]) for p in pods) / 1000
    assert load.by_jobs.cpu + load.others.cpu == pytest.approx(told)
    for machine in load.machines:
        assert machine.held.cpu + machine.idle.cpu - machine.over.cpu == pytest.approx(machine.has.cpu)
