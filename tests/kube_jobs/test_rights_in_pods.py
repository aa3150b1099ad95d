"""Users with few rights: refused with the Role to ask for, served once it is applied, and held to their role."""

from __future__ import annotations

import pytest
import yaml
from jobs_in_pods import FOREVER, SMALL, job, trained
from kube import await_rights, grant
from kubernetes import utils

from dlrover_nb.core.backends.kubernetes.access import check_access
from dlrover_nb.core.backends.kubernetes.api_errors import Forbidden
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.manifests.rights import OPERATOR, USER, VIEWER
from dlrover_nb.core.structs.job import JobPhase, Mode

pytestmark = [pytest.mark.kube, pytest.mark.pods]


def test_a_user_without_rights_is_told_the_role_that_lets_her_in(place):
    alice = place.connect(place.test_cluster.alice)
    with pytest.raises(BackendError, match="alice may not") as told:
        alice.submit(job("hers", plan=SMALL))
    assert len(str(told.value).splitlines()) == 1
    assert place.left_of("hers") == []
    asked = check_access(alice.api).ask()
    documents = list(yaml.safe_load_all(asked))
    assert [document["kind"] for document in documents] == ["Role", "RoleBinding"]
    utils.create_from_yaml(place.core.api_client, yaml_objects=documents)
    await_rights(alice.api)
    handle = alice.submit(job("hers", plan=SMALL, n_epoch=100))
    trained(handle, 1_000)
    assert handle.stop().phase is JobPhase.STOPPED


def acting(place, user, rights):
    """Connect as a user who has just these rights."""
    grant(place.cluster.api, rights, user)
    cluster = place.connect(place.test_cluster.acting_as(user))
    await_rights(cluster.api, rights)
    return cluster


def test_a_viewer_sees_an_operator_steers_too_and_a_user_ends_a_job(place):
    trained(place.cluster.submit(job("ours", plan=SMALL, n_epoch=FOREVER)), 1_000)
    vic, olga, ute = (
        acting(place, user, rights) for user, rights in (("vic", VIEWER), ("olga", OPERATOR), ("ute", USER))
    )

    seen = vic.job("ours")
    assert seen.snapshot().phase is JobPhase.TRAINING
    assert (vic.jobs()[0].phase, vic.jobs()[0].live) == (JobPhase.TRAINING, True)
    assert len(seen.logs(n_line=5)) <= 5
    assert seen.series().node
    assert len(seen.weigh(*[SMALL] * 50)) == 50
    for change in (lambda: seen.set_mode(Mode.SUGGEST), seen.finish, seen.stop):
        with pytest.raises(Forbidden, match=r"vic may not (create|delete) pods/proxy"):
            change()

    steered = olga.job("ours")
    assert steered.set_mode(Mode.SUGGEST, why="soon").by == "olga"
    for end in (steered.finish, steered.stop):
        with pytest.raises(Forbidden, match=r"olga may not delete pods/proxy .* the right to end jobs"):
            end()
    now = seen.snapshot()
    assert (now.phase, now.mode) == (JobPhase.TRAINING, Mode.SUGGEST)

    ended = ute.job("ours").stop(why="enough for today: \N{MULTIPLICATION SIGN} & ?")
    assert (ended.phase, ended.message) == (JobPhase.STOPPED, seen.snapshot().message)
    assert "ute" in ended.message
    assert "enough for today: \N{MULTIPLICATION SIGN} & ?" in ended.message
