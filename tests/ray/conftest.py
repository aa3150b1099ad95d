import psutil
import pytest
import ray
from support.conformance.backend import Master
from support.waiting import LIMIT_S, until

from dlrover_nb.core.backends.ray import master, ray_jobs, reach, summaries
from dlrover_nb.core.backends.ray.summaries import master_of
from dlrover_nb.core.connect import connect
from dlrover_nb.core.errors import BackendError

UP = []  # the cluster of these tests, while its head is up


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Let clients wait for a master as long as tests do: on a loaded machine one starts in minutes."""
    monkeypatch.setattr(master, "CALL_TIMEOUT_S", LIMIT_S)
    monkeypatch.setattr(master, "BACK_LIMIT_S", LIMIT_S)
    monkeypatch.setattr(reach, "ANSWER_LIMIT_S", LIMIT_S)
    monkeypatch.setattr(summaries, "LIMIT_S", 60.0)
    monkeypatch.setattr(ray_jobs, "LIMIT_S", LIMIT_S)


def started():
    """Start a head; nothing where Ray gave up after its 30 s for a raylet, which no setting changes."""
    try:
        return connect("ray", cpus=4)
    except BackendError as error:
        if "timed out during startup" not in str(error):
            raise
        return None


@pytest.fixture(scope="session")
def cluster(own_home):
    """One local Ray head for these tests, ended after the last of them (see `parts.COSTLY`)."""
    cluster = until(started, "a Ray head")
    UP.append(cluster)
    yield cluster
    UP.remove(cluster)
    cluster.shutdown(force=True)


@pytest.fixture(name="master")
def played_master(cluster, tmp_path):
    """Be the master of nodes that a test starts by itself."""
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    played = Master("ipc", folder)
    yield played
    played.close()


@pytest.fixture(scope="module", autouse=True)
def masters_leave():
    """End the masters of ended jobs with their module: Ray wakes each idle actor a hundred times a second."""
    yield
    for cluster in UP if ray.is_initialized() else ():
        for summary in cluster.live_jobs():
            if summary.phase.is_final:
                ray.kill(master_of(summary.name))


@pytest.fixture
def wait_until():
    """Poll a condition that another process brings about."""

    return until


@pytest.fixture
def kill_node():
    """End a node's process as a crash would."""

    def kill(snapshot, role):
        node = next(n for n in snapshot.nodes if n.role == role and n.phase == "ready" and n.pid)
        psutil.Process(node.pid).kill()
        return node.id

    return kill
