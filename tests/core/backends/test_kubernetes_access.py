"""What somebody may do on a real API server, and the Role that gives the rest when an administrator applies it."""

import pytest
import yaml
from kubernetes import client, config, dynamic

from dlrover_nb.core.backends.kubernetes.access import check_access, covered, quota_facts, standing
from dlrover_nb.core.backends.kubernetes.answers import Asked, Forbidden, Status
from dlrover_nb.core.backends.kubernetes.api import connect_api
from dlrover_nb.core.backends.kubernetes.kinds import POD, SECRET
from dlrover_nb.core.backends.kubernetes.rights import SEE_NODES, USER, Right, role_text

PODS = Right("pods", ("get", "create"), "run pods")
LOGS = Right("pods/log", ("get",), "read logs")


@pytest.mark.parametrize(
    ("rule", "right", "verb", "gives"),
    [
        ({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, LOGS, "get", True),
        ({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}, PODS, "get", True),
        ({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}, PODS, "create", False),
        ({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}, LOGS, "get", False),
        ({"verbs": ["get"], "apiGroups": [""], "resources": ["*/log"]}, LOGS, "get", True),
        ({"verbs": ["get"], "apiGroups": ["batch"], "resources": ["pods"]}, PODS, "get", False),
        ({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}, PODS, "get", False),
        ({"verbs": ["get"]}, PODS, "get", False),
    ],
)  # fmt: skip
def test_a_rule_gives_what_it_names(rule, right, verb, gives):
    assert covered(right, verb, [rule]) is gives


def test_a_quota_is_told_by_what_is_used_of_it():
    quota = {
        "metadata": {"name": "team"},
        "status": {"hard": {"cpu": "8", "pods": "9"}, "used": {"cpu": "3"}},
    }
    assert quota_facts([quota]) == (("quota team", "cpu 3 of 8, pods 0 of 9"),)
    assert quota_facts([{"metadata": {"name": "new"}}]) == ()


def test_a_refusal_brings_the_role_that_gives_the_right():
    message = 'secrets is forbidden: User "alice" cannot create resource "secrets" in API group ""'
    error = Forbidden("no", Status(403, "Forbidden", message), Asked("create", SECRET, "team"))
    title, _, text = error.told.partition("ask an administrator for:\n")
    assert title.startswith("no\n")
    made, bound = yaml.safe_load_all(text)
    assert [rule["verbs"] for rule in made["rules"]] == [["create", "delete", "get", "patch"]]
    assert bound["subjects"][0]["name"] == "alice"
    assert {made["metadata"]["namespace"], bound["metadata"]["namespace"]} == {"team"}


def test_what_is_of_the_cluster_is_asked_for_as_a_role_of_the_cluster():
    made, bound = yaml.safe_load_all(role_text([SEE_NODES], "system:serviceaccount:team:ads-master", "team"))
    assert (made["kind"], bound["kind"], bound["roleRef"]["kind"]) == (
        "ClusterRole",
        "ClusterRoleBinding",
        "ClusterRole",
    )
    assert bound["subjects"] == [{"kind": "ServiceAccount", "namespace": "team", "name": "ads-master"}]


# on a real API server


def apply(cluster, text):
    api = dynamic.DynamicClient(config.new_client_from_config(cluster.kubeconfig))
    for doc in yaml.safe_load_all(text):
        api.resources.get(api_version=doc["apiVersion"], kind=doc["kind"]).create(doc)


@pytest.mark.kube
def test_the_role_that_is_asked_for_is_all_that_was_missing(control_plane, namespace):
    team = namespace(control_plane)
    api = connect_api(kubeconfig=control_plane.alice, namespace=team)
    before = check_access(api)
    assert before.user == "alice"
    assert {right.resource for right in before.missing} == {r.resource for r in USER if not r.optional}
    apply(control_plane, before.ask())
    after = check_access(api)
    assert after.missing == ()
    assert after.ask() == ""
    still = {c.right.resource for c in after.checked if c.missing}
    assert still == {r.resource for r in (*USER, SEE_NODES) if r.optional}
    assert check_access(api.within("default")).missing, "a Role is of its namespace alone"


@pytest.mark.kube
def test_an_administrator_lacks_nothing_and_is_told_where_he_is(control_plane, namespace):
    team = namespace(control_plane)
    core = client.CoreV1Api(config.new_client_from_config(control_plane.kubeconfig))
    core.create_namespaced_resource_quota(
        team, {"metadata": {"name": "share"}, "spec": {"hard": {"pods": "7"}}}
    )
    api = connect_api(kubeconfig=control_plane.kubeconfig, namespace=team)
    told = standing(api)
    assert told.ask == ""
    assert not any(each.missing for each in told.allowed)
    facts = dict(told.facts)
    assert facts["namespace"] == team
    assert facts["API server"].endswith(api.version())
    assert "in the kubeconfig" in facts["you are"], "this server does not say it, and refuses nothing"


@pytest.mark.kube
def test_the_note_of_a_real_refusal_is_what_helps(control_plane, namespace):
    team = namespace(control_plane)
    api = connect_api(kubeconfig=control_plane.alice, namespace=team)
    with pytest.raises(Forbidden) as refused:
        api.list(POD)
    apply(control_plane, refused.value.told.partition("for:\n")[2])
    assert api.list(POD).items == []
