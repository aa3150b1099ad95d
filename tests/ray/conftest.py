import time

import psutil
import pytest

from dlrover_nb.core.connect import connect
from dlrover_nb.core.errors import BackendError

START_TRIES = 3  # a Ray start can time out on a loaded machine


@pytest.fixture(scope="session")
def cluster(own_home):
    """One local Ray head for the whole run, ended by its own pid."""
    for attempt in range(START_TRIES):
        try:
            cluster = connect("ray", cpus=4)
            break
        except BackendError:
            if attempt == START_TRIES - 1:
                raise
    yield cluster
    cluster.shutdown(force=True)


@pytest.fixture
def wait_until():
    """Poll a condition that another process brings about."""

    def poll(condition, timeout_s=90.0, what="the condition"):
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            if value := condition():
                return value
            time.sleep(0.1)
        raise AssertionError(f"{what} did not come about within {timeout_s:g} s")

    return poll


@pytest.fixture
def kill_node():
    """End a node's process as a crash would."""

    def kill(snapshot, role):
        node = next(n for n in snapshot.nodes if n.role == role and n.phase == "ready" and n.pid)
        psutil.Process(node.pid).kill()
        return node.id

    return kill
