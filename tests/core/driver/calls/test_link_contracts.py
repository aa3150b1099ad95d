"""The contract of a link, met by a driver in this process, and by the HTTP that carries its calls to pods."""

from __future__ import annotations

import io

import pytest
from support.conformance.link import FinishedLinkConformance, LinkConformance
from support.driver.real_job import Job
from support.jobs import builders
from support.waiting import until

from dlrover_nb.core.backends.kubernetes.jobs.last_snapshot import end_document, end_of
from dlrover_nb.core.backends.kubernetes.jobs.link import KubernetesLink
from dlrover_nb.core.driver.calls.service import MasterService
from dlrover_nb.core.driver.past.finished_job import FinishedJob
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.wire.pod_contract import PodJob


class Api:
    """An API server with one Job and its master's pod: it passes requests on to the WSGI application."""

    namespace = "n"

    def __init__(self, application: MasterService) -> None:
        self.application = application

    def get(self, _kind, _name):
        return {"metadata": {"labels": {"dlrover-nb/run": "0a1b2c3d"}, "uid": "1"}, "spec": {}, "status": {}}

    def list(self, _kind, *, selector):
        assert "dlrover-nb/role=master" in selector
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        head = {"ownerReferences": [{"uid": "1"}], "creationTimestamp": "2026-01-01T00:00:00Z", "name": "m-1"}
        return type("Listing", (), {"items": [{"metadata": head, "status": status}]})

    def with_short_timeout(self, _limit_s):
        return self

    def proxy(self, _name, _port, path, body, headers, _timeout_s, *, method="POST"):
        at, _, query = path.partition("?")
        environ = {"PATH_INFO": at, "QUERY_STRING": query, "REQUEST_METHOD": method}
        if body is not None:
            environ |= {"CONTENT_LENGTH": str(len(body)), "wsgi.input": io.BytesIO(body)}
        environ |= {"HTTP_" + name.upper().replace("-", "_"): value for name, value in headers.items()}
        statuses: list[str] = []
        answer = b"".join(self.application(environ, lambda status, _: statuses.append(status)))
        assert statuses == ["200 OK"], answer
        return answer


@pytest.fixture(scope="class")
def job(tmp_path_factory, features):
    made = Job(tmp_path_factory.mktemp("contract"), features, n_epoch=1000)
    made.driver.start()
    until(lambda: made.now.train.n_sample_done, what="training")
    yield made
    made.driver.close()


class TestDriver(LinkConformance):
    name = "real"

    @pytest.fixture(scope="class")
    @classmethod
    def link(cls, job):
        return job.driver


@pytest.mark.more
class TestKubernetesLink(LinkConformance):
    name = "real"

    @pytest.fixture(scope="class")
    @classmethod
    def link(cls, job):
        service = MasterService("the-token")
        service.serve(job.driver)
        described = PodJob(job.spec, job.features, "0a1b2c3d", "public", "secret-key", "the-token")
        return KubernetesLink(Api(service), described)


class TestFinishedJob(FinishedLinkConformance):
    @pytest.fixture(params=["at once", "kept in a ConfigMap"])
    def link(self, request):
        last = builders.snapshot(phase=JobPhase.SUCCEEDED, message="done", ended_at_s=builders.START_S + 300)
        if request.param != "at once":
            last = end_of(end_document(last, run="r", namespace="n"))
        return FinishedJob(last)
