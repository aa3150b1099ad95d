"""Users with few rights: refused with the Role to ask for, and served once it is applied."""

from __future__ import annotations

import pytest
import yaml
from kubernetes import utils
from support.kubernetes.jobs_in_pods import SMALL, job, trained
from support.kubernetes.kube import await_rights

from dlrover_nb.core.backends.kubernetes.jobs.access import check_access
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.structs.job.job import JobPhase

pytestmark = [pytest.mark.kube, pytest.mark.pods]


@pytest.mark.more
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
