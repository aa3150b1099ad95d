"""The notebooks, cell by cell: each in a kernel, a folder and a home of its own, and nothing is left of it."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
import yaml
from kube import core_api, host_files
from kubernetes import client
from waiting import LIMIT_S

from dlrover_nb.core.export import check, read_export
from dlrover_nb.core.structs.kubernetes import STATE

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
SANITIZE = Path(__file__).parent / "sanitize.cfg"
# Lax: every cell runs. Strict: every cell prints besides what is stored (cells that say so aside).
HOW = {
    "00_quickstart": ["--nbval-lax"],
    "01_model_and_front": ["--nbval", f"--nbval-sanitize-with={SANITIZE}"],
    "02_memory_and_oom": ["--nbval", f"--nbval-sanitize-with={SANITIZE}"],
    "03_many_jobs": ["--nbval-lax"],
    "04_own_model": ["--nbval-lax"],
    "05_kubernetes": ["--nbval-lax"],
}
ON_RAY = {"00_quickstart", "04_own_model"}
ON_KUBERNETES = {"05_kubernetes"}
MOST_BYTES = 100_000  # of a notebook in the repository: text that is checked, no pictures


@pytest.fixture
def home():
    folder = Path(tempfile.mkdtemp(prefix="dl"))  # short: unix sockets live below it
    yield folder
    left = processes_below(folder)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended with the one before
            process.kill()
    shutil.rmtree(folder, ignore_errors=True)
    assert not left, [*left.values()]


def run_cells(name, home, **variables):
    """Run nbval on a copy: a notebook writes beside itself, and our own pytest settings are not its."""
    shutil.copy(NOTEBOOKS / f"{name}.ipynb", home)
    (home / "pytest.ini").write_text("[pytest]\n")
    folders = {f"XDG_{what.upper()}_HOME": str(home / what) for what in ("state", "data", "config")}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *HOW[name], f"--nbval-cell-timeout={LIMIT_S:.0f}",
         "--nbval-current-env", f"{name}.ipynb"],
        cwd=home, env=os.environ | folders | {"IPYTHONDIR": str(home / "ipython")} | variables,
        capture_output=True, text=True, timeout=3 * LIMIT_S, check=False,  # of one cell: LIMIT_S
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    assert f"{n_code_cell(name)} passed" in ran.stdout


def n_code_cell(name):
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]
    return sum(cell["cell_type"] == "code" for cell in cells)


def processes_below(folder):
    """Return who was started with its state in this folder, and how."""
    found = {}
    for process in psutil.process_iter():
        try:
            if process.environ().get("XDG_STATE_HOME", "").startswith(str(folder)):
                found[process] = process.cmdline()[:4]
        except psutil.Error:  # ended meanwhile, or another user's
            continue
    return found


def test_every_notebook_is_run_here():
    assert sorted(HOW) == sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))


@pytest.mark.parametrize("name", HOW)
def test_what_is_stored_of_a_notebook_is_small_and_static(name):
    path = NOTEBOOKS / f"{name}.ipynb"
    assert path.stat().st_size <= MOST_BYTES
    outputs = [out for cell in json.loads(path.read_text())["cells"] for out in cell.get("outputs", ())]
    assert {out["output_type"] for out in outputs} <= {"stream"}
    assert not outputs or "--nbval-lax" not in HOW[name], "nobody would notice when they are out of date"


@pytest.mark.parametrize("name", [name for name in HOW if name not in ON_RAY | ON_KUBERNETES])
def test_every_cell_of_a_simulated_notebook_runs(name, home):
    run_cells(name, home)
    history = list(home.rglob("history.db"))
    assert not history, "nothing of a simulation enters the history"


@pytest.mark.ray
def test_every_cell_of_the_quick_start_runs_and_leaves_its_results(home):
    run_cells("00_quickstart", home)
    text = (home / "elasticjob.yaml").read_text()
    document, exported = yaml.safe_load(text), read_export(text)
    assert check([document]) == ()
    assert exported.provenance.decision.why == "as advised"
    replicas = {role: spec["replicas"] for role, spec in document["spec"]["replicaSpecs"].items()}
    assert replicas == {"worker": exported.plan.worker.count, "ps": exported.plan.ps.count}
    report = (home / "quick-start.html").read_text()
    assert "succeeded" in report
    assert "what does one more of each bring?" in report
    assert report.count("<svg") >= 4


@pytest.mark.ray
def test_every_cell_of_the_own_model_runs(home):
    run_cells("04_own_model", home)


@pytest.mark.kube
@pytest.mark.pods
def test_every_cell_of_the_job_on_kubernetes_runs_and_leaves_nothing(nodes, namespace, home):
    place = namespace(nodes)
    core = core_api(nodes)
    core.create_namespaced_config_map(place, defaults_of(home))
    run_cells("05_kubernetes", home, KUBECONFIG=str(kubeconfig_at(place, nodes, home)))
    batch = client.BatchV1Api(core.api_client)
    assert batch.list_namespaced_job(place).items == []
    ours = "dlrover-nb/job=on-kubernetes"
    assert core.list_namespaced_secret(place, label_selector=ours).items == []


def defaults_of(home):
    """Return what an administrator sets for a namespace: images, and a folder for the state of jobs."""
    state = home / "pods"
    state.mkdir()
    for folder in (home, state):
        folder.chmod(0o777)
    files = host_files()
    volumes = [*files["volumes"], {"mount": STATE, "host_path": str(state)}]
    text = yaml.safe_dump(files | {"volumes": volumes})
    return {"metadata": {"name": "dlrover-nb"}, "data": {"defaults.yaml": text}}


def kubeconfig_at(place, cluster, home):
    """Return a kubeconfig whose current namespace is this one."""
    told = yaml.safe_load(Path(cluster.kubeconfig).read_text())
    told["contexts"][0]["context"]["namespace"] = place
    path = home / "kubeconfig"
    path.write_text(yaml.safe_dump(told))
    return path
