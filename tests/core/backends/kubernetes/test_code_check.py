"""A user's code is tried in a pod of its own: what its master makes of the pod's end."""

from __future__ import annotations

import io

import pytest

from dlrover_nb.core.backends.kubernetes import code_check
from dlrover_nb.core.backends.kubernetes.client.api_errors import NotThere, Operation, Status
from dlrover_nb.core.backends.kubernetes.code_check import checked_in_pod, runs_user_code
from dlrover_nb.core.codec import to_json
from dlrover_nb.core.driver.calls.service import MasterService
from dlrover_nb.core.errors import JobFailedError
from dlrover_nb.core.jobfile import job_from
from dlrover_nb.core.manifests.kinds import POD
from dlrover_nb.core.runtime.pod.check import tried
from dlrover_nb.core.structs.data.features import FeatureSpec
from dlrover_nb.core.structs.job.job import Averages
from dlrover_nb.core.structs.wire.pod_contract import CHECK_PATH, CodeTried, PodJob, check_token

SPEC = job_from({"name": "own", "model": {"name": "custom", "code": "a.package:Net"}})
JOB = PodJob(SPEC, None, "0a1b2c3d", "public", "secret-key", "the-access-token")
OWNER = {"metadata": {"name": "own", "uid": "u"}}
FEATURES = FeatureSpec("label", numeric=(), categorical=(), n_train=90, n_eval=10)


def ended(**terminated):
    return {"phase": "Failed", "containerStatuses": [{"name": "node", "state": {"terminated": terminated}}]}


class Pods:
    """An API server with pods that do as they are told, one after the other."""

    def __init__(self, service, *lives):
        self.service, self.lives, self.made, self.there = service, list(lives), [], {}

    def list(self, _kind, *, selector):
        assert selector == "dlrover-nb/job=own,dlrover-nb/run=0a1b2c3d,dlrover-nb/role=check"
        return type("Listing", (), {"items": [*self.there.values()]})

    def create(self, kind, pod):
        assert kind is POD
        name = pod["metadata"]["name"]
        assert name not in self.there
        self.there[name] = pod
        self.made.append(pod)

    def get(self, _kind, name):
        life = self.lives.pop(0)
        if isinstance(life, CodeTried):
            assert told(self.service, life, check_token(JOB)) == 200
            life = ended(exitCode=0)
        if life is None:
            raise NotThere("gone", Status(404), Operation("get", POD))
        return self.there[name] | {"status": life}

    def delete(self, _kind, name):
        del self.there[name]


def told(service, result, token):
    """Tell a master as the pod does; return the status of its answer."""
    body, said = to_json(result), []
    environ = {
        "PATH_INFO": CHECK_PATH,
        "REQUEST_METHOD": "POST",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
        "HTTP_X_DLROVER_CHECK": token,
    }
    service(environ, lambda status, _head: said.append(status))
    return int(said[0].split()[0])


@pytest.fixture
def service():
    return MasterService("the-access-token")


@pytest.fixture
def check(service, monkeypatch):
    monkeypatch.setattr(code_check, "LOOK_EVERY_S", 0.001)  # these pods have their next life at once

    def run(*lives):
        pods = Pods(service, *lives)
        try:
            return checked_in_pod(JOB, pods, service, owner=OWNER, report_to="http://m/v1/checked")
        finally:
            assert not pods.there, "a pod that was made is removed"
            run.n_made = len(pods.made)

    return run


RIGHT = CodeTried(features=FEATURES, n_dense=7, averages=(Averages(4, 0.1),))


def test_what_the_pod_found_completes_the_job(check):
    job = check({"phase": "Pending"}, {"phase": "Running"}, RIGHT)
    model = job.spec.model
    assert (job.features, model.n_dense, model.averages) == (FEATURES, 7, (Averages(4, 0.1),))


@pytest.mark.more
def test_a_pod_that_the_cluster_takes_away_is_made_again(check, error_words):
    evicted = {"phase": "Failed", "reason": "Evicted"}
    assert check(evicted, None, RIGHT).features == FEATURES
    assert check.n_made == 3
    with error_words(JobFailedError):
        check(evicted, evicted, evicted)


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (CodeTried(error="expected a model, got 3"), "expected a model, got 3"),
        (CodeTried(), "reported no encoding of rows"),
        (ended(exitCode=137, reason="OOMKilled"), "MiB are not enough; give workers more memory_mib"),
        (ended(exitCode=1, message="ImportError: no torch"), "ImportError: no torch"),
    ],
)
def test_what_would_happen_again_fails_the_job_at_once(check, end, words):
    with pytest.raises(JobFailedError, match=words):
        check(end)
    assert check.n_made == 1


@pytest.mark.parametrize("token", ["", "the-access-token"])
def test_only_the_pods_own_token_tells_a_result(service, token):
    heard = []
    service.take_check(check_token(JOB), heard.append)
    assert told(service, RIGHT, token) == 401
    assert heard == []


def test_a_mistake_of_the_user_is_a_result(tmp_path):
    assert "a.package" in tried(JOB, tmp_path).error


def test_jobs_without_code_of_their_user_need_no_such_pod():
    assert runs_user_code(SPEC)
    assert not runs_user_code(job_from({"name": "own"}))
