import os
import shutil
import tempfile
from pathlib import Path

import pytest

pytest_plugins = ["chromium", "kube"]  # fixtures of every test with a browser, or with a Kubernetes

START_AND_TEST_S = 300  # the first test of a Kubernetes waits for its start, which may need a second try

# Read when Ray is imported, by whichever test comes first.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.pop("DLROVER_NB_HISTORY", None)  # no test writes to a team's history


@pytest.fixture(scope="session", autouse=True)
def own_home():
    """Give the run its own state and data folders: nothing of the user is read or written."""
    folder = Path(tempfile.mkdtemp(prefix="dl"))  # short: unix sockets live below it
    saved = {key: os.environ.get(key) for key in ("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")}
    for key in saved:
        os.environ[key] = str(folder / key.split("_")[1].lower())
    yield folder
    for key, value in saved.items():
        if value is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = value
    shutil.rmtree(folder, ignore_errors=True)


def pytest_collection_modifyitems(items):
    """Run what needs a cluster or a browser last: the quick answers come first."""
    order = {"ray": 1, "kube": 2, "pods": 3, "browser": 4}
    for item in items:
        if item.get_closest_marker("kube") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(START_AND_TEST_S))
    items.sort(key=lambda item: max((order.get(m.name, 0) for m in item.iter_markers()), default=0))
