"""Jobs that others submitted to a Ray with its own client: read, and never changed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import pytest
from ray.job_submission import JobSubmissionClient
from support.waiting import until

from dlrover_nb.api.cluster import Cluster
from dlrover_nb.core.backends.ray.ray_jobs import ADDRESS_VAR
from dlrover_nb.core.errors import NotFoundError, UnmanagedJobError

pytestmark = [pytest.mark.ray, pytest.mark.more]

PROGRAM = "print('hello from ray', flush=True); import time; time.sleep(3600)"


def test_a_ray_without_a_dashboard_has_none(cluster):
    assert cluster.unmanaged_jobs() == ()
    with pytest.raises(NotFoundError, match="no job 'theirs'"):
        Cluster(cluster).job("theirs")


def free_ports(n):
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [str(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports


@pytest.fixture
def dashboard(tmp_path, monkeypatch, tmp_path_factory):
    """Start a Ray with a dashboard beside ours; it needs what ``ray[default]`` installs."""
    for needed in ("aiohttp_cors", "grpc", "opencensus", "opentelemetry.proto"):
        pytest.importorskip(needed, reason="the dashboard of Ray needs ray[default]")
    gcs, port, first = free_ports(3)
    folder = tmp_path_factory.mktemp("r")
    options = ["--node-ip-address", "127.0.0.1", "--port", gcs, "--num-cpus", "1", "--temp-dir", str(folder)]
    options += ["--include-dashboard=true", "--dashboard-host", "127.0.0.1", "--dashboard-port", port]
    options += ["--min-worker-port", "0", "--max-worker-port", "0", "--ray-client-server-port", first]
    options += ["--object-store-memory", "80000000", "--disable-usage-stats"]
    outer = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", *options],
            env=outer,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    url = f"http://127.0.0.1:{port}"
    monkeypatch.setenv(ADDRESS_VAR, url)
    yield url, process
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)


def client_of(url, process):
    def answers():
        assert process.poll() is None, "Ray has ended"
        try:
            return JobSubmissionClient(url)
        except (ConnectionError, RuntimeError):
            return None

    return until(answers, what="Ray's job API")


def test_a_job_by_rays_own_client_is_read_to_its_end(cluster, dashboard):
    theirs = client_of(*dashboard)
    entrypoint = f'{sys.executable} -c "{PROGRAM}"'

    def submitted():
        try:
            return theirs.submit_job(
                entrypoint=entrypoint, submission_id="theirs-1", metadata={"team": "ads"}
            )
        except RuntimeError as error:  # the agent of the head still starts, or its answer was lost
            return "theirs-1" if "already exists" in str(error) else None

    name = until(submitted, what="a job")
    ours = Cluster(cluster)
    until(lambda: ours.unmanaged_job(name).job.state == "RUNNING", what="its start")
    until(lambda: "hello from ray" in ours.logs(name, n=1).text.splitlines(), what="its output")
    told = ours.unmanaged_job(name).job
    assert PROGRAM in told.entrypoint
    assert (told.facts, told.ended_at_s) == ((("team", "ads"),), None)
    assert "theirs-1" in ours.jobs().view().text()
    for change in (ours.job, ours.delete):
        with pytest.raises(UnmanagedJobError, match="ray job stop theirs-1"):
            change(name)
    assert theirs.get_job_status(name) == "RUNNING"
    theirs.stop_job(name)
    until(lambda: ours.unmanaged_job(name).job.is_final, what="its end")
    told = ours.unmanaged_job(name).job
    assert (told.state, told.ended_at_s > told.started_at_s) == ("STOPPED", True)
