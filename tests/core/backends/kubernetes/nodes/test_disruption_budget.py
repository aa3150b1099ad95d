"""The disruption budget of a job: what it says, when it changes, and that no job needs it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes.client.exceptions import ApiException
from support.kubernetes.kube import core_api
from support.waiting import until

from dlrover_nb.core.backends.kubernetes.client.api import connect_api
from dlrover_nb.core.backends.kubernetes.client.api_errors import (
    ApiError,
    Conflict,
    Forbidden,
    NotThere,
    Operation,
    Status,
    Unreachable,
)
from dlrover_nb.core.backends.kubernetes.jobs.access import check_access
from dlrover_nb.core.backends.kubernetes.jobs.submission import create
from dlrover_nb.core.backends.kubernetes.nodes.disruption_budget import (
    LOWER_AFTER_S,
    DisruptionBudget,
    budget,
)
from dlrover_nb.core.manifests.kinds import BUDGET, BUDGET_1_20, CONFIG_MAP, POD, ROLE, ROLE_BINDING, Kind
from dlrover_nb.core.manifests.objects import companions
from dlrover_nb.core.manifests.pod_parts import MASTER_ROLE, labels
from dlrover_nb.core.manifests.role_rules import BUDGETS, USER, binding, role
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.wire.pod_contract import PodJob

if TYPE_CHECKING:
    from dlrover_nb.core.manifests.kinds import Doc

RUN = "0a1b2c3d"
JOB = PodJob(JobSpec("clicks"), None, RUN, "p" * 40, "s" * 40, "t" * 32)
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "clicks", "uid": "1-2-3"}}


class Server:
    """Plays the API of budgets, as a server of 1.21 or later, or of 1.20."""

    def __init__(self, *served: Kind) -> None:
        self.served, self.written = served, list[tuple[str, Any]]()
        self.error: Exception | None = None

    def has(self, kind: Kind) -> bool:
        return kind in self.served

    def create(self, kind: Kind, doc: Doc) -> None:
        self._write("create", kind, doc)

    def patch(self, kind: Kind, name: str, doc: Doc) -> None:
        assert name == "clicks-budget"
        self._write("patch", kind, doc)

    def _write(self, verb: str, kind: Kind, doc: Doc) -> None:
        assert kind in self.served
        if self.error is not None and (verb == "create" or not isinstance(self.error, Conflict)):
            raise self.error
        self.written.append((verb, doc))

    @property
    def numbers(self) -> list[tuple[str, int]]:
        return [(verb, doc["spec"]["minAvailable"]) for verb, doc in self.written]


def kept(server: Server) -> DisruptionBudget:
    return DisruptionBudget(server, JOB, OWNER)  # type: ignore[arg-type]  # three calls of it are enough


def leaving(pods: list[Doc]) -> list[Doc]:
    """Return pods as they are while they are being deleted."""
    when = {"deletionTimestamp": "2026-11-21T23:30:55Z"}
    return [pod | {"metadata": pod["metadata"] | when} for pod in pods]


def servers(n: int, **status: str) -> list[Doc]:
    """Return the pods of parameter servers, beside those of workers."""
    roles = [("ps", i) for i in range(n)] + [("worker", i) for i in range(3)]
    return [
        {"metadata": {"labels": labels("clicks", RUN, role, f"{role}-{i}")}, "status": status}
        for role, i in roles
    ]


def error(kind: type[ApiError], code: int, reason: str) -> ApiError:
    return kind("no", Status(code, reason, "no"), Operation("create", BUDGET, "team"))


def test_of_the_master_and_the_parameter_servers_all_but_one_must_stay() -> None:
    server = Server(BUDGET, BUDGET_1_20)
    kept(server).follow(servers(3), 0.0)
    ((verb, made),) = server.written
    assert (verb, made["apiVersion"], made["kind"]) == ("create", "policy/v1", "PodDisruptionBudget")
    assert made["spec"]["minAvailable"] == 3
    assert made["metadata"]["ownerReferences"][0]["uid"] == "1-2-3"
    chosen = made["spec"]["selector"]
    (roles,) = chosen["matchExpressions"]
    for part, is_in in ((MASTER_ROLE, True), ("ps", True), ("worker", False)):
        told = labels("clicks", RUN, part)
        assert chosen["matchLabels"].items() <= told.items()
        assert (told[roles["key"]] in roles["values"]) is is_in


def test_a_server_of_1_20_gets_the_version_that_it_knows() -> None:
    server = Server(BUDGET_1_20)
    kept(server).follow(servers(1), 0.0)
    assert server.written[0][1]["apiVersion"] == "policy/v1beta1"


def test_more_parameter_servers_count_at_once_and_fewer_after_a_while() -> None:
    server = Server(BUDGET)
    followed = kept(server)
    followed.follow(servers(0), 0.0)  # before the first is made there is nothing to keep
    assert not server.written
    for n, at_s in (
        (2, 1.0),
        (2, 2.0),
        (4, 3.0),
        (3, 4.0),
        (4, 20.0),
        (3, 30.0),
        (3, 30.0 + LOWER_AFTER_S - 1),
    ):
        followed.follow(servers(n), at_s)
    assert server.numbers == [("create", 2), ("patch", 4)], "one that was evicted is being made again"
    followed.follow(servers(3), 30.0 + LOWER_AFTER_S)
    assert server.numbers[2:] == [("patch", 3)]


def test_while_one_that_is_evicted_moves_no_other_may_go_and_then_one_at_once() -> None:
    server = Server(BUDGET)
    followed = kept(server)
    one, other, successor = servers(3)[:3]
    followed.follow([one, other], 0.0)
    for pods, n_must_stay in (
        ([*leaving([one]), other], 3),
        ([*leaving([one]), other, successor], 3),
        ([other, successor], 2),
    ):
        followed.follow(pods, 1.0)
        assert server.numbers[-1][1] == n_must_stay


def test_one_whose_pod_has_ended_does_not_count() -> None:
    server = Server(BUDGET)
    kept(server).follow([*servers(2, phase="Running"), *servers(3, phase="Failed")], 0.0)
    assert server.numbers == [("create", 2)]


def test_after_the_end_of_the_run_its_master_may_be_evicted() -> None:
    server = Server(BUDGET)
    followed = kept(server)
    followed.follow(servers(2), 0.0)
    followed.end()
    followed.end()
    assert server.numbers == [("create", 2), ("patch", 0)]


def test_a_budget_that_is_there_is_taken_over_whole() -> None:
    server = Server(BUDGET)
    server.error = error(Conflict, 409, "AlreadyExists")
    kept(server).follow(servers(2), 0.0)
    ((verb, made),) = server.written
    assert verb == "patch"
    assert made["spec"]["selector"]["matchLabels"]["dlrover-nb/run"] == RUN
    assert made["metadata"]["ownerReferences"][0]["uid"] == "1-2-3"


@pytest.mark.parametrize(
    ("refusal", "code", "reason"), [(Forbidden, 403, "Forbidden"), (NotThere, 404, "NotFound")]
)
def test_without_it_a_job_goes_on_and_says_so_once(
    refusal: type[ApiError], code: int, reason: str, caplog: pytest.LogCaptureFixture, words
) -> None:
    caplog.set_level(logging.INFO)
    server = Server(BUDGET)
    server.error = error(refusal, code, reason)
    followed = kept(server)
    for n in range(1, 5):
        followed.follow(servers(n), float(n))
    server.error = None
    followed.follow(servers(9), 9.0)
    followed.end()
    assert not server.written
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert caplog.messages == words


def test_a_budget_that_somebody_deleted_is_not_made_again() -> None:
    server = Server(BUDGET)
    followed = kept(server)
    followed.follow(servers(2), 0.0)
    server.error = error(NotThere, 404, "NotFound")
    followed.follow(servers(3), 1.0)
    server.error = None
    followed.follow(servers(4), 2.0)
    assert server.numbers == [("create", 2)]


def test_a_right_that_was_there_before_is_waited_for() -> None:
    server = Server(BUDGET)
    followed = kept(server)
    followed.follow(servers(2), 0.0)
    server.error = error(Forbidden, 403, "Forbidden")
    followed.follow(servers(3), 1.0)
    server.error = None
    followed.follow(servers(3), 2.0)
    assert server.numbers == [("create", 2), ("patch", 3)]


def test_a_server_that_does_not_answer_gets_it_later() -> None:
    server = Server(BUDGET)
    server.error = error(Unreachable, 0, "")
    followed = kept(server)
    followed.follow(servers(2), 0.0)
    server.error = None
    followed.follow(servers(2), 1.0)
    assert server.numbers == [("create", 2)]


def test_a_master_gets_the_right_only_where_its_user_may_grant_it() -> None:
    def rules(*, has_budget: bool) -> set[tuple[str, str, tuple[str, ...]]]:
        (made,) = [
            doc
            for doc in companions(JOB, code={}, namespace="team", has_budget=has_budget)
            if doc["kind"] == "Role"
        ]
        return {
            (rule["apiGroups"][0], verb, tuple(rule.get("resourceNames", ())))
            for rule in made["rules"]
            for verb in rule["verbs"]
            if rule["resources"] == [BUDGETS.resource]
        }

    assert rules(has_budget=False) == set()
    given = rules(has_budget=True)
    assert given == {("policy", "create", ()), ("policy", "patch", ("clicks-budget",))}
    assert {verb for _, verb, _ in given} <= set(BUDGETS.verbs)
    assert BUDGETS in USER
    assert BUDGETS.optional


# on a real API server, with its disruption controller


def ready(core: Any, namespace: str, role: str, node: str) -> None:
    """Make a pod that counts as healthy; no machine runs it."""
    core.create_namespaced_pod(
        namespace,
        {
            "metadata": {"name": node, "labels": labels("clicks", RUN, role, node)},
            "spec": {"containers": [{"name": "c", "image": "i"}], "schedulerName": "nobody"},
        },
    )
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    core.patch_namespaced_pod_status(node, namespace, {"status": status})


def evict(core: Any, namespace: str, pod: str) -> int:
    """Ask for an eviction; return the code of the answer."""
    body = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": pod}}
    try:
        core.create_namespaced_pod_eviction(pod, namespace, body, _preload_content=False)
    except ApiException as refused:
        return int(refused.status)
    return 201


@pytest.mark.more
@pytest.mark.kube
def test_a_real_server_evicts_one_parameter_server_and_then_waits(control_plane: Any, namespace: Any) -> None:
    core, place = core_api(control_plane), namespace(control_plane)
    api = connect_api(kubeconfig=control_plane.kubeconfig, namespace=place)
    owner = api.create(CONFIG_MAP, {"metadata": {"name": "owner"}}) | {
        "apiVersion": "v1",
        "kind": "ConfigMap",
    }
    for part, node in ((MASTER_ROLE, "master"), ("ps", "ps-0"), ("ps", "ps-1"), ("worker", "worker-0")):
        ready(core, place, part, node)
    followed = DisruptionBudget(api, JOB, owner)

    def allowed() -> Any:
        return api.get(BUDGET_1_20, "clicks-budget")["status"].get("disruptionsAllowed")

    followed.follow(api.list(POD).items, 0.0)
    until(lambda: allowed() == 1)
    assert evict(core, place, "ps-0") == 201
    assert evict(core, place, "ps-1") == 429
    assert evict(core, place, "master") == 429
    assert evict(core, place, "worker-0") == 201
    followed.end()
    until(lambda: (allowed() or 0) > 0)
    assert evict(core, place, "master") == 201


@pytest.mark.more
@pytest.mark.kube
@pytest.mark.parametrize("is_older", [True, False])
def test_a_job_starts_in_an_older_installation_too(
    control_plane: Any, namespace: Any, *, is_older: bool
) -> None:
    admin = connect_api(kubeconfig=control_plane.kubeconfig, namespace=namespace(control_plane))
    alice = connect_api(kubeconfig=control_plane.alice, namespace=admin.namespace)
    rights = tuple(right for right in USER if not (is_older and right is BUDGETS))
    given = role("users", rights)
    admin.create(ROLE, given)
    admin.create(ROLE_BINDING, binding(given, "alice"))
    until(lambda: not any(checked.missing for checked in check_access(alice, rights).checked))
    create(alice, JOB, {})
    rules = admin.get(ROLE, "clicks-master")["rules"]
    assert any(rule["resources"] == [BUDGETS.resource] for rule in rules) is not is_older


@pytest.mark.more
@pytest.mark.kube
def test_a_real_server_takes_the_budget_whole(control_plane: Any, namespace: Any) -> None:
    api = connect_api(kubeconfig=control_plane.kubeconfig, namespace=namespace(control_plane))
    asked = budget("clicks", RUN, 2, BUDGET_1_20)
    made = api.create(BUDGET_1_20, asked, dry_run=True)
    assert made["spec"] == asked["spec"]
    assert asked["metadata"].items() <= made["metadata"].items()
