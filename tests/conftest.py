import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.errors import InvalidArgument

pytest.register_assert_rewrite("support")  # before any of it is imported

from support.waiting import LIMIT_S  # noqa: E402

# How the suite runs, and fixtures of all tests with a browser, a Kubernetes or a PostgreSQL.
pytest_plugins = [
    "suite.missing", "suite.costs", "suite.parts", "suite.progress", "suite.reruns", "suite.passed",
    "support.browser.chromium", "support.kubernetes.kube", "support.history.postgresql", "support.history.migrated",
    "support.words",
]  # fmt: skip

# Read when Ray is imported, by whichever test comes first.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.pop("DLROVER_NB_HISTORY", None)  # no test writes to a team's history
os.environ.pop(
    "PYTHONDONTWRITEBYTECODE", None
)  # images set it; here hundreds of processes import the same modules

# No law depends on the time that an example takes, as the machine may be busy. The tiers that a change must pass try the
# same examples each time (`--hypothesis-profile same` and `fixed`), so that a run says something about the change alone;
# `make test-all` tries new ones.
settings.register_profile("new", settings.default, deadline=None)
settings.register_profile("fixed", settings.default, deadline=None, derandomize=True)
settings.register_profile("same", settings.get_profile("fixed"), max_examples=25)
settings.load_profile("new")


def pytest_itemcollected(item):
    """Try as few examples of a law of the first tier as that tier does, where it runs with the second."""
    is_law = getattr(getattr(item, "function", None), "is_hypothesis_test", False)
    if is_law and settings.get_current_profile_name() == "fixed" and not item.get_closest_marker("more"):
        with suppress(InvalidArgument):  # it has settings of its own
            settings.get_profile("same")(item.function)


PATIENT = (  # how long somebody at a keyboard waits, where a busy machine takes longer
    ("dlrover_nb.core.client.handle", "STOP_TIMEOUT_S"),
    ("dlrover_nb.core.driver.loop.command_queue", "ANSWER_LIMIT_S"),
    ("dlrover_nb.core.driver.calls.service_queue", "ANSWER_LIMIT_S"),
    ("dlrover_nb.core.backends.local.backend", "END_WAIT_S"),
    ("dlrover_nb.core.backends.local.cluster", "END_LIMIT_S"),
    ("dlrover_nb.core.backends.local.link", "START_LIMIT_S"),
    ("dlrover_nb.testing.faults.fault", "END_LIMIT_S"),
    ("dlrover_nb.dashboard.child", "END_S"),
)


@pytest.fixture(scope="session", autouse=True)
def patience_of_all():
    """Let what tests call wait as long as they do, in the modules that those which were collected import."""
    with pytest.MonkeyPatch.context() as patch:
        for module, limit in PATIENT:
            if module in sys.modules:
                patch.setattr(sys.modules[module], limit, LIMIT_S)
        if (link := sys.modules.get("dlrover_nb.core.backends.local.link")) is not None:
            patch.setitem(link.LocalLink.__init__.__kwdefaults__, "limit_s", LIMIT_S)
        yield


@pytest.fixture(scope="session", autouse=True)
def own_home():
    """Give the run its own state and data folders: nothing of the user is read or written."""
    folder = Path(tempfile.mkdtemp(prefix="dl"))  # short: unix sockets live below it
    saved = {key: os.environ.get(key) for key in ("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")}
    for key in saved:
        os.environ[key] = str(folder / key.split("_")[1].lower())
    os.environ["DLROVER_NB_CACHE"] = str(folder / "cache")
    yield folder
    for key, value in saved.items():
        if value is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = value
    shutil.rmtree(folder, ignore_errors=True)
