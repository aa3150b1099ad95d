"""Pods of programs of others as documents, their reports, and the lines that they write."""

import io
import json
import threading

import pytest
from support.cases import for_each
from support.waiting import LIMIT_S

from dlrover_nb.core.backends.kubernetes.client.api_errors import Operation, Status, Unreachable
from dlrover_nb.core.backends.kubernetes.nodes.pod_logs import PodLogs, parse_line
from dlrover_nb.core.driver.calls.service import REPORT_PATH, MasterService
from dlrover_nb.core.jobfile import job_from
from dlrover_nb.core.manifests.objects import companions
from dlrover_nb.core.manifests.pod_parts import report_token
from dlrover_nb.core.manifests.pods import PodNode, node_pod
from dlrover_nb.core.structs.job.external import StepsDone
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.wire.pod_contract import PodJob

SECRETS = ("the-secret-key", "the-access-token")
TF = {
    "n_sample": 100,
    "worker": {"command": ["python", "/app/train.py"], "image": "theirs:1", "env": ["STAGE=b", "MODE=x"]},
    "ps": {"command": ["python", "/app/ps.py"]},
}


def job(**foreign):
    kube = {"image": "all:1", "env": ["STAGE=a"], "python": "/opt/python"}
    spec = job_from({"name": "a", "external": TF | foreign, "kubernetes": kube})
    return PodJob(spec, None, "0a1b2c3d", "public", *SECRETS)


def pod(told, role=Role.WORKER):
    return node_pod(told, PodNode(f"{role}-0", role, 0.5, 256), master="http://10.0.0.1:8080/v1/report")


def env(document):
    return {each["name"]: each for each in document["spec"]["containers"][0]["env"]}


def test_a_pod_runs_the_users_program_from_the_users_image():
    worker, ps = (pod(job(), role)["spec"]["containers"][0] for role in (Role.WORKER, Role.PS))
    assert (worker["image"], ps["image"]) == ("theirs:1", "all:1")
    assert worker["command"][:2] == ["/bin/sh", "-c"]
    assert worker["command"][4:] == ["python", "/app/train.py"]
    assert ps["command"][4:] == ["python", "/app/ps.py"]


def test_the_store_of_a_torch_job_is_ours_and_in_the_workers_image():
    store = pod(job(framework="torch", ps={}), Role.PS)["spec"]["containers"][0]
    assert store["image"] == "theirs:1"
    assert store["command"][4:6] == ["/opt/python", "-c"]
    compile(store["command"][6], "store", "exec")


def test_a_fixed_role_runs_its_own_program_in_a_pod_of_its_role():
    told = job(roles=[{"name": "evaluator", "command": ["evaluate"], "env": ["E=1"], "image": "eval:2"}])
    document = pod(told, Role("evaluator"))
    (program,) = document["spec"]["containers"]
    assert (program["image"], program["command"][4:]) == ("eval:2", ["evaluate"])
    assert env(document)["E"]["value"] == "1"
    assert "evaluator" in document["metadata"]["labels"].values()


def test_roles_run_with_others_and_apart_from_others_as_they_say():
    apart = TF["worker"] | {"apart_from": ["ps", "worker"]}
    reader = {"name": "reader", "command": ["read"], "together_with": "worker"}
    told = job(worker=apart, roles=[reader])
    spec, worker = pod(told)["spec"], pod(told)["metadata"]["labels"]
    rule = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = spec["affinity"]["podAntiAffinity"][rule]
    assert terms[0]["topologyKey"] == "kubernetes.io/hostname"
    named = [each["labelSelector"]["matchLabels"].items() for each in terms]
    assert [each <= pod(told, Role.PS)["metadata"]["labels"].items() for each in named] == [True, False]
    assert [each <= worker.items() for each in named] == [False, True]
    assert "preferredDuringSchedulingIgnoredDuringExecution" in spec["affinity"]["podAntiAffinity"], "spread"
    (beside,) = pod(told, Role("reader"))["spec"]["affinity"]["podAffinity"][rule]
    assert beside["labelSelector"]["matchLabels"].items() <= worker.items()
    assert rule not in pod(told, Role.PS)["spec"]["affinity"]["podAntiAffinity"]


def test_a_role_has_its_own_variables_over_those_of_all_pods():
    told = env(pod(job()))
    assert (told["STAGE"]["value"], told["MODE"]["value"]) == ("b", "x")
    assert told["DLROVER_NB_CLUSTER"]["value"] == "/dlrover-nb/pod/cluster"
    assert env(pod(job(), Role.PS))["STAGE"]["value"] == "a"


def test_programs_of_others_see_no_secret_of_the_job_but_their_own_token():
    told = job()
    document = pod(told)
    text = json.dumps(document)
    assert not any(secret in text for secret in (*SECRETS, report_token(told)))
    (volume,) = (each for each in document["spec"]["volumes"] if "secret" in each)
    assert volume["secret"]["items"] == [
        {"key": "report", "path": "token"},
        {"key": "certificate", "path": "certificate"},
    ]
    mounted = document["spec"]["containers"][0]["volumeMounts"][-1]
    assert mounted == {"name": volume["name"], "mountPath": "/dlrover-nb/report", "readOnly": True}
    assert env(document)["KUBEFLOW_TRAINER_SERVER_TOKEN"]["value"] == "/dlrover-nb/report/token"
    assert env(document)["DLROVER_NB_CERTIFICATE_FILE"]["value"] == "/dlrover-nb/report/certificate"
    assert env(document)["DLROVER_NB_HTTPS_PORT"]["value"] == "8443"
    where = env(document)["DLROVER_NB_REPORT_TOKEN"]["valueFrom"]["secretKeyRef"]
    secret = companions(told, code={}, namespace="n")[0]
    assert where == {"name": secret["metadata"]["name"], "key": "report"}
    assert where["key"] in secret["data"]


def test_our_own_jobs_have_no_report_token():
    own = PodJob(job_from({"name": "a"}), None, "0a1b2c3d", "public", *SECRETS)
    assert list(companions(own, code={}, namespace="n")[0]["data"]) == ["job.json"]


def ask(service, body, token, *, path=REPORT_PATH, header="HTTP_X_DLROVER_REPORT", method="POST"):
    told = []
    environ = {
        "PATH_INFO": path,
        "REQUEST_METHOD": method,
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
        header: token,
    }
    service(environ, lambda status, _: told.append(status))
    return int(told[0].split()[0])


@pytest.fixture
def heard():
    return []


@pytest.fixture
def service(heard):
    made = MasterService("the-access-token")
    made.take_reports("the-report-token", heard.append)
    return made


REPORT = json.dumps({"node": "worker-0", "program": "1-f", "n_iter": 3, "n_sample": 48, "at_s": 1.5}).encode()


def test_a_report_with_its_token_is_heard(service, heard):
    assert ask(service, REPORT, "the-report-token") == 200
    assert heard == [StepsDone("worker-0", "1-f", at_s=1.5, n_iter=3, n_sample=48)]


@pytest.mark.parametrize("token", ["", "the-access-token", "the-report-tokem"])
def test_a_report_without_its_token_is_not(service, heard, token):
    assert ask(service, REPORT, token) == 401
    assert heard == []


def test_the_report_token_allows_nothing_else(service):
    assert ask(service, b"", "the-report-token", path="/call", header="HTTP_X_DLROVER_ACCESS") == 401


@for_each("body", [b"", b"{", b'{"node": "a"}', REPORT.replace(b"3", b"-3"), REPORT.replace(b"48", b'"x"')])
def test_a_report_that_is_none_is_refused(service, heard, body):
    assert ask(service, body, "the-report-token") == 400
    assert heard == []


def test_a_job_of_our_own_takes_no_reports():
    made = MasterService("the-access-token")
    made.serve(object())
    assert ask(made, REPORT, "") == 401


def test_a_master_that_has_not_begun_asks_programs_to_try_again(service):
    assert ask(MasterService("the-access-token"), REPORT, "the-report-token") == 503
    assert ask(service, b"{}", "the-report-token", path="/v1/service") == 503
    assert ask(service, b"{}", "", path="/v1/call") == 401


@pytest.mark.parametrize(
    ("line", "at_ns"),
    [
        ("1970-01-01T00:00:02.5Z hello there", 2_500_000_000),
        ("1970-01-01T00:00:02.000000001Z hello there", 2_000_000_001),
        ("1970-01-01T01:00:02+01:00 hello there", 2_000_000_000),
    ],
)
def test_a_line_says_when_it_was_written(line, at_ns):
    assert parse_line(line) == (at_ns, "hello there")


def test_a_line_without_a_time_is_kept_apart():
    line = "unable to retrieve container logs"
    assert parse_line(line) == (0, line)


def test_no_line_is_lost_where_a_machines_clock_is_set_back(monkeypatch):
    times = ("01:00:01", "01:00:02", "00:00:03", "00:00:04", "01:00:01", "01:00:03")
    api = Cut([f"1970-01-01T{at}.5Z line {n}" for n, at in enumerate(times)], each=99)
    logs = PodLogs(api)
    monkeypatch.setattr("dlrover_nb.core.backends.kubernetes.nodes.pod_logs.PAUSE_S", 0)
    logs.begin({"worker-0": 3601 * 10**9})
    logs.see("worker-0", {"metadata": {"name": "a-worker-0"}, "status": {"phase": "Succeeded"}})
    logs._followed["worker-0"].join(LIMIT_S)
    assert [line.text for line in logs.take()] == [f"line {n}" for n in range(len(times))]


class Cut:
    """An API server whose connections break after so many lines each."""

    def __init__(self, lines, *, each):
        self._lines, self._each = lines, each
        self.asked, self.was_cut_twice = [], threading.Event()

    def log(self, pod, *, follow, timestamps, since):  # noqa: ARG002 - as of `Api`
        self.asked.append(since)
        if len(self.asked) > 2:
            self.was_cut_twice.set()
        start = next(i for i, line in enumerate(self._lines) if line[:19] >= since[:19])
        for n, line in enumerate(self._lines[start:]):
            if n == self._each and follow:
                raise Unreachable("it broke", Status(0), Operation("get", None, name=pod))
            yield line


def test_lines_are_read_once_however_often_the_connection_breaks(monkeypatch):
    lines = [f"1970-01-01T00:00:0{1 + n // 4}.{n % 4}Z line {n}" for n in range(12)]
    api = Cut(lines, each=5)
    logs = PodLogs(api)
    monkeypatch.setattr("dlrover_nb.core.backends.kubernetes.nodes.pod_logs.PAUSE_S", 0)
    logs.begin({})
    document = {"metadata": {"name": "a-worker-0"}, "status": {"phase": "Running"}}
    logs.see("worker-0", document)
    assert api.was_cut_twice.wait(LIMIT_S)
    document["status"]["phase"] = "Succeeded"
    logs.see("worker-0", document)
    logs._followed["worker-0"].join(LIMIT_S)
    assert [line.text for line in logs.take()] == [f"line {n}" for n in range(12)]
    assert logs.take() == ()
