"""What somebody may do on a real API server, and the Role that gives the rest when an administrator applies it."""

import json

import pytest
import yaml
from kubernetes import client, config, dynamic
from support.cases import for_each
from support.kubernetes.kube import await_rights
from support.waiting import until

from dlrover_nb.core.backends.kubernetes.client.api import connect_api
from dlrover_nb.core.backends.kubernetes.client.api_errors import (
    Forbidden,
    NotThere,
    Operation,
    Status,
    error_of,
)
from dlrover_nb.core.backends.kubernetes.jobs import access
from dlrover_nb.core.backends.kubernetes.jobs.access import (
    check_access,
    covered,
    history_url,
    quota_facts,
    standing,
    user_of,
)
from dlrover_nb.core.manifests.kinds import POD, ROLE, ROLE_BINDING, SECRET, SERVICE_ACCOUNT
from dlrover_nb.core.manifests.role_rules import (
    SEE_NODES,
    SHIPPED,
    USER,
    Right,
    granted,
    master_rights,
    role,
    role_text,
    shipped_role,
)

PODS = Right("pods", ("get", "create"), "run pods")
LOGS = Right("pods/log", ("get",), "read logs")


@for_each(
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


def test_a_quota_is_told_by_what_is_used_of_it(words):
    quota = {
        "metadata": {"name": "team"},
        "status": {"hard": {"cpu": "8", "pods": "9"}, "used": {"cpu": "3"}},
    }
    assert quota_facts([quota]) == (("quota team", words),)
    assert quota_facts([{"metadata": {"name": "new"}}]) == ()


@for_each("kind", [SERVICE_ACCOUNT, ROLE, ROLE_BINDING])
@for_each(
    "message", ['User "alice" cannot create it', "alice is attempting to grant RBAC permissions not held"]
)
def test_who_may_make_no_account_for_a_master_is_told_to_name_one(kind, message, words):
    body = json.dumps({"kind": "Status", "message": message}).encode()
    assert str(error_of(Operation("create", kind, "team"), 403, body)) == words
    assert "service_account" not in str(error_of(Operation("create", POD, "team"), 403, body))
    assert "service_account" not in str(error_of(Operation("delete", kind, "team"), 403, body))


@pytest.mark.parametrize(("verb", "right"), [("get", "view"), ("create", "steer"), ("delete", "end")])
def test_a_refused_call_names_the_right_to_the_job(verb, right, words):
    body = json.dumps({"kind": "Status", "message": f'User "al" cannot {verb} resource'}).encode()
    error = error_of(Operation(verb, POD, "team", "m-1", "proxy"), 403, body)
    assert str(error) == words
    asked, _ = yaml.safe_load_all(error.text.partition("for:\n")[2])
    assert [rule["verbs"] for rule in asked["rules"]] == [[verb]], "no more than is missing"


@for_each("n_role", range(len(SHIPPED) + 1))
def test_rights_amount_to_the_strongest_shipped_role_that_they_cover(n_role):
    needed = [granted(r for r in rights if not r.optional) for rights in SHIPPED.values()]
    have = needed[n_role - 1] if n_role else needed[0] - {("", "pods/proxy", "get")}
    assert shipped_role(have) == ["", *SHIPPED][n_role]
    assert shipped_role(set().union(*needed)) == list(SHIPPED)[-1]


def test_a_refusal_brings_the_role_that_gives_the_right():
    message = 'secrets is forbidden: User "alice" cannot create resource "secrets" in API group ""'
    error = Forbidden("no", Status(403, "Forbidden", message), Operation("create", SECRET, "team"))
    title, _, text = error.text.partition("ask an administrator for:\n")
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


def test_rights_of_the_cluster_do_not_spread_the_others_over_it():
    docs = list(yaml.safe_load_all(role_text([PODS, SEE_NODES], "alice", "team")))
    assert [doc["kind"] for doc in docs] == ["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"]
    assert [rule["resources"] for doc in docs[::2] for rule in doc["rules"]] == [["pods"], ["nodes"]]


def test_what_is_asked_for_later_or_by_another_takes_nothing_away():
    asked = [
        ([PODS], "alice"),
        ([LOGS], "alice"),
        ([PODS], "bob"),
        ([PODS], "AD\\bob"),
        ([PODS], "bob@a.example"),
    ]
    names = [
        next(yaml.safe_load_all(role_text(rights, who, "team")))["metadata"]["name"] for rights, who in asked
    ]
    assert len(set(names)) == len(asked)
    assert role_text([PODS], "alice", "team") == role_text([PODS], "alice", "team")


class Reviews:
    """An API server with one version of the review of oneself."""

    user = "of-the-kubeconfig"

    def __init__(self, version, *, names=True):
        self.version, self.names = version, names

    def create(self, kind, _doc):
        if kind.version != self.version:
            raise NotThere("no such kind", Status(404), Operation("create", kind))
        return {"status": {"userInfo": {"username": "sue"}}} if self.names else {}


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
def test_a_server_since_1_26_says_who_somebody_is(version):
    assert user_of(Reviews(version)) == "sue"


def test_where_the_server_does_not_say_it_the_kubeconfig_does():
    assert user_of(Reviews("")) == "of-the-kubeconfig"
    assert user_of(Reviews("v1", names=False)) == "of-the-kubeconfig"


# on a real API server


def apply(cluster, text):
    api = dynamic.DynamicClient(config.new_client_from_config(cluster.kubeconfig))
    for doc in yaml.safe_load_all(text):
        api.resources.get(api_version=doc["apiVersion"], kind=doc["kind"]).create(doc)


@pytest.mark.more
@pytest.mark.kube
def test_the_role_that_is_asked_for_is_all_that_was_missing(control_plane, namespace, words):
    team = namespace(control_plane)
    api = connect_api(kubeconfig=control_plane.alice, namespace=team)
    before = check_access(api)
    assert before.user == "alice"
    assert dict(standing(api).facts)["your role"] == words
    assert {right.resource for right in before.missing} == {r.resource for r in USER if not r.optional}
    apply(control_plane, before.ask())
    await_rights(api)
    after = check_access(api)
    assert after.missing == ()
    assert after.ask() == ""
    still = {c.right.resource for c in after.checked if c.missing}
    assert still == {r.resource for r in (*USER, SEE_NODES) if r.optional}
    assert check_access(api.within("default")).missing, "a Role is of its namespace alone"


@pytest.mark.more
@pytest.mark.kube
def test_who_has_a_part_is_told_the_rest_alone(control_plane, namespace):
    team = namespace(control_plane)
    have, lack = USER[:3], [right for right in USER[3:] if not right.optional]
    look = Right("pods", ("get", "list"), "look")
    apply(control_plane, role_text([*have, look], "alice", team))
    api = connect_api(kubeconfig=control_plane.alice, namespace=team)
    await_rights(api, [*have, look])
    found = check_access(api)
    asked = {(right.resource, verb) for right in found.missing for verb in right.verbs}
    wanted = {(right.resource, verb) for right in lack for verb in right.verbs}
    assert asked == wanted - {("pods", "get"), ("pods", "list")}
    for doc in yaml.safe_load_all(found.ask()):
        dry(control_plane, doc)
    apply(control_plane, found.ask())
    await_rights(api)
    master = role("ads-master", master_rights("ads"), namespace=team)
    assert api.create(ROLE, master), "he may give a master its rights, for he has them"


def dry(cluster, doc):
    api = dynamic.DynamicClient(config.new_client_from_config(cluster.kubeconfig))
    api.resources.get(api_version=doc["apiVersion"], kind=doc["kind"]).create(doc, dry_run="All")


@pytest.mark.more
@pytest.mark.kube
def test_rights_that_rules_do_not_tell_are_reviewed_one_by_one(control_plane, namespace, monkeypatch):
    team = namespace(control_plane)
    apply(control_plane, role_text([PODS], "alice", team))
    api = connect_api(kubeconfig=control_plane.alice, namespace=team)
    await_rights(api, [PODS])
    monkeypatch.setattr(access, "_rules", lambda _: ((), False))  # as with an authorizer that has none
    [pods, logs] = check_access(api, [PODS, LOGS]).checked
    assert (pods.missing, logs.missing) == ((), ("get",))


@pytest.fixture
def no_reviews(control_plane):
    """Take the right to review their own rights from all users, for a while."""
    rbac = client.RbacAuthorizationV1Api(config.new_client_from_config(control_plane.kubeconfig))
    bound = rbac.read_cluster_role_binding("system:basic-user")
    rbac.patch_cluster_role_binding("system:basic-user", {"subjects": []})
    yield
    bound.metadata.resource_version = None
    rbac.patch_cluster_role_binding("system:basic-user", bound)


@pytest.mark.more
@pytest.mark.kube
def test_where_reviews_are_not_allowed_nothing_is_said_of_rights(control_plane, namespace, no_reviews, words):
    team = namespace(control_plane)
    api = connect_api(kubeconfig=control_plane.alice, namespace=team)
    until(lambda: not check_access(api).checked, what="the end of reviews")
    told = standing(api)
    assert (told.allowed, told.ask) == ((), "")
    assert dict(told.facts)["your rights"] == words
    assert dict(told.facts)["you are"] == "alice"


@pytest.mark.more
@pytest.mark.kube
def test_a_namespace_that_is_not_there_is_told_to_who_may_know(control_plane, words):
    api = connect_api(kubeconfig=control_plane.kubeconfig, namespace="nowhere")
    assert dict(standing(api).facts)["namespace"] == words
    alice = connect_api(kubeconfig=control_plane.alice, namespace="nowhere")
    assert dict(standing(alice).facts)["namespace"] == "nowhere"


@pytest.mark.more
@pytest.mark.kube
def test_who_acts_as_another_is_told_what_the_other_may(control_plane):
    found = check_access(connect_api(kubeconfig=control_plane.acting_as("ann")))
    assert found.user == "ann"
    assert len(found.missing) == len([right for right in USER if not right.optional])


@pytest.mark.more
@pytest.mark.kube
def test_few_requests_tell_what_is_allowed(control_plane, namespace):
    api = connect_api(kubeconfig=control_plane.alice, namespace=namespace(control_plane))
    check_access(api)
    assert api.n_request == 2 + len(SEE_NODES.verbs)


@pytest.mark.more
@pytest.mark.kube
def test_an_administrator_lacks_nothing_and_is_told_where_he_is(control_plane, namespace, words):
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
    assert facts["your role"] == words
    assert facts["API server"].endswith(api.version())
    assert "in the kubeconfig" in facts["you are"], "this server does not say it, and refuses nothing"


@pytest.mark.more
@pytest.mark.kube
def test_connecting_says_where_the_history_is_or_what_is_lost_without(
    control_plane, namespace, monkeypatch, words
):
    monkeypatch.delenv("DLROVER_NB_HISTORY", raising=False)
    team = namespace(control_plane)
    api = connect_api(kubeconfig=control_plane.kubeconfig, namespace=team)
    told = dict(standing(api).facts)["history"]
    assert "none is shared" in told
    assert told == words
    assert history_url(api) is None
    core = client.CoreV1Api(config.new_client_from_config(control_plane.kubeconfig))
    body = {
        "metadata": {"name": "dlrover-nb-history"},
        "stringData": {"DLROVER_NB_HISTORY": "postgresql://db"},
    }
    core.create_namespaced_secret(team, body)
    told = dict(standing(api).facts)["history"]
    assert told == words
    alice = connect_api(kubeconfig=control_plane.alice, namespace=team)
    assert dict(standing(alice).facts)["history"] == words
    assert history_url(alice) is None
    assert history_url(api) == "postgresql://db"


@pytest.mark.more
@pytest.mark.kube
def test_the_note_of_a_real_refusal_is_what_helps(control_plane, namespace):
    team = namespace(control_plane)
    api = connect_api(kubeconfig=control_plane.alice, namespace=team)
    with pytest.raises(Forbidden) as refused:
        api.list(POD)
    apply(control_plane, refused.value.text.partition("for:\n")[2])
    await_rights(api, [Right("pods", ("list",), "list")])
    assert api.list(POD).items == []
