"""The verbs against a real API server: as who may do all, as who may do nothing, and as a user of `deploy/`.

No pod runs here, so that each job waits; what jobs do in pods is shown elsewhere.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from IPython.core.error import UsageError
from kubernetes import client
from support.kubernetes.kube import await_rights, core_api
from support.words import lines_with

import dlrover_nb
from dlrover_nb import cli
from dlrover_nb.core.backends.kubernetes.client.api import connect_api
from dlrover_nb.core.connect import remembered
from dlrover_nb.core.errors import DlroverError
from dlrover_nb.core.manifests.role_rules import USER, binding, role
from dlrover_nb.magics.commands import Commands
from dlrover_nb.magics.shell import loaded

pytestmark = [pytest.mark.kube, pytest.mark.more]


@pytest.fixture
def team(control_plane, namespace, monkeypatch, tmp_path):
    """Make a namespace, and a kubeconfig with both users whose current one is ``connected(user)``."""
    place = namespace(control_plane)

    def connected(user):
        told = yaml.safe_load(
            Path(control_plane.alice if user == "alice" else control_plane.kubeconfig).read_text()
        )
        told["contexts"][0]["context"]["namespace"] = place
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(told))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        return place

    return connected


@pytest.fixture
def typed(shell):
    """Return what a line gives in a shell that connects for real."""
    loaded(shell).commands = Commands(namespace=shell.user_ns)
    yield lambda line: shell.run_line_magic("dlrover", line)
    cluster = loaded(shell).commands.session.cluster
    if cluster is not None:
        cluster.shutdown()


def test_connect_says_where_one_is_and_what_is_allowed(team, typed):
    place = team("admin")
    shown = typed("connect kubernetes")
    text = str(shown)
    assert f"namespace   {place}" in text
    assert "start, list and end jobs" in text
    assert "no:" not in text
    html = shown._repr_mimebundle_()["text/html"]
    assert "What you may do here" in html
    assert "ask" not in html
    assert len(typed("jobs")) == 0


def test_who_may_do_nothing_is_told_what_to_ask_for_at_connect_and_by_each_refused_verb(
    team, typed, control_plane
):
    place = team("alice")
    text = str(typed("connect k8s"))
    assert "you are" in text
    assert "Jobs need more rights than you have here" in text
    documents = list(yaml.safe_load_all(text[text.index("apiVersion") :]))
    assert [doc["kind"] for doc in documents[:2]] == ["Role", "RoleBinding"]
    with pytest.raises(UsageError, match="alice may not list") as refused:
        typed("jobs")
    made, bound = yaml.safe_load_all(str(refused.value).partition("administrator for:\n")[2])
    assert made["metadata"]["namespace"] == place
    assert bound["subjects"][0]["name"] == "alice"
    with pytest.raises(UsageError, match="alice may not"):
        typed("submit ads")
    core = core_api(control_plane)
    assert not [s for s in core.list_namespaced_secret(place).items if "dlrover" in str(s.metadata.labels)]


def test_a_user_of_the_user_role_starts_lists_and_deletes_a_job_and_nothing_is_left(
    team, typed, control_plane
):
    place = team("alice")
    rbac = client.RbacAuthorizationV1Api(core_api(control_plane).api_client)
    given = role("dlrover-nb-user", USER, namespace=place)
    rbac.create_namespaced_role(place, given)
    rbac.create_namespaced_role_binding(place, binding(given, "alice"))
    await_rights(connect_api(kubeconfig=control_plane.alice, namespace=place))
    typed("connect kubernetes")
    typed("submit ads --workers 1")
    assert [job.name for job in typed("jobs")] == ["ads"]
    with pytest.raises(UsageError, match=r"stop ads first, or delete ads --force"):
        typed("delete ads")
    assert "job ads is deleted" in str(typed("delete ads --force"))
    batch = client.BatchV1Api(core_api(control_plane).api_client)
    assert not [job for job in batch.list_namespaced_job(place).items if not job.metadata.deletion_timestamp]


def test_the_command_line_finds_the_cluster_by_one_variable(team, monkeypatch, capsys, words):
    place = team("admin")
    monkeypatch.setenv(cli.ADDRESS, f"kubernetes:///{place}")
    assert cli.main(["jobs"]) == 0
    assert "No jobs yet" in capsys.readouterr().err, "there is no row for the pipe"
    assert cli.main(["connect", "kubernetes", "--namespace", place]) == 0
    assert f"namespace   {place}" in capsys.readouterr().out
    assert remembered.remembered().word == f"kubernetes://testkube/{place}", "with the context of now"
    told = dict(dlrover_nb.connect("kubernetes", namespace=place).standing().facts)["in a shell"]
    assert told == f"{cli.ADDRESS}=kubernetes://testkube/{place}"
    monkeypatch.setenv(*told.split("=", 1))
    assert cli.main(["jobs"]) == 0
    monkeypatch.setenv(cli.ADDRESS, "kubernetes://no-such-context/ml")
    assert cli.main(["jobs"]) == cli.ExitCode.NO_ANSWER
    assert lines_with(capsys.readouterr().err, "no-such-context") == words


def test_python_connects_by_the_same_words(team):
    place = team("admin")
    cluster = dlrover_nb.connect("kubernetes", context="testkube", namespace=place)
    assert dict(cluster.standing().facts)["namespace"] == place
    assert len(cluster.jobs()) == 0
    cluster.shutdown()
    with pytest.raises(DlroverError, match="has no context nope"):
        dlrover_nb.connect("kubernetes", context="nope")
