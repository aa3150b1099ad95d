"""The quick start, cell by cell, in a kernel of its own on a Ray of its own."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
import yaml

from dlrover_nb.core.export.elasticjob import validate

pytestmark = [pytest.mark.ray, pytest.mark.timeout(400)]

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "00_quickstart.ipynb"


@pytest.fixture
def home():
    folder = Path(tempfile.mkdtemp(prefix="dl"))  # short: unix sockets live below it
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def run_cells(home):
    """Run nbval on a copy: the notebook writes beside itself, and our own pytest settings are not its."""
    shutil.copy(NOTEBOOK, home)
    (home / "pytest.ini").write_text("[pytest]\n")
    folders = {f"XDG_{name.upper()}_HOME": str(home / name) for name in ("state", "data", "config")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--nbval-lax", "--nbval-cell-timeout=280",
         "--nbval-current-env", NOTEBOOK.name],
        cwd=home, env=os.environ | folders | {"IPYTHONDIR": str(home / "ipython")},
        capture_output=True, text=True, timeout=390, check=False,
    )  # fmt: skip


def processes_below(folder):
    """Return who was started with its state in this folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("XDG_STATE_HOME", "").startswith(str(folder)):
                found.append(process)
        except psutil.Error:  # ended meanwhile, or another user's
            continue
    return found


def test_every_cell_of_the_quick_start_runs_and_leaves_its_results_and_no_process(home):
    ran = run_cells(home)
    left = processes_below(home)
    for process in left:
        process.kill()
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    assert "15 passed" in ran.stdout
    assert not left, [process.cmdline()[:4] for process in left]
    document = yaml.safe_load((home / "elasticjob.yaml").read_text())
    assert not validate(document)
    replicas = {role: spec["replicas"] for role, spec in document["spec"]["replicaSpecs"].items()}
    assert replicas == {"worker": 2, "ps": 2}
    report = (home / "quick-start.html").read_text()
    assert "succeeded" in report
    assert report.count("<svg") >= 4
