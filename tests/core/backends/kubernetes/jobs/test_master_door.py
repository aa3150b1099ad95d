"""Each call goes to its master with the weakest method and token; earlier masters, and viewers, included."""

from __future__ import annotations

import io

import pytest
from support.jobs import builders
from support.jobs.masters import Master

from dlrover_nb.core.backends.kubernetes.client.api_errors import Forbidden, Operation, error_of, proxy_error
from dlrover_nb.core.backends.kubernetes.jobs.link import MOST_URL_BYTES, KubernetesLink, link_of
from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.codec import to_json
from dlrover_nb.core.commands.requests import Accept
from dlrover_nb.core.driver.calls.service import ACCESS_HEADER, MasterService
from dlrover_nb.core.errors import BackendError, InvalidValueError, NotFoundError
from dlrover_nb.core.manifests.kinds import POD, SECRET
from dlrover_nb.core.manifests.objects import companions, master_job
from dlrover_nb.core.structs.decisions.call_rights import BY_TOKEN_ALONE, VERBS, CallRight, access_token
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.training.shards import FinishChoice, ShardAction, ShardChoice
from dlrover_nb.core.structs.wire.pod_contract import PodJob

JOB = PodJob(JobSpec("ads", owner="ada"), None, "0123abcd", "public", "secret-key", "the-token")
VIEW, STEER, END = (access_token("the-token", right) for right in CallRight)
ALL = frozenset(VERBS.values())


class Served(Master):
    stopped = finished = ""

    def choose(self, choice):
        self.finished = choice.by

    def stop(self, by, _why):
        self.stopped = by


class Api:
    """An API server with one job, for a user with these verbs on ``pods/proxy``."""

    namespace = "n"

    def __init__(self, service, verbs=ALL, *, reads_secrets=True, job=JOB):
        self.service, self.verbs, self.reads_secrets = service, verbs, reads_secrets
        self.job = {**master_job(job, namespace="n"), "status": {}}
        self.job["metadata"]["uid"] = "1"
        self.secret = companions(job, code={}, namespace="n")[0]
        self.sent = []

    def get(self, kind, name):
        if kind is SECRET and not self.reads_secrets:
            raise _denied(Operation("get", kind, "n", name))
        return self.secret if kind is SECRET else self.job

    def list(self, _kind, *, selector):
        assert "dlrover-nb/role=master" in selector
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        head = {"ownerReferences": [{"uid": "1"}], "creationTimestamp": "2026-01-01T00:00:00Z", "name": "m-1"}
        return type("Listing", (), {"items": [{"metadata": head, "status": status}]})

    def with_short_timeout(self, _limit_s):
        return self

    def proxy(self, name, _port, path, body, headers, _timeout_s, *, method="POST"):
        asked = Operation(VERBS[method], POD, "n", name, "proxy")
        if asked.verb not in self.verbs:
            raise _denied(asked)
        self.sent.append((method, headers[ACCESS_HEADER]))
        at, _, query = path.partition("?")
        environ = {"PATH_INFO": at, "QUERY_STRING": query, "REQUEST_METHOD": method}
        if body is not None:
            environ |= {"CONTENT_LENGTH": str(len(body)), "wsgi.input": io.BytesIO(body)}
        environ["HTTP_X_DLROVER_ACCESS"] = headers[ACCESS_HEADER]
        codes = []
        answer = b"".join(self.service(environ, lambda status, _: codes.append(int(status[:3]))))
        if codes != [200]:
            raise proxy_error(asked, codes[0], answer)
        return answer


def _denied(asked):
    text = f'User "vic" cannot {asked.verb} resource "{asked.resource}" in API group ""'
    return error_of(asked, 403, b'{"kind": "Status", "message": "%s"}' % text.replace('"', '\\"').encode())


@pytest.fixture
def served():
    return Served()


@pytest.fixture
def service(served):
    service = MasterService("the-token")
    service.serve(served)
    return service


def test_each_call_is_sent_with_the_method_and_the_token_of_its_right_and_no_stronger(service, served):
    api = Api(service)
    job = JobHandle("ads", link_of(api, api.job), user="ada")
    job.snapshot()
    job.explain()
    decision = Decision(Verdict.ACCEPT, "ada", 0.0, served.state.open_proposal.id)
    job.weigh(served.state.target)
    assert set(api.sent) == {("GET", VIEW)}
    api.sent.clear()
    job.link.decide(decision)
    job.link.choose(ShardChoice(3, ShardAction.RETRY, "ada", ""))
    assert set(api.sent) == {("POST", STEER)}
    api.sent.clear()
    job.link.choose(FinishChoice("ada", ""))
    job.link.stop("ada", "enough")
    assert (served.finished, served.stopped) == ("ada", "ada")
    assert set(api.sent) == {("DELETE", END)}


def test_a_question_that_is_too_long_for_a_url_has_a_body(service, served, error_words):
    api = Api(service)
    link = link_of(api, api.job)
    plans = (served.state.target,) * 200
    assert len(link.weigh(plans)) == 200
    assert api.sent == [("POST", VIEW)]
    with error_words(InvalidValueError):
        link.stop("ada", "x" * MOST_URL_BYTES)
    assert not served.stopped


def test_a_viewer_without_the_secret_sees_the_job_and_can_neither_steer_nor_end_it(
    service, served, error_words
):
    api = Api(service, frozenset({"get"}), reads_secrets=False)
    link = link_of(api, api.job)
    assert link.snapshot() == served.state
    for change in (
        lambda: link.decide(builders.snapshot().decisions[0]),
        lambda: link.choose(FinishChoice("vic", "")),
        lambda: link.stop("vic", ""),
    ):
        with error_words(Forbidden):
            change()
    assert (served.asked, served.finished, served.stopped) == ([], "", "")
    assert set(api.sent) == {("GET", VIEW)}


def test_who_may_send_all_but_reads_no_secret_is_refused_by_the_master(service, served, error_words):
    api = Api(service, reads_secrets=False)
    link = link_of(api, api.job)
    with error_words(BackendError):
        link.stop("vic", "")
    assert not served.stopped


def test_an_operator_with_the_secret_steers_and_cannot_end(service, served, error_words):
    api = Api(service, frozenset({"get", "create"}))
    link = link_of(api, api.job)
    JobHandle("ads", link, user="ada").decide(Accept(""))
    assert len(served.asked) == 1
    with error_words(Forbidden):
        link.stop("vic", "")
    assert not served.stopped


def test_a_viewer_of_a_job_without_a_note_is_told_which_right_is_missing(service, error_words):
    api = Api(service, frozenset({"get"}), reads_secrets=False)
    del api.job["metadata"]["annotations"]["dlrover-nb/view"]
    with error_words(Forbidden):
        link_of(api, api.job)


def test_a_name_that_was_submitted_again_is_noticed(service, error_words):
    api = Api(service)
    api.job["metadata"]["labels"]["dlrover-nb/run"] = "ffffffff"
    with error_words(NotFoundError):
        link_of(api, api.job)


@pytest.fixture
def earlier(served):
    """Return a master that knows only POSTs with the job's own token, as those of 0.1 do."""
    service = MasterService("the-token", BY_TOKEN_ALONE)
    known = service._gate._tokens  # it derives none from the job's
    service._gate._tokens = [pair for pair in known if pair[0] == b"the-token"]
    service.serve(served)
    return service


def test_a_master_of_an_earlier_release_is_asked_as_it_expects(earlier, served):
    api = Api(earlier)
    link = link_of(api, api.job)
    assert link.snapshot() == served.state
    assert api.sent == [("GET", VIEW), ("POST", "the-token")]
    link.stop("ada", "")
    assert served.stopped == "ada"
    assert api.sent[2:] == [("POST", "the-token")], "it is not tried again"


def test_who_has_no_token_for_an_earlier_master_is_refused(earlier, error_words):
    api = Api(earlier)
    link = KubernetesLink.of_viewer(api, JOB, VIEW)
    with error_words(BackendError):
        link.snapshot()
    assert api.sent == [("GET", VIEW)]


def test_no_token_but_the_viewers_is_in_what_viewers_read():
    told = to_json(master_job(JOB, namespace="n"))
    assert VIEW.encode() in told
    assert not any(token.encode() in told for token in (STEER, END, "the-token", "secret-key"))
