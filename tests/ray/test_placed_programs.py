"""Programs that say with which others they run, on a Ray of two machines: two raylets of this one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.ray
TESTS = Path(__file__).resolve().parent.parent


@pytest.fixture
def sockets():
    """Make a folder with a short name: paths of sockets are limited."""
    folder = tempfile.mkdtemp(prefix="rt-")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.release
def test_roles_run_together_and_apart_on_two_machines(tmp_path, sockets):
    own = {"HOME": str(tmp_path), "PYTHONPATH": f"{TESTS.parent}:{TESTS}", "RAY_TMPDIR": sockets}
    loopback = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # else Ray takes it for this machine's outside
    others = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, str(TESTS / "ray" / "two_machines.py")],
        env=others | own | loopback,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    places = told["places"]
    assert len(set(places.values())) == 2
    assert places["reader-0"] == places["ps-0"]
    assert places["worker-0"] == places["worker-1"] != places["ps-0"]
    assert places["lonely-0"] != places["lonely-1"]
    assert told["waits"]["third-0"] == "no machine is without lonely"
