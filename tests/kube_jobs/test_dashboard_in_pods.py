"""Two people of different rights through one dashboard: the API server decides for each of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from kubernetes import client
from support.kubernetes.jobs_in_pods import FOREVER, SMALL, job, trained
from support.kubernetes.kube import await_rights, grant

from dlrover_nb.core.backends.kubernetes.client.api_errors import Forbidden
from dlrover_nb.core.commands.requests import SetMode
from dlrover_nb.core.errors import BackendError, NotAllowedError
from dlrover_nb.core.manifests.role_rules import OPERATOR, VIEWER
from dlrover_nb.core.structs.decisions.commands import Action, Asker, Entry, Stage
from dlrover_nb.core.structs.decisions.people import AccessRole, Grant, Person
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.dashboard.common.acting import ActingClusters
from dlrover_nb.dashboard.common.clusters import WatchedCluster
from dlrover_nb.dashboard.common.team import Team

pytestmark = [pytest.mark.kube, pytest.mark.pods]

ADMIN = (Grant(AccessRole.ADMIN),)  # what the dashboard's own file claims of everybody
VIC, OLGA, GUS = (Person(name, grants=ADMIN) for name in ("vic", "olga", "gus"))


def dashboard(place, tmp_path, people):
    """Connect as the account of a dashboard, which may act as some people; it signs in by a token of its own."""
    account = place.core.create_namespaced_service_account(
        place.namespace, {"metadata": {"name": "dlrover-nb-dashboard"}}
    )
    user = f"system:serviceaccount:{place.namespace}:{account.metadata.name}"
    grant(place.cluster.api, VIEWER, user)
    name = f"acts-{place.namespace}"
    rule = {"apiGroups": [""], "resources": ["users"], "resourceNames": people, "verbs": ["impersonate"]}
    place.rbac.create_cluster_role({"metadata": {"name": name}, "rules": [rule]})
    place.rbac.create_cluster_role_binding(
        {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
        }
    )
    token = place.core.create_namespaced_service_account_token(
        account.metadata.name, place.namespace, client.AuthenticationV1TokenRequest(spec={"audiences": []})
    )
    told = yaml.safe_load(Path(place.test_cluster.kubeconfig).read_text())
    told["users"][0]["user"] = {"token": token.status.token}
    path = tmp_path / "dashboard.kubeconfig"
    path.write_text(yaml.safe_dump(told))
    return place.connect(path), name


def asked(person):
    return Asker(person, Entry.DASHBOARD)


@pytest.mark.release
@pytest.mark.more
def test_a_viewer_cannot_steer_through_a_dashboard_and_an_operator_can(place, tmp_path):
    trained(place.cluster.submit(job("ours", plan=SMALL, n_epoch=FOREVER)), 1_000)
    core, name = dashboard(place, tmp_path, ["vic", "olga"])
    for person, rights in ((VIC, VIEWER), (OLGA, OPERATOR)):
        grant(place.cluster.api, rights, person.name)
    try:
        for person, rights in ((VIC, VIEWER), (OLGA, OPERATOR)):
            await_rights(core.api.acting_as(person.name), rights)
        acting = ActingClusters(core)
        watched = WatchedCluster(core, namespace=place.namespace, acting=acting)
        team = Team({"k": watched}, lambda: 7.0, url=f"sqlite:///{tmp_path / 'team.db'}")

        assert not team.may(VIC, Action.MODE, "k"), "its button must not be offered"
        assert team.may(OLGA, Action.MODE, "k")
        assert not team.may(OLGA, Action.STOP, "k"), "the cluster gives her less than the dashboard's file"
        with pytest.raises(NotAllowedError, match="mode needs the role operator, but you are viewer"):
            team.job("k", "ours", asked(VIC)).decide(SetMode(Mode.SUGGEST))
        with pytest.raises(Forbidden, match=r"vic may not create pods/proxy"):  # past the table of rights
            acting.cluster(VIC).job("ours").decide(SetMode(Mode.SUGGEST))
        with pytest.raises(
            Forbidden, match=r"dlrover-nb-dashboard may not create pods/proxy"
        ):  # in its own name
            core.job("ours").decide(SetMode(Mode.SUGGEST))
        with pytest.raises(
            BackendError, match="dlrover-nb-dashboard may not act as the user gus; name it in the ClusterRole"
        ):
            team.job("k", "ours", asked(GUS))
        with pytest.raises(BackendError, match="does not begin with 'system:'"):
            team.job("k", "ours", asked(Person("system:admin", grants=ADMIN)))

        assert team.job("k", "ours", asked(OLGA)).decide(SetMode(Mode.SUGGEST, why="soon")).by == "olga"
        assert (team.job("k", "ours", asked(VIC)).snapshot().mode, watched.jobs().error) == (Mode.SUGGEST, "")
        assert [(row.row.person, row.row.stage, row.row.namespace) for row in team.audit.rows()] == [
            ("vic", Stage.REFUSED, place.namespace),
            ("olga", Stage.ASKED, place.namespace),
            ("olga", Stage.DONE, place.namespace),
        ]
        team.close()
    finally:
        place.rbac.delete_cluster_role(name)
        place.rbac.delete_cluster_role_binding(name)
    assert place.cluster.job("ours").stop().phase is JobPhase.STOPPED
