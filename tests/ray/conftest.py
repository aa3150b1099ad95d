import psutil
import pytest
from waiting import LIMIT_S, until

from dlrover_nb.core.backends.ray import master
from dlrover_nb.core.connect import connect
from dlrover_nb.core.errors import BackendError


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Let clients wait for a master as long as tests do: on a loaded machine one starts in minutes."""
    monkeypatch.setattr(master, "CALL_TIMEOUT_S", LIMIT_S)
    monkeypatch.setattr(master, "BACK_LIMIT_S", LIMIT_S)


def started():
    """Start a head; nothing where Ray gave up after its 30 s for a raylet, which no setting changes."""
    try:
        return connect("ray", cpus=4)
    except BackendError as error:
        if "timed out during startup" not in str(error):
            raise
        return None


@pytest.fixture(scope="package")
def cluster(own_home):
    """One local Ray head for these tests, ended with them: masters of ended jobs go on taking some of a core."""
    cluster = until(started, "a Ray head")
    yield cluster
    cluster.shutdown(force=True)


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
