"""What pods say about their nodes: documents that a real cluster told, and those that it cannot tell here."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.backends.kubernetes.nodes.pod_status import (
    MEND_LIMIT_S,
    PULL_LIMIT_S,
    Ended,
    Leaving,
    Preparing,
    Running,
    Waiting,
    pod_status,
    trouble,
)

RECORDED = json.loads((Path(__file__).parent / "pods_recorded.json").read_text())


def last(name):
    return pod_status(name, RECORDED[name][-1])


def pod(status, **metadata):
    return {
        "metadata": {"name": "p", "uid": "u", **metadata},
        "spec": {"nodeName": "node1", "containers": [{"name": "node"}]},
        "status": status,
    }


def ended(reason="Error", code=1, message="", **status):
    state = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
    return pod({"phase": "Failed", "containerStatuses": [{"name": "node", "state": state}], **status})


@for_each(
    ("name", "why"),
    [
        ("exit-0", "ended by itself"),
        ("exit-3", "exit code 3: a line"),
        ("told", "exit code 1: expected x, got y"),
        ("signal", "killed by signal 11 (SIGSEGV)"),
        ("killed", "killed by signal 9 (SIGKILL)"),
        ("deleted", "a user or program deleted its pod"),
        ("evicted", 'evicted (Evicted): Usage of EmptyDir volume "tmp" exceeds the limit "20Mi".'),
        (
            "out-of-cpu",
            "OutOfcpu: Pod Node didn't have enough resource: cpu, requested: 900000, used: 500, capacity: 2000",
        ),
        (
            "affinity",
            "its machine no longer has the labels that it needs (NodeAffinity): Pod Predicate NodeAffinity failed",
        ),
    ],
)
def test_an_end_that_another_node_may_not_have_is_told_in_words(name, why):
    verdict = last(name)
    assert isinstance(verdict, Ended)
    assert verdict.is_final
    assert verdict.exited.why == why
    assert verdict.exited.retryable
    assert not verdict.exited.out_of_memory
    assert verdict.exited.was_killed == (name == "killed")


@pytest.mark.parametrize("name", ["oom", "oom-child"])
def test_want_of_memory_is_known_even_when_only_a_child_of_the_program_died(name):
    exited = last(name).exited
    assert exited.out_of_memory
    assert exited.was_killed
    assert exited.retryable
    assert "OOMKilled" in exited.why


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("never-pull", "ErrImageNeverPull"),
        ("bad-image", "InvalidImageName"),
        ("no-program", 'exec: "/no/such/program"'),
    ],
)
def test_what_a_new_node_would_end_of_too_is_not_tried_again(name, why):
    exited = last(name).exited
    assert why in exited.why
    assert not exited.retryable


@for_each(
    ("name", "why", "limit_s"),
    [
        ("too-large", "0/2 nodes are available: 2 Insufficient cpu.", None),
        ("selector", "didn't match Pod's node affinity", None),
        ("no-claim", 'persistentvolumeclaim "missing" not found', None),
        ("pull", "registry.invalid/team/missing:1", PULL_LIMIT_S),
        ("no-secret", 'CreateContainerConfigError: secret "missing" not found', MEND_LIMIT_S),
        ("root", "image will run as root", MEND_LIMIT_S),
    ],
)
def test_what_may_still_come_is_waited_for_with_the_clusters_reason(name, why, limit_s):
    verdict = last(name)
    assert isinstance(verdict, Waiting)
    assert why in verdict.why
    assert verdict.limit_s == limit_s


def test_a_pods_life_is_read_in_its_order():
    kinds = [type(pod_status("deleted", each)) for each in RECORDED["deleted"]]
    order = [Preparing, Running, Leaving, Ended]
    assert [kind for n, kind in enumerate(kinds) if n == 0 or kinds[n - 1] is not kind] == order
    assert pod_status("running", RECORDED["running"][-1]) == Running()
    assert pod_status("deleted", RECORDED["deleted"][-2]) == Leaving(2.0, "", "node2")


@for_each(
    ("reason", "why"),
    [
        ("PreemptionByScheduler", "preempted by a pod of higher priority"),
        ("DeletionByTaintManager", "its machine does not answer, or no longer takes such pods"),
        ("EvictionByEvictionAPI", "evicted, for example because its machine is drained"),
        ("SomethingNew", "SomethingNew"),
    ],
)
def test_who_disrupts_a_pod_is_told_where_the_cluster_says_it(reason, why):
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "for x"}
    document = ended(code=143, conditions=[condition])
    document["metadata"]["deletionTimestamp"] = "2026-11-21T23:30:55Z"
    assert pod_status("n", document).exited.why == f"{why}: for x"
    del document["status"]["containerStatuses"]
    document["status"]["phase"] = "Running"
    assert pod_status("n", document) == Leaving(0.0, f"{why}: for x", "node1")


@pytest.mark.parametrize("reason", ["Shutdown", "NodeShutdown", "Terminated"])
def test_a_machine_that_is_shut_down_is_no_fault_of_the_node(reason, words):
    exited = pod_status(
        "n", ended(code=137, reason="Error") | {"status": {"phase": "Failed", "reason": reason}}
    ).exited
    assert exited.why == words
    assert (exited.retryable, exited.was_killed) == (True, False)


def test_too_little_memory_to_begin_with_is_want_of_memory():
    told = "container init was OOM-killed (memory limit too low?): unknown"
    assert pod_status("n", ended("StartError", 128, told)).exited.out_of_memory


def test_a_start_that_failed_for_another_reason_may_be_tried_again(words):
    exited = pod_status("n", ended("StartError", 128, "cgroup: device or resource busy")).exited
    assert exited.retryable
    assert exited.why == words


def test_a_container_that_is_put_beside_ours_hides_nothing():
    document = ended(code=3)
    beside = {"name": "proxy", "state": {"running": {}}}
    document["status"] = {
        "phase": "Running",
        "containerStatuses": [beside, *document["status"]["containerStatuses"]],
    }
    verdict = pod_status("n", document)
    assert verdict.exited.why == "exit code 3"
    assert not verdict.is_final  # the other one runs: the pod is to be removed
    document["spec"] = {
        "containers": [{"name": "proxy"}, {"name": "node"}]
    }  # a mesh holds ours until its own runs
    assert pod_status("n", document) == verdict


def test_the_end_of_a_log_is_told_without_its_head_and_not_at_length(words):
    logged = "2026-11-21T23:30:55.123Z ERROR dlrover_nb: no rows in /data\n\n"
    assert pod_status("n", ended(message=logged)).exited.why == words
    told = pod_status("n", ended(message="x" * 4000)).exited.why
    assert len(told) < 400
    assert "\n" not in pod_status("n", ended("StartError", 128, "a\nb")).exited.why


def event(reason, message="", kind="Warning", at="2026-11-21T23:30:55Z"):
    return {"type": kind, "reason": reason, "message": message, "lastTimestamp": at}


def test_events_say_why_a_container_takes_long(words):
    mount = event("FailedMount", 'secret "conform-job" not found', at="2026-11-21T23:31:55Z")
    beside = event("MissingClusterDNS", "no DNS", at="2026-11-21T23:32:55Z")
    placed = event("Scheduled", "assigned", "Normal", "2026-11-21T23:33:55Z")
    assert trouble([event("FailedMount", "earlier"), mount, beside, placed]) == words
    assert trouble([event("Pulling", "Pulling image", "Normal")]) == "Pulling: Pulling image"
    assert trouble([placed, beside]) == ""


texts = st.text(max_size=20)
states = st.fixed_dictionaries(
    {},
    optional={
        "running": st.just({}),
        "waiting": st.fixed_dictionaries({}, optional={"reason": texts, "message": texts}),
        "terminated": st.fixed_dictionaries(
            {"exitCode": st.integers(-1, 300)},
            optional={"reason": texts, "message": texts, "signal": st.integers()},
        ),
    },
)
statuses = st.fixed_dictionaries(
    {},
    optional={
        "phase": st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown", ""]),
        "reason": texts,
        "message": texts,
        "containerStatuses": st.lists(st.fixed_dictionaries({"name": texts, "state": states}), max_size=2),
        "conditions": st.lists(
            st.fixed_dictionaries(
                {"type": st.sampled_from(["PodScheduled", "DisruptionTarget", "Ready"]), "status": texts}
            ),
            max_size=2,
        ),
    },
)


@pytest.mark.more
@given(statuses, st.booleans())
def test_any_status_has_one_meaning_and_a_reason_in_one_line(status, is_deleted):
    metadata = {"deletionTimestamp": "2026-11-21T23:30:55Z"} if is_deleted else {}
    verdict = pod_status("n", pod(status, **metadata))
    told = verdict.exited.why if isinstance(verdict, Ended) else getattr(verdict, "why", "")
    assert "\n" not in told
    if isinstance(verdict, Ended):
        assert told
    if status.get("phase") in {"Failed", "Succeeded"}:
        assert isinstance(verdict, Ended)
        assert verdict.is_final
