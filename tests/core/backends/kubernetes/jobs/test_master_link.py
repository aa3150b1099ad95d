"""A client's link against the master's real HTTP server; the API server between them is played.

The real one stands between them in `test_jobs_in_pods`; here it is made to lose pods and answers.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import urllib.error
import urllib.request
from dataclasses import replace

import pytest
from support.jobs import builders
from support.jobs.masters import Master
from support.waiting import LIMIT_S
from waitress.server import create_server

from dlrover_nb.core.backends.kubernetes.client.api_errors import (
    NotThere,
    Operation,
    Status,
    Unreachable,
    error_of,
    proxy_error,
)
from dlrover_nb.core.backends.kubernetes.jobs.last_snapshot import end_document, end_of
from dlrover_nb.core.backends.kubernetes.jobs.link import KubernetesLink
from dlrover_nb.core.basics.waits import listening
from dlrover_nb.core.client import handle
from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.client.link.calls import CALLS, AskSnapshot
from dlrover_nb.core.commands.requests import Accept, Scale
from dlrover_nb.core.driver.calls.service import ACCESS_HEADER, CALL_PATH, MOST_BYTES, SERVER, MasterService
from dlrover_nb.core.driver.past.finished_job import pack_snapshot
from dlrover_nb.core.errors import (
    AwayError,
    BackendError,
    InvalidValueError,
    NotFoundError,
    StaleDecisionError,
    WireError,
)
from dlrover_nb.core.manifests.kinds import POD
from dlrover_nb.core.structs.decisions.call_rights import VERBS
from dlrover_nb.core.structs.decisions.query_answers import LogLine
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.training.shards import ShardAction, ShardChoice
from dlrover_nb.core.structs.views.summary import summarize
from dlrover_nb.core.structs.wire.pod_contract import PodJob

JOB = PodJob(JobSpec("quick-start"), None, "0123abcd", "public", "secret-key", "the-token")
LABELS = {"dlrover-nb/job": "quick-start", "dlrover-nb/run": "0123abcd"}


class Served(Master):
    """A master that remembers what it was told."""

    choices: tuple = ()
    stopped = ""
    still = False

    def snapshot(self):
        return self.state if self.still else super().snapshot()

    def summary(self):
        return summarize(self.state)

    def choose(self, choice):
        self.choices += (choice,)

    def stop(self, by, why):
        self.stopped = f"{by}: {why}"

    def logs(self, node, n_line):
        if n_line < 1:
            raise InvalidValueError(f"lines must be >= 1, got {n_line}")
        return super().logs(node, n_line)


class Way:
    """An API server that has one Job, and passes requests on to a port of this machine."""

    namespace = "n"

    def __init__(self, port: int) -> None:
        self.port, self.n_asked, self.n_lost = port, 0, 0
        self.events: list[dict] = []
        self.job = {
            "metadata": {"labels": dict(LABELS), "uid": "1-2-3"},
            "spec": {"parallelism": 1},
            "status": {},
        }
        self.pods = [pod("m-1")]
        self.end = None
        self.n_byte, self.limits_s = 0, []
        self.sent: list[tuple[str, str]] = []
        self.verbs = set(VERBS.values())  # on pods/proxy, that the user may

    def with_short_timeout(self, limit_s):
        assert limit_s <= 10
        return self

    def get(self, kind, name):
        if kind.name == "Job" and self.job:
            return self.job
        if kind.name == "ConfigMap" and self.end:
            return self.end
        raise NotThere(f"no {kind.name} {name}", Status(404), Operation("get", kind, "n", name))

    def list(self, kind, *, selector="", fields=""):
        if kind.name == "Event":
            assert fields == "involvedObject.kind=Job,involvedObject.uid=1-2-3"
            return type("Listing", (), {"items": list(self.events)})
        assert selector == "dlrover-nb/job=quick-start,dlrover-nb/role=master"
        return type("Listing", (), {"items": list(self.pods)})

    def proxy(self, name, port, path, body, headers, timeout_s, *, method="POST"):  # noqa: ARG002 - its own port
        self.n_asked += 1
        self.limits_s.append(timeout_s)
        self.sent.append((method, headers[ACCESS_HEADER]))
        asked = Operation(VERBS[method], POD, "n", name, "proxy")
        if asked.verb not in self.verbs:
            raise error_of(asked, 403, b'User "vic" cannot get resource "pods/proxy"')
        if name not in {each["metadata"]["name"] for each in self.pods}:
            raise NotThere(f"no pod {name}", Status(404), asked)
        if self.n_lost:
            self.n_lost -= 1
            raise Unreachable("the API server cannot be reached", Status(0), asked)
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
                read = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                raise proxy_error(asked, error.code, error.read()) from None
        self.n_byte = len(read)
        return read


def pod(name: str, *, ready: bool = True, **status: object) -> dict:
    conditions = [{"type": "Ready", "status": str(ready)}, *status.pop("conditions", ())]  # type: ignore[misc]
    return {
        "metadata": {
            "name": name,
            "ownerReferences": [{"uid": "1-2-3"}],
            "creationTimestamp": f"2026-01-01T00:00:0{name[-1]}Z",
        },
        "status": {"phase": "Running" if ready else "Pending", "conditions": conditions, **status},
    }


@pytest.fixture
def service():
    return MasterService("the-token")


@pytest.fixture
def served(service):
    master = Served()
    service.serve(master)
    return master


@pytest.fixture
def way(service):
    server = create_server(service, host="127.0.0.1", port=0, **SERVER)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    yield Way(server.effective_port)
    # In its own thread, which then has nothing left to wait for. It may be awake and close before it is woken.
    with contextlib.suppress(OSError):
        server.trigger.pull_trigger(server.close)
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    server.task_dispatcher.shutdown()


@pytest.fixture
def naps():
    return []


@pytest.fixture
def link(way, naps):
    return KubernetesLink(way, JOB, sleep=naps.append, monotonic=lambda: sum(naps))


def test_every_call_arrives_and_its_answer_comes_back(served, link):
    job = JobHandle("quick-start", link, user="ada")
    assert job.snapshot() == served.state
    assert job.series().node == builders.series().node
    taken = job.decide(Accept("", why="good"))
    assert (taken.by, taken.why, taken.id) == ("ada", "good", served.asked[0].id)
    plan = served.state.target
    assert [each.plan for each in job.weigh(plan, plan)] == [plan, plan]
    assert job.explain() == served.explain(None)
    assert job.logs(n_line=5) == served.logs(None, 5)
    choice = ShardChoice(3, ShardAction.RETRY, "ada", "mended")
    link.choose(choice)
    assert served.choices == (choice,)
    link.stop("ada", "enough")
    assert served.stopped == "ada: enough"
    assert link.ask_summary("m-1", timeout_s=5) == summarize(served.state)


def test_an_error_for_the_user_arrives_as_itself(served, link, error_words):
    with error_words(InvalidValueError):
        link.logs(None, 0)
    with error_words(StaleDecisionError):
        JobHandle("quick-start", link).decide(Accept("p9"))


def test_an_error_of_the_masters_own_is_told_without_what_is_in_it(served, link, monkeypatch, caplog, words):
    monkeypatch.setattr(served, "weigh", lambda _: 1 / 0)
    with pytest.raises(BackendError, match=r"failed to answer \(ZeroDivisionError\)"):
        link.weigh(())
    assert caplog.messages == words


def test_a_picture_that_the_client_has_is_not_sent_again(served, way, link):
    served.still = True
    first = link.snapshot()
    n_byte = way.n_byte
    assert link.snapshot() is first
    assert way.n_byte < 100 < n_byte
    served.state = replace(served.state, message="news")
    assert link.snapshot().message == "news"


@pytest.mark.parametrize("token", ["", "the-toke", "the-token2"])
def test_who_does_not_know_the_token_is_told_nothing_but_that(served, way, token, error_words):
    other = KubernetesLink(way, replace(JOB, access=token), sleep=lambda _: None)
    with error_words(BackendError) as caught:
        other.snapshot()
    assert not token or token not in str(caught.value)
    assert not served.asked


def test_what_is_no_call_is_refused(served, way):
    def status(path: str = CALL_PATH, body: bytes | None = b"", method: str = "POST", **headers: str) -> int:
        request = urllib.request.Request(
            f"http://127.0.0.1:{way.port}{path}", body, {ACCESS_HEADER: "the-token", **headers}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    assert status(body=CALLS.pack(AskSnapshot())) == 200
    assert status(body=b"not a call") == 400
    assert status(body=json.dumps(["AskSnapshot", {}]).encode()) == 400
    assert status(body=b"x" * (MOST_BYTES + 1)) == 413
    assert status(body=None, method="GET") == 400
    assert status(f"{CALL_PATH}?call=%21", body=None, method="GET") == 400
    assert status(method="PUT") == 405
    assert status("/elsewhere") == 404
    assert status("/ready", None, "GET", **{ACCESS_HEADER: ""}) == 200


def test_before_the_job_begins_its_picture_says_what_it_waits_for(service, link, way, error_words, words):
    service.set_activity("its master looks at the data")
    now = link.snapshot()
    assert (now.phase, now.message) == (JobPhase.STARTING, words)
    assert link.series(0).cursor == 0
    with error_words(BackendError):
        link.weigh(())


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}]},
            "waits for a machine: Unschedulable: 0/2 nodes",
        ),
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]},
            "waits: ImagePullBackOff: no such image",
        ),
        (
            {
                "containerStatuses": [
                    {
                        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
                        "lastState": {"terminated": {"message": "No module named dlrover_nb"}},
                    }
                ]
            },
            "waits: CrashLoopBackOff: No module named dlrover_nb",
        ),
        ({}, "is being scheduled"),
    ],
)  # fmt: skip
def test_a_master_that_is_not_up_yet_is_no_error_and_says_why(way, link, status, told):
    way.pods = [pod("m-1", ready=False, **status)]
    now = link.snapshot()
    assert now.phase is JobPhase.STARTING
    assert told in now.message


def test_what_keeps_a_masters_pod_from_being_made_is_told(way, link, words):
    way.pods = []
    assert link.snapshot().message == words
    way.events = [
        {"type": "Normal", "reason": "Made", "message": "a pod", "lastTimestamp": "2026-01-01T00:00:09Z"},
        {"type": "Warning", "reason": "Old", "message": "old", "lastTimestamp": "2026-01-01T00:00:01Z"},
        {
            "type": "Warning",
            "reason": "FailedCreate",
            "message": "full",
            "lastTimestamp": "2026-01-01T00:00:05Z",
        },
    ]
    assert link.snapshot().message == words


def test_a_replaced_master_is_found_again(served, way, link, naps):
    link.snapshot()
    way.pods = [pod("m-2")]
    assert JobHandle("quick-start", link).decide(Accept("")).id == served.asked[0].id
    assert not naps
    way.pods = [pod("m-2"), pod("m-3")]
    assert link.snapshot().spec.name == "quick-start"


def test_who_looks_at_a_job_is_told_soon_that_its_master_is_gone_and_who_asks_waits(
    served, way, link, naps, error_words
):
    job = JobHandle("quick-start", link)
    before = job.snapshot()
    looks = job.with_short_timeout
    assert looks.snapshot().spec == before.spec
    way.pods = []
    for ask, waited_s in ((looks.snapshot, 5), (looks.series, 5), (job.snapshot, 60), (job.explain, 60)):
        naps.clear()
        with error_words(AwayError):
            ask()
        assert sum(naps) == waited_s
    naps.clear()
    way.pods = [pod("m-2")]
    assert looks.snapshot().spec == before.spec
    assert not naps


def test_a_picture_is_not_awaited_long_from_where_the_master_was_last(served, way, link, naps):
    link.snapshot()
    way.n_lost = 1
    way.limits_s.clear()
    assert link.snapshot().phase is JobPhase.TRAINING
    assert way.limits_s == [2, 20]
    assert not naps


def test_who_looks_is_told_soon_that_no_api_server_answers(served, way, link, naps):
    way.n_lost = 1_000
    with pytest.raises(Unreachable):
        link.with_short_timeout().snapshot()
    assert sum(naps) == 2.5


class BlackHole(Way):
    """An API server whose packets are dropped: each request takes as long as it may."""

    def __init__(self, port, naps, *, limit_s=20.0):
        super().__init__(port)
        self.naps, self.limit_s = naps, limit_s

    def with_short_timeout(self, limit_s):
        return BlackHole(self.port, self.naps, limit_s=limit_s)

    def get(self, kind, name):
        self.lose(self.limit_s, Operation("get", kind, "n", name))

    def proxy(self, name, port, path, body, headers, timeout_s, *, method="POST"):  # noqa: ARG002 - as above
        self.lose(timeout_s, Operation(VERBS[method], POD, "n", name, "proxy"))

    def lose(self, limit_s, asked):
        self.naps.append(limit_s)
        raise Unreachable(f"the API server did not answer within {limit_s:g} s", Status(0), asked)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("short", [True, False])
@pytest.mark.parametrize("refuses", [True, False])
def test_a_snapshot_from_an_api_server_that_is_away_ends_within_five_seconds(naps, known, short, refuses):
    away = BlackHole(0, naps)
    if refuses:
        away.lose = lambda _, asked: BlackHole.lose(away, 0.0, asked)
        away.with_short_timeout = lambda _: away
    link = KubernetesLink(away, JOB, sleep=naps.append, monotonic=lambda: sum(naps))
    link._pod = "m-1" if known else None
    link = link.with_short_timeout() if short else link
    with pytest.raises(AwayError, match="did not answer"):
        link.snapshot()
    assert sum(naps) <= 5


def test_who_waits_for_a_job_waits_for_an_api_server_too(served, way, monkeypatch):
    link, shown = KubernetesLink(way, JOB, sleep=lambda _: None), []
    monkeypatch.setattr(handle.time, "sleep", lambda _: shown.append(setattr(way, "n_lost", 0)))
    monkeypatch.setattr(link, "_back_limit_s", 0.0)
    way.n_lost = 1
    served.state = replace(served.state, phase=JobPhase.SUCCEEDED, ended_at_s=served.state.at_s)
    assert JobHandle("quick-start", link).wait().phase is JobPhase.SUCCEEDED
    assert shown


def test_an_api_server_that_was_away_is_asked_again_but_a_decision_is_not(served, way, link, naps):
    way.n_lost = 3
    assert link.snapshot().phase is JobPhase.TRAINING
    way.n_lost, n_asked = 1, way.n_asked
    with pytest.raises(Unreachable):
        link.decide(builders.snapshot().decisions[0])
    assert (way.n_asked, served.asked) == (n_asked + 1, [])


def test_a_call_waits_for_a_master_that_continues_the_job_as_long_as_it_gets_on(service, way):
    master, naps, told = Served(), [], []

    def nap(seconds):
        naps.append(seconds)
        n_read = int(sum(naps) // 50)
        service.set_resuming(f"reads its journal: {n_read} of 4 MB")
        if n_read == 4:
            service.serve(master)

    link = KubernetesLink(way, JOB, sleep=nap, monotonic=lambda: sum(naps))
    service.set_resuming("reads its journal: 0 of 4 MB")
    with listening(told.append):
        link.choose(ShardChoice(3, ShardAction.RETRY, "ada", "mended"))
    assert len(master.choices) == 1
    assert sum(naps) == 200
    head = "the master of job quick-start, which reads its journal:"
    assert told == [f"{head} {n} of 4 MB" for n in range(4)]


def test_a_master_that_does_not_get_on_is_given_up_and_views_say_what_it_does(
    service, way, link, naps, error_words, words
):
    service.set_resuming("reads its journal: 1 of 4 MB")
    with error_words(BackendError):
        link.decide(builders.snapshot().decisions[0])
    assert sum(naps) == 60
    now = link.with_short_timeout().snapshot()
    assert (now.phase, now.message) == (JobPhase.STARTING, words)
    assert sum(naps) == 60


def test_an_ended_job_shows_its_last_picture(way, link):
    last = builders.snapshot(phase=JobPhase.SUCCEEDED, message="done", ended_at_s=builders.START_S + 300)
    lines = (LogLine(1.0, "worker-0", "info", "loss 0.1"), LogLine(2.0, "ps-0", "info", "up"))
    way.end = end_document(last, run="0123abcd", namespace="n", lines=lines)
    way.job["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    way.pods = []
    job = JobHandle("quick-start", link)
    assert job.wait() == last
    assert job.series().job == {}
    assert [line.text for line in job.logs("worker-0")] == ["loss 0.1"]
    link.stop("ada", "")
    with pytest.raises(StaleDecisionError, match="has succeeded"):
        job.decide(Scale.to(last.target))


def test_a_picture_that_a_run_before_left_is_none_of_this_one(way, link):
    last = builders.snapshot(phase=JobPhase.SUCCEEDED, message="done", ended_at_s=builders.START_S + 300)
    way.end = end_document(last, run="99999999", namespace="n")
    way.job["status"] = {"conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]}
    way.pods = []
    now = link.snapshot()
    assert (now.phase, now.message) == (JobPhase.FAILED, "its master failed: DeadlineExceeded")


def test_a_body_that_is_too_large_is_refused_before_it_is_taken_in(way):
    with socket.create_connection(("127.0.0.1", way.port), timeout=LIMIT_S) as stranger:
        head = f"POST {CALL_PATH} HTTP/1.1\r\nHost: m\r\nContent-Length: {1 << 30}\r\n\r\n"
        stranger.sendall(head.encode())  # and no body: an answer comes only if none is waited for
        assert stranger.recv(1 << 16).startswith(b"HTTP/1.1 413 ")


def test_a_job_whose_master_could_not_run_has_failed_with_the_reason(way, link, error_words, words):
    way.job["status"] = {
        "conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "6 times"}]
    }  # fmt: skip
    way.pods = []
    now = link.snapshot()
    assert (now.phase, now.message) == (JobPhase.FAILED, words)
    with error_words(NotFoundError):
        JobHandle("quick-start", link).logs()


def test_a_deleted_job_and_another_run_of_its_name_are_told_apart(served, way, link, error_words):
    way.pods = []
    way.job["metadata"]["labels"]["dlrover-nb/run"] = "ffffffff"
    with error_words(NotFoundError):
        link.snapshot()
    way.job = None
    with error_words(NotFoundError):
        link.snapshot()


@pytest.mark.more
def test_a_last_picture_comes_back_whole_and_a_huge_one_loses_its_oldest_parts():
    whole = replace(builders.snapshot(), series=builders.series(30))
    assert end_of(end_document(whole, run="r", namespace="n")) == whole
    story = tuple(f"{i:x} {hash(str(i)):x}" for i in range(20_000))
    huge = replace(whole, story=story)
    fitted = pack_snapshot(huge, most_bytes=50_000)
    assert len(fitted) <= 50_000
    document = end_document(huge, run="r", namespace="n")
    assert end_of(document).story[-1] == story[-1]
    with pytest.raises(WireError, match="holds no snapshot"):
        end_of({"metadata": {"name": "x-end"}, "binaryData": {"snapshot": "AAAA"}})
