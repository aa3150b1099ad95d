"""Calls of users with the shipped roles to a master's service, through a real API server; no pod runs there.

The Job's pod is a document whose address is this machine's: the API server passes calls on to it all the same.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from functools import partial

import pytest
from support.jobs.masters import Master
from support.kubernetes.kube import await_rights, grant
from support.waiting import LIMIT_S, until
from waitress.server import create_server

from dlrover_nb.core.backends.kubernetes.client.api import connect_api
from dlrover_nb.core.backends.kubernetes.client.api_errors import Forbidden, PodAnswered
from dlrover_nb.core.backends.kubernetes.cluster import KubernetesCluster
from dlrover_nb.core.backends.kubernetes.jobs import link as job_link
from dlrover_nb.core.backends.kubernetes.jobs.link import MasterDoor, read_job
from dlrover_nb.core.commands.requests import Accept, Finish
from dlrover_nb.core.driver.calls.service import ACCESS_HEADER, SERVER, MasterService
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.manifests.kinds import POD
from dlrover_nb.core.manifests.pod_parts import JOB_LABEL
from dlrover_nb.core.manifests.role_rules import OPERATOR, USER, VIEWER
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.views.summary import summarize

pytestmark = [pytest.mark.kube, pytest.mark.more]
ROLES = {"vic": VIEWER, "olga": OPERATOR, "ute": USER}
NAME = "quick-start"  # of the job of `masters.Master`


class Served(Master):
    """A master that remembers who ended it."""

    ended: tuple[str, ...] = ()

    def summary(self):
        return summarize(self.state)

    def choose(self, choice):
        self.ended += (choice.by,)

    def stop(self, by, why):
        self.ended += (f"{by}: {why}",)


def own_address():
    """Return an address of this machine that is not the loopback's, which the API server never asks."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            pytest.skip("this machine has no address but the loopback's")
        return probe.getsockname()[0]


@pytest.fixture
def served():
    return Served()


@pytest.fixture
def service():
    """Return the server on a port of this machine, and where the service that it asks is put."""
    box = []

    def application(environ, start_response):
        return box[0](environ, start_response)

    server = create_server(application, host=own_address(), port=0, **SERVER)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    yield box, server

    def close():
        for channel in [*server.active_channels.values()]:
            channel.handle_close()  # the API server keeps its connections
        server.close()

    with contextlib.suppress(OSError):  # it may be awake, and close before it is woken
        server.trigger.pull_trigger(close)
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    server.task_dispatcher.shutdown()


@pytest.fixture
def people(control_plane, namespace, service, served, monkeypatch):
    """Submit a job whose master answers here; return what each person connects to, and the boss's API."""
    box, server = service
    monkeypatch.setattr(job_link, "HTTP_PORT", server.effective_port)
    admin = connect_api(namespace=namespace(control_plane), kubeconfig=control_plane.kubeconfig)
    clusters = {}
    for person, rights in ROLES.items():
        grant(admin, rights, person)
        acting = connect_api(namespace=admin.namespace, kubeconfig=control_plane.acting_as(person))
        await_rights(acting, rights)
        clusters[person] = KubernetesCluster(acting)
    clusters["ute"].submit(JobSpec(NAME))
    box.append(MasterService(read_job(admin, NAME).access))
    box[0].serve(served)
    [pod] = until(lambda: admin.list(POD, selector=f"{JOB_LABEL}={NAME}").items, what="the master's pod")
    ready = {"type": "Ready", "status": "True"}
    status = {
        "phase": "Running",
        "podIP": server.effective_host,
        "podIPs": [{"ip": server.effective_host}],
        "conditions": [ready],
    }
    admin.patch(POD, pod["metadata"]["name"], {"status": status}, subresource="status")
    yield clusters, admin
    clusters["ute"].delete(NAME, force=True)
    admin.delete(POD, pod["metadata"]["name"], grace_s=0)
    for cluster in clusters.values():
        cluster.shutdown()


def test_a_viewer_sees_an_operator_steers_too_and_a_user_ends_too(people, served):
    clusters, _ = people
    for cluster in clusters.values():
        job = cluster.job(NAME)
        assert job.snapshot().phase is JobPhase.TRAINING
        assert until(cluster.live_jobs)[0].name == NAME
        assert job.weigh(*[served.state.target] * 50)
        assert job.logs(n_line=5) == served.logs(None, 5)

    with pytest.raises(
        Forbidden, match=r"vic may not create pods/proxy .*, which is the right to steer jobs"
    ):
        clusters["vic"].job(NAME).decide(Accept(""))
    assert not served.asked
    assert clusters["olga"].job(NAME).decide(Accept("", why="good")).by == "olga"
    assert len(served.asked) == 1

    for person in ("vic", "olga"):
        link = clusters[person].job(NAME).link
        for end in (partial(link.stop, person, ""), partial(clusters[person].job(NAME).ask, Finish())):
            with pytest.raises(Forbidden, match=rf"{person} may not delete pods/proxy .* right to end jobs"):
                end()
    assert served.ended == ()
    ute = clusters["ute"].job(NAME)
    ute.ask(Finish())
    why = "enough: \N{MULTIPLICATION SIGN} & ? +"
    ute.link.stop("ute", why)
    assert served.ended == ("ute", f"ute: {why}")


def test_an_operator_who_sends_a_stop_as_steering_is_refused_by_the_master(people, served, error_words):
    clusters, admin = people
    door = MasterDoor(read_job(clusters["olga"].api, NAME).access)
    door._is_earlier = True  # as a client of 0.1 sends everything
    link = clusters["olga"].job(NAME).link
    link._door = door
    with error_words(BackendError):
        link.stop("olga", "")
    assert served.ended == ()
    [pod] = admin.list(POD, selector=f"{JOB_LABEL}={NAME}").items
    with pytest.raises(PodAnswered, match="answered 401"):
        clusters["vic"].api.proxy(
            pod["metadata"]["name"], job_link.HTTP_PORT, "/call", None, {ACCESS_HEADER: "x"}
        )


def test_what_an_api_server_passes_on_of_a_call_in_a_url_arrives_as_it_was_sent(people, served):
    clusters, _ = people
    long = "".join(chr(0x100 + i) for i in range(900)) + "&=%/?#+ \n"
    clusters["ute"].job(NAME).link.stop("ute", long)
    assert served.ended == (f"ute: {long}",)
